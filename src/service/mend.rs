//! Opens the ledger again after a failed write, and takes up what the failure cut off (FT.5).

use super::core::Core;
use super::{recovery, settle};
use crate::domain::refusal::Refusal;
use crate::ledger::LedgerError;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Runs as long as the service: waits for a failure, then tries until the ledger is open and checked.
pub(super) async fn mend(core: Weak<Core>) {
    loop {
        let Some(ledger) = core.upgrade().map(|core| core.ledger.clone()) else { return };
        ledger.until_latched().await;
        let Some(now) = core.upgrade() else { return };
        let mut pause = now.graces.reopen;
        drop(now);
        loop {
            tokio::time::sleep(pause).await;
            match ledger.reopen().await {
                Ok(()) => break,
                Err(LedgerError::Closed) => return,
                Err(error) => tracing::warn!(%error, "the ledger stays latched"),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        tracing::info!("the ledger is open again");
        let Some(core) = core.upgrade() else { return };
        if let Err(refusal) = take_up_unfollowed(&core).await {
            tracing::error!(%refusal, "what the failure cut off stays unsettled");
        }
    }
}

/// An intent whose commit failed may be in the ledger all the same; it was never launched, and nobody
/// follows it. (A run whose later commit failed still has its driver, which goes on by itself.)
async fn take_up_unfollowed(core: &Arc<Core>) -> Result<(), Refusal> {
    // No start may be between its commit and its driver meanwhile.
    let _quiet = core.starting.write().await;
    let mut runs = core.ledger.unsettled_runs().await?;
    {
        let live = core.live();
        runs.retain(|run| !live.contains_key(&run.intent.run_id));
    }
    recovery::take_up(core, runs).await?;
    // Nor is any application under way: each holds the same lock as a start.
    settle::settle_all(core).await
}
