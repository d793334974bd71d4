//! Opens the ledger again after a failed write, and takes up what the failure cut off (FT.5).

use super::core::Core;
use super::{recovery, settle};
use crate::domain::ids::RunId;
use crate::domain::refusal::Refusal;
use crate::ledger::LedgerError;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A failure so soon after the last one goes on with its pauses: a disk that takes one write and not the
/// next is not mended.
const SAME_FAILURE: Duration = Duration::from_secs(60);

/// Runs until the service is stopped: waits for a failure, then tries until the ledger is open and checked.
pub(super) async fn mend(core: Weak<Core>) {
    let Some((ledger, first)) = core.upgrade().map(|core| (core.ledger.clone(), core.graces.reopen)) else {
        return;
    };
    let (mut pause, mut opened) = (first, None::<Instant>);
    loop {
        ledger.until_latched().await;
        if opened.is_none_or(|at| at.elapsed() > SAME_FAILURE) {
            pause = first;
        }
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            match ledger.reopen().await {
                Ok(()) => break,
                Err(LedgerError::Closed) => return,
                Err(error) => tracing::warn!(%error, "the ledger stays latched"),
            }
        }
        opened = Some(Instant::now());
        tracing::info!("the ledger is open again");
        while ledger.latched().is_none() {
            let Some(core) = core.upgrade() else { return };
            match take_up_unfollowed(&core).await {
                Ok(()) => break,
                Err(refusal) => tracing::error!(%refusal, "what the failure cut off stays unsettled so far"),
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// An intent whose commit failed may be in the ledger all the same; it was never launched, and nobody
/// follows it. (A run whose later commit failed still has its driver, which goes on by itself.)
async fn take_up_unfollowed(core: &Arc<Core>) -> Result<(), Refusal> {
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
    settle::settle_all(core).await
}
