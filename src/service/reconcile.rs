//! `reconcile`: what a person can order for a run whose backend or cleanup is uncertain (CMD.9).

use super::core::Core;
use super::plan::{Action, Present, SUPERVISOR_LOST, action, same_origin};
use super::recovery;
use super::sweep::uncertain;
use super::types::settled;
use crate::domain::ids::RunId;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::run::{Cleanup, Run};
use std::sync::Arc;
use std::time::Duration;

/// Longest that the look for living processes may take.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// Settles the run if the evidence does.
pub(super) async fn reconcile(core: &Arc<Core>, run: Run) -> Result<Run, Refusal> {
    core.readiness.check_open()?;
    let id = run.intent.run_id;
    until_left(core, &id).await;
    // Nobody else settles or adopts meanwhile, and no start is between its commit and its driver.
    let _settling = core.settling.lock().await;
    let (run, followed) = {
        let _quiet = core.starting.write().await;
        let followed = core.live().contains_key(&id);
        (core.ledger.run(&id).await?, followed)
    };
    if run.state.is_terminal() && run.cleanup != Cleanup::Uncertain {
        return Ok(run);
    }
    if followed {
        return Err(Refusal::new(
            Code::Busy,
            format!("the run {id} is observed; there is nothing uncertain about it yet"),
            "wait for its end or cancel it",
        ));
    }
    let backend = core.backend()?.clone();
    let profile = core.profile.digest();
    let configured = core.configured(&profile);
    if let Some(Err(reason)) = configured.map(|configured| same_origin(&run, configured)) {
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
    let look = backend.executor.alive(&id, &run.intent.container_id);
    let alive = match tokio::time::timeout(LOOK_LIMIT, look).await {
        Ok(Ok(alive)) => alive,
        Ok(Err(error)) => return Err(cannot_tell(&run, &error.to_string())),
        Err(_) => return Err(cannot_tell(&run, "the look took more than 5 s")),
    };
    if !alive.is_empty() {
        return Err(Refusal::new(
            Code::NotReady,
            format!("run {id} still lives: {}", alive.join(", ")),
            "look at these processes (ps -fp PID), end them (kill -KILL PID), then reconcile again",
        ));
    }
    // Nothing lives, so nobody supervises it.
    let why = match action(&run, false, Present { boot_id: &core.boot_id, configured }) {
        Action::Settle(why) => why,
        _ => SUPERVISOR_LOST,
    };
    let done = recovery::settle(core, &backend, vec![(run, why)]).await?;
    match done.into_iter().next() {
        Some(run) if run.state.is_terminal() && run.cleanup != Cleanup::Uncertain => Ok(run),
        _ => Err(Refusal::new(
            Code::NotReady,
            core.readiness.reason_of(&id).unwrap_or_else(|| uncertain(&id, &[])),
            "remove what is left by hand (rmdir for a cgroup), then reconcile again",
        )),
    }
}

/// Waits for a driver that has told the end of its run and is leaving: who has heard of that end is not
/// told that the run is still observed.
async fn until_left(core: &Core, id: &RunId) {
    let Some(mut watch) = core.live().get(id).map(|live| live.watch.clone()) else { return };
    let told = settled(&watch.borrow());
    if told {
        let left = async { while watch.changed().await.is_ok() {} };
        // A driver that cannot record the end stays; then it is observed indeed.
        let _ = tokio::time::timeout(LOOK_LIMIT, left).await;
    }
}

fn cannot_tell(run: &Run, why: &str) -> Refusal {
    Refusal::new(
        Code::NotReady,
        format!("whether run {} lives cannot be told: {why}", run.intent.run_id),
        "check that /proc and the cgroup file systems are mounted, then reconcile again",
    )
}
