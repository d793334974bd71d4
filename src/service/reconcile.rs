//! `reconcile`: what a person can order for a run whose backend or cleanup is uncertain (CMD.9).

use super::core::Core;
use super::plan::{SUPERVISOR_LOST, same_origin};
use super::recovery;
use super::tracker::uncertain;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::run::{Cleanup, Run};
use std::sync::Arc;

/// Settles `run` if the evidence does.
pub(super) async fn reconcile(core: &Arc<Core>, run: Run) -> Result<Run, Refusal> {
    let id = run.intent.run_id.clone();
    if run.state.is_terminal() && run.cleanup != Cleanup::Uncertain {
        return Ok(run);
    }
    if core.live().contains_key(&id) {
        return Err(Refusal::new(
            Code::Busy,
            format!("the run {id} is observed; there is nothing uncertain about it yet"),
            "wait for its end or cancel it",
        ));
    }
    let backend = core.backend()?.clone();
    let profile = core.profile.digest();
    if let Some(configured) = core.configured(&profile)
        && let Err(reason) = same_origin(&run, configured)
    {
        return Err(Refusal::new(
            Code::Conflict,
            reason,
            format!(
                "restart the service as it was: --coding-executor {} --image {}, with the same version of sal",
                run.intent.executor, run.intent.image.reference
            ),
        ));
    }
    // A sweep kills; what lives is a person's to end.
    let alive = backend.executor.alive(&id, &run.intent.container_id).await.map_err(|e| {
        Refusal::new(Code::NotReady, format!("whether run {id} lives cannot be told: {e}"), "repeat it later")
    })?;
    if !alive.is_empty() {
        return Err(Refusal::new(
            Code::NotReady,
            format!("run {id} still lives: {}", alive.join(", ")),
            "look at these processes (ps -fp PID), end them (kill -KILL PID), then reconcile again",
        ));
    }
    let settled = recovery::settle(core, &backend, vec![(run, SUPERVISOR_LOST)]).await?;
    match settled.into_iter().next() {
        Some(run) if run.state.is_terminal() && run.cleanup != Cleanup::Uncertain => Ok(run),
        _ => Err(Refusal::new(
            Code::NotReady,
            core.readiness.reason_of(&id).unwrap_or_else(|| uncertain(&id, &[])),
            "remove what is left by hand (rmdir for a cgroup), then reconcile again",
        )),
    }
}
