//! Recovery: what is done at a start about runs that the last service left unsettled (CMD.8, CMD.9).
//!
//! The plan is pure; carrying it out twice does no more than once, so a recovery may itself be killed.

use super::core::{Backend, Core};
use super::driver::{self, Begin};
use super::types::settled;
use crate::domain::ids::{ContainerId, RunId};
use crate::domain::job::{JOB_FILE, Job};
use crate::domain::refusal::Refusal;
use crate::domain::run::{Cleanup, Run};
use crate::exec::Observed;
use crate::ledger::Ledger;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long the supervisor of a run that nobody knows may take to end after its cancel.
const ORPHAN_GRACE: Duration = Duration::from_secs(10);

/// What is done about one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Observe it again under its original ids.
    Adopt,
    /// The host was restarted since: read its records, sweep, settle.
    Postmortem,
    /// Leave it as it is; grants wait for the reason to go away.
    Keep(String),
    /// Leave it as it is; this start grants nothing that it could be in the way of.
    Leave,
}

/// What the plan depends on beside the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present<'a> {
    /// The current boot.
    pub boot_id: &'a str,
    /// The executor of this start; `None` runs no commands.
    pub executor: Option<&'a str>,
}

/// Plans the recovery of the unsettled runs, in their order.
pub fn plan(runs: &[Run], present: Present<'_>) -> Vec<(RunId, Action)> {
    runs.iter().map(|run| (run.intent.run_id.clone(), action(run, present))).collect()
}

fn action(run: &Run, present: Present<'_>) -> Action {
    let id = &run.intent.run_id;
    match present.executor {
        None => Action::Leave,
        Some(_) if run.cleanup == Cleanup::Uncertain => {
            Action::Keep(format!("the cleanup of run {id} is uncertain since an earlier start"))
        }
        // Only the original backend can tell what became of a run.
        Some(now) if now != run.intent.executor => Action::Keep(format!(
            "run {id} was started with the executor '{}' and cannot be settled with '{now}'",
            run.intent.executor
        )),
        Some(_) if run.intent.boot_id != present.boot_id => Action::Postmortem,
        Some(_) => Action::Adopt,
    }
}

/// Carries the plan out; returns when nothing but re-adopted runs is under way.
pub(super) async fn recover(core: &Arc<Core>) -> Result<(), Refusal> {
    let runs = core.ledger.unsettled_runs().await?;
    let present = Present {
        boot_id: &core.boot_id,
        executor: core.backend.as_ref().map(|backend| backend.executor.name()),
    };
    let mut reboots = Vec::new();
    for (run, (id, action)) in runs.iter().zip(plan(&runs, present)) {
        tracing::info!(run = %id, ?action, "recovery");
        match (action, &core.backend) {
            (Action::Keep(reason), _) => {
                core.readiness
                    .withdraw(reason, format!("settle it with `sal commands reconcile --run-id {id}`"));
            }
            (Action::Adopt, Some(backend)) => {
                driver::spawn(core, backend, run.clone(), Begin::Adopt);
            }
            (Action::Postmortem, Some(backend)) => {
                reboots.push(driver::spawn(core, backend, run.clone(), Begin::Postmortem));
            }
            (Action::Leave, _) | (Action::Adopt | Action::Postmortem, None) => {}
        }
    }
    for mut watch in reboots {
        let _ = watch.wait_for(settled).await;
    }
    if let Some(backend) = &core.backend {
        let known: BTreeSet<_> = runs.into_iter().map(|run| run.intent.run_id).collect();
        clear_leftovers(core, backend, &known).await?;
    }
    Ok(())
}

/// A run directory that no unsettled run owns.
struct Leftover {
    run: RunId,
    container: Option<ContainerId>,
}

fn leftovers(runs: &Path, known: &BTreeSet<RunId>) -> Vec<Leftover> {
    let Ok(entries) = std::fs::read_dir(runs) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let ids = names.filter_map(|name| RunId::parse(&name).ok()).filter(|id| !known.contains(id));
    ids.map(|run| {
        let text = std::fs::read(runs.join(run.as_str()).join(JOB_FILE)).unwrap_or_default();
        let container = serde_json::from_slice::<Job>(&text).ok().map(|job| job.container_id);
        Leftover { run, container }
    })
    .collect()
}

/// Deletes run directories whose completion is committed, and ends those that the ledger does not know,
/// such as a proof's container after a kill during the proof.
async fn clear_leftovers(core: &Core, backend: &Backend, known: &BTreeSet<RunId>) -> Result<(), Refusal> {
    let (runs, known) = (core.state.runs(), known.clone());
    let found = super::core::blocking(move || Ok(leftovers(&runs, &known))).await?;
    for Leftover { run, container } in found {
        let left = match container {
            Some(container) if !is_recorded(&core.ledger, &run).await => {
                end_orphan(backend, &run, &container).await
            }
            _ => Vec::new(),
        };
        if left.is_empty() {
            if let Err(error) = backend.executor.forget(&run).await {
                tracing::warn!(%run, %error, "the run directory could not be deleted");
            }
        } else {
            core.readiness.withdraw(
                format!("an unrecorded container of run {run} is left: {}", left.join(", ")),
                "remove what is left, then restart the service",
            );
        }
    }
    Ok(())
}

async fn is_recorded(ledger: &Ledger, run: &RunId) -> bool {
    ledger.run(run).await.is_ok()
}

async fn end_orphan(backend: &Backend, run: &RunId, container: &ContainerId) -> Vec<String> {
    let _ = backend.executor.cancel(run).await;
    let mut records = backend.executor.watch(run);
    let gone = async { while matches!(records.recv().await, Some(Observed::Record(_))) {} };
    let _ = tokio::time::timeout(ORPHAN_GRACE, gone).await;
    match backend.executor.sweep(run, container).await {
        Ok(left) => left,
        Err(error) => vec![format!("unknown ({error})")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::run::RunState;
    use crate::ledger::apply::tests::intent;

    #[test]
    fn cmd8_the_plan_depends_on_cleanup_executor_and_boot() {
        let run = |change: fn(&mut Run)| {
            let mut run = crate::ledger::apply::requested(intent());
            change(&mut run);
            run
        };
        let present = |boot_id, executor| Present { boot_id, executor };
        let here = present("boot-1", Some("scripted"));
        let kind = |run: Run, present| match plan(&[run], present).remove(0).1 {
            Action::Adopt => "adopt",
            Action::Postmortem => "postmortem",
            Action::Keep(_) => "keep",
            Action::Leave => "leave",
        };
        for state in [RunState::Requested, RunState::Creating, RunState::Running, RunState::Finishing] {
            let mut live = run(|_| ());
            live.state = state;
            assert_eq!(kind(live.clone(), here), "adopt");
            assert_eq!(kind(live.clone(), present("boot-2", Some("scripted"))), "postmortem");
            assert_eq!(kind(live.clone(), present("boot-1", Some("oci"))), "keep");
            assert_eq!(kind(live.clone(), present("boot-2", Some("oci"))), "keep");
            assert_eq!(kind(live, present("boot-1", None)), "leave");
        }
        assert_eq!(kind(run(|r| r.cleanup = Cleanup::Uncertain), here), "keep");
        assert_eq!(
            kind(run(|r| r.cleanup = Cleanup::Uncertain), present("boot-2", Some("scripted"))),
            "keep"
        );
    }
}
