//! Opens the ledger again after a failed write, and takes up what failures cut off (FT.5).

use super::core::{Core, to_the_end};
use super::{recovery, settle};
use crate::domain::ids::RunId;
use crate::domain::refusal::Refusal;
use crate::ledger::{Ledger, LedgerError};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A failure so soon after the last one goes on with its pauses: a disk that takes one write and not the
/// next is not mended.
const SAME_FAILURE: Duration = Duration::from_secs(60);

/// Runs until the service is stopped: waits for a failed write or an application that stays undecided,
/// then tries until the ledger is open and checked and everything is taken up.
pub(super) async fn mend(core: Weak<Core>) {
    let Some((ledger, undecided, first)) =
        core.upgrade().map(|core| (core.ledger.clone(), Arc::clone(&core.undecided), core.graces.reopen))
    else {
        return;
    };
    let mut pauses = Pauses { next: first };
    let mut mended = None::<Instant>;
    loop {
        tokio::select! {
            biased;
            () = ledger.until_latched() => {}
            () = undecided.notified() => {}
        }
        if mended.is_none_or(|at| at.elapsed() > SAME_FAILURE) {
            pauses = Pauses { next: first };
        }
        pauses.wait().await;
        let mut reopened = false;
        loop {
            if ledger.latched().is_some() {
                if !reopen(&ledger, &mut pauses).await {
                    return;
                }
                reopened = true;
            }
            let Some(core) = core.upgrade() else { return };
            let taken_up = if reopened { take_up_unfollowed(&core).await } else { decide(&core).await };
            drop(core);
            match taken_up {
                Ok(0) => break,
                Ok(open) => tracing::info!(open, "applications stay undecided so far"),
                Err(refusal) => tracing::error!(%refusal, "what the failure cut off stays unsettled so far"),
            }
            pauses.wait().await;
        }
        mended = Some(Instant::now());
    }
}

/// Pauses that double.
struct Pauses {
    next: Duration,
}

impl Pauses {
    async fn wait(&mut self) {
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
    }
}

/// Tries until the ledger takes writes again; false when it was closed.
async fn reopen(ledger: &Ledger, pauses: &mut Pauses) -> bool {
    loop {
        match ledger.reopen().await {
            Ok(()) => {
                tracing::info!("the ledger is open again");
                return true;
            }
            Err(LedgerError::Closed) => return false,
            Err(error) => tracing::warn!(%error, "the ledger stays latched"),
        }
        pauses.wait().await;
    }
}

/// An intent whose commit failed may be in the ledger all the same; it was never launched, and nobody
/// follows it. (A run whose later commit failed still has its driver, which goes on by itself.) Answers how
/// many applications stay undecided.
async fn take_up_unfollowed(core: &Arc<Core>) -> Result<usize, Refusal> {
    let _settling = core.settling.lock().await;
    let runs = {
        // No start may be between its commit and its driver, and who has a driver is asked first: a run
        // that ends in between is then not read as one that nobody follows.
        let _quiet = core.starting.write().await;
        let followed: BTreeSet<RunId> = core.live().keys().cloned().collect();
        let mut runs = core.ledger.unsettled_runs().await?;
        runs.retain(|run| !followed.contains(&run.intent.run_id));
        runs
    };
    recovery::take_up(core, runs).await?;
    // Who followed an application when the write failed has ended with the wait above.
    decide(core).await
}

/// Decides on what is undecided, once. A stop ends the mender, but waits for this: what it has begun on disk
/// must not go on beside the next service.
async fn decide(core: &Arc<Core>) -> Result<usize, Refusal> {
    let core = Arc::clone(core);
    to_the_end(async move {
        let _entered = core.enter().await?;
        settle::settle_all(&core).await
    })
    .await
}
