//! Removing what a run may have left, without its supervisor, and what is said when something stays.

use super::core::Backend;
use crate::domain::ids::{ContainerId, RunId};
use crate::domain::run::RunIntent;
use crate::exec::Observed;
use std::time::Duration;

/// How long the sweep of one run may take; longer counts as uncertain.
const LIMIT: Duration = Duration::from_secs(15);
/// Most limits that a sweep of many runs gets: those that are stuck wait one after the other.
const MOST_LIMITS: usize = 8;
/// How long the supervisor of a run that nobody knows may take to end after its cancel.
const ORPHAN_GRACE: Duration = Duration::from_secs(10);

/// Removes whatever bears these ids, supervisors included, and answers what is left of each.
pub(super) async fn sweep(backend: &Backend, runs: Vec<(RunId, ContainerId)>) -> Vec<Vec<String>> {
    let count = runs.len();
    let limit = LIMIT * u32::try_from(count.clamp(1, MOST_LIMITS)).unwrap_or(1);
    let unknown = |why: String| vec![vec![format!("unknown ({why})")]; count];
    match tokio::time::timeout(limit, backend.executor.sweep(runs)).await {
        Ok(Ok(left)) => left,
        Ok(Err(error)) => unknown(error.to_string()),
        Err(_) => unknown(format!("the sweep took more than {} s", limit.as_secs())),
    }
}

/// [`sweep`] for one run.
pub(super) async fn sweep_one(backend: &Backend, run: &RunId, container: &ContainerId) -> Vec<String> {
    sweep(backend, vec![(run.clone(), container.clone())]).await.pop().unwrap_or_default()
}

/// Ends a container that no driver follows, and answers what is left of it.
pub(super) async fn end_orphan(backend: &Backend, run: &RunId, container: &ContainerId) -> Vec<String> {
    let _ = backend.executor.cancel(run).await;
    let mut records = backend.executor.watch(run);
    let gone = async { while matches!(records.recv().await, Some(Observed::Record(_))) {} };
    let _ = tokio::time::timeout(ORPHAN_GRACE, gone).await;
    sweep_one(backend, run, container).await
}

/// Deletes a run's working files; what stays is looked for again at the next start.
pub(super) async fn forget(backend: &Backend, run: &RunId) {
    if let Err(error) = backend.executor.forget(run).await {
        tracing::warn!(%run, %error, "the run directory could not be deleted");
    }
}

/// Why nothing is granted while something of `run` may be left (CMD.9).
pub(super) fn uncertain(run: &RunId, left: &[String]) -> String {
    format!("the cleanup of run {run} is uncertain; left: {}", left.join(", "))
}

/// The next step when something of `run` may be left.
pub(super) fn left_hint(run: &RunIntent) -> String {
    format!(
        "`sal commands reconcile {} --run-id {}` looks again, as does a restart of the service; if it stays, \
         remove what is left by hand and repeat",
        run.session_id, run.run_id
    )
}
