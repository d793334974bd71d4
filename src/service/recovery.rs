//! Carries out the plan for runs that nobody follows: at a start, when the ledger is open again after a
//! failure, and for `reconcile` (CMD.8, CMD.9).
//!
//! Everything here is idempotent and may itself be killed anywhere: a sweep finds less the second time,
//! all that is settled together is one transaction, and files are deleted after it.

use super::core::{Backend, Core, blocking};
use super::driver::{self, Begin};
use super::leftovers;
use super::output;
use super::plan::{Action, Present, action};
use super::readiness::Doubt;
use super::sweep::{forget, sweep};
use super::tracker::Tracker;
use crate::domain::ids::RunId;
use crate::domain::record::Record;
use crate::domain::refusal::Refusal;
use crate::domain::run::{Cleanup, Run, RunEvent};
use crate::fault::{self, Side};
use crate::ledger::Facts;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Settles, adopts or keeps every unsettled run, then clears what no run owns. Returns when nothing but
/// re-adopted runs is under way.
pub(super) async fn recover(core: &Arc<Core>) -> Result<(), Refusal> {
    let _settling = core.settling.lock().await;
    let runs = core.ledger.unsettled_runs().await?;
    let known: BTreeSet<_> = runs.iter().map(|run| run.intent.run_id.clone()).collect();
    take_up(core, runs).await?;
    if let Some(backend) = &core.backend {
        leftovers::clear_runs(core, backend, known).await?;
    }
    leftovers::clear_files(core).await
}

/// Carries the plan out for `runs`, none of which has a driver. The caller holds `core.settling`, so that
/// nobody else does the same.
pub(super) async fn take_up(core: &Arc<Core>, runs: Vec<Run>) -> Result<(), Refusal> {
    let profile = core.profile.digest();
    let present = Present { boot_id: &core.boot_id, configured: core.configured(&profile) };
    let mut dead = Vec::new();
    for run in runs {
        let supervised =
            core.backend.as_ref().is_some_and(|b| b.executor.survey(&run.intent.run_id).supervised);
        let action = action(&run, supervised, present);
        tracing::info!(run = %run.intent.run_id, ?action, "recovery");
        match (action, &core.backend) {
            (Action::Keep(reason), _) => {
                core.readiness.withdraw(
                    Doubt::Left(run.intent.run_id.clone()),
                    reason,
                    format!(
                        "restart the service as it was: --coding-executor {} --image {}",
                        run.intent.executor, run.intent.image.reference
                    ),
                );
            }
            (Action::Adopt, Some(backend)) => {
                let _ = fault::reach("adopt", Side::Before, run.intent.run_id.as_str());
                driver::spawn(core, backend, run, Begin::Adopt);
            }
            (Action::Settle(why), _) => dead.push((run, why)),
            (Action::Resweep, _) => dead.push((run, "")),
            (Action::Leave, _) | (Action::Adopt, None) => {}
        }
    }
    match &core.backend {
        Some(backend) if !dead.is_empty() => settle(core, backend, dead).await.map(drop),
        _ => Ok(()),
    }
}

/// Settles runs of which nobody will tell more: sweeps them, reads their records, commits all together
/// and answers them as they are then. Each comes with how it was lost. The caller holds `core.settling`.
pub(super) async fn settle(
    core: &Arc<Core>,
    backend: &Backend,
    dead: Vec<(Run, &'static str)>,
) -> Result<Vec<Run>, Refusal> {
    let ids = dead.iter().map(|(run, _)| (run.intent.run_id.clone(), run.intent.container_id.clone()));
    let left = sweep(backend, ids.collect()).await;
    let (shared, executor) = (Arc::clone(core), Arc::clone(&backend.executor));
    // What the supervisor recorded before its end is the truth, so the records are read after the sweep.
    let changes = blocking(move || {
        let found = dead.into_iter().zip(left);
        Ok(found
            .map(|((run, why), left)| {
                let id = run.intent.run_id.clone();
                let (events, facts) = if run.cleanup == Cleanup::Uncertain {
                    (recheck(&shared, &run, &left), Facts::default())
                } else {
                    let records = executor.survey(&id).records;
                    postmortem(&shared, run, records, left, why)
                };
                (id, events, facts)
            })
            .collect::<Vec<(RunId, _, _)>>())
    })
    .await?;
    let runs = core.ledger.append_to_many(changes).await?;
    for run in &runs {
        if run.state.is_terminal() && run.cleanup == Cleanup::Confirmed {
            let id = &run.intent.run_id;
            core.readiness.restore(&Doubt::Left(id.clone()));
            core.readiness.restore(&Doubt::Unrecorded(id.clone()));
            forget(backend, id).await;
        }
    }
    Ok(runs)
}

/// The events that settle a run whose end is recorded and whose cleanup was uncertain; none while
/// something is left.
fn recheck(core: &Core, run: &Run, left: &[String]) -> Vec<RunEvent> {
    if !left.is_empty() {
        core.doubt_left(&run.intent, left);
        return Vec::new();
    }
    // The outcome of a lost run is its last word; only its cleanup was open.
    vec![if run.state.is_terminal() { RunEvent::CleanedUp } else { RunEvent::Removed }]
}

fn postmortem(
    core: &Core,
    run: Run,
    records: Vec<Record>,
    left: Vec<String>,
    why: &str,
) -> (Vec<RunEvent>, Facts) {
    let path = core.state.output(&run.intent.run_id);
    let mut tracker = Tracker::new(run, core.profile.file_size);
    let told = records.iter().filter_map(|record| match record {
        Record::Exited { evidence, .. } => Some(evidence.stored_bytes),
        _ => None,
    });
    let most = told.fold(core.profile.output_bytes, u64::max);
    match output::found(&path, most) {
        Ok(kept) => tracker.output_found(kept),
        // What cannot be read is no evidence of anything.
        Err(error) => tracing::warn!(path = %path.display(), %error, "the kept output cannot be read"),
    }
    for record in records {
        tracker.observe(record);
    }
    tracker.over(left, why);
    core.raise(&mut tracker);
    tracker.take_pending()
}
