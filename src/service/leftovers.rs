//! What no run in the ledger owns: run directories whose completion is committed, containers and files
//! of a proof that was broken off. Looked for once, at a start.

use super::core::{Backend, Core, blocking};
use super::prove::PROOF_SOURCE;
use super::readiness::Doubt;
use super::sweep::{end_orphan, forget};
use crate::domain::ids::{ContainerId, RunId};
use crate::domain::job::{JOB_FILE, Job};
use crate::domain::refusal::Refusal;
use crate::ledger::{Ledger, LedgerError};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A run directory that no unsettled run owns.
struct Leftover {
    run: RunId,
    container: Option<ContainerId>,
}

fn leftovers(runs: &Path, known: &BTreeSet<RunId>) -> Vec<Leftover> {
    let ids = entries(runs).into_iter().filter_map(|(name, _)| RunId::parse(&name).ok());
    ids.filter(|id| !known.contains(id))
        .map(|run| {
            let text = std::fs::read(runs.join(run.as_str()).join(JOB_FILE)).unwrap_or_default();
            let container = serde_json::from_slice::<Job>(&text).ok().map(|job| job.container_id);
            Leftover { run, container }
        })
        .collect()
}

/// Deletes run directories whose completion is committed, and ends those that the ledger does not know,
/// such as a proof's container after a kill during the proof. `unsettled` are left alone.
pub(super) async fn clear_runs(
    core: &Core,
    backend: &Backend,
    unsettled: BTreeSet<RunId>,
) -> Result<(), Refusal> {
    let runs = core.state.runs();
    let found = blocking(move || Ok(leftovers(&runs, &unsettled))).await?;
    for Leftover { run, container } in found {
        let left = match container {
            Some(container) if !is_recorded(&core.ledger, &run).await? => {
                end_orphan(backend, &run, &container).await
            }
            _ => Vec::new(),
        };
        if left.is_empty() {
            forget(backend, &run).await;
        } else {
            core.readiness.withdraw(
                Doubt::Left(run.clone()),
                format!("an unrecorded container of run {run} is left: {}", left.join(", ")),
                "restart the service, which looks again; if it stays, remove what is left by hand and restart",
            );
        }
    }
    Ok(())
}

/// Deletes what a proof that was broken off left beside its run directory: its source, and its output,
/// which bears the id of a run that the ledger does not know.
pub(super) async fn clear_files(core: &Core) -> Result<(), Refusal> {
    let known = core.ledger.all_run_ids().await?;
    let (root, runs) = (core.state.root().to_owned(), core.state.runs());
    blocking(move || {
        for (name, path) in entries(&root) {
            if name.strip_prefix(PROOF_SOURCE).is_some_and(|id| RunId::parse(id).is_ok()) {
                report(&path, std::fs::remove_dir_all(&path));
            }
        }
        for (name, path) in entries(&root.join("outputs")) {
            let stray = RunId::parse(&name).is_ok_and(|id| !known.contains(&id));
            // A run directory that is still there names a container that may yet write.
            if stray && !runs.join(&name).exists() {
                report(&path, std::fs::remove_file(&path));
            }
        }
        Ok(())
    })
    .await
}

fn entries(dir: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let named = entries.flatten().map(|entry| (entry.file_name().into_string(), entry.path()));
    named.filter_map(|(name, path)| Some((name.ok()?, path))).collect()
}

fn report(path: &Path, done: std::io::Result<()>) {
    match done {
        Ok(()) => tracing::info!(path = %path.display(), "deleted what an earlier proof left"),
        Err(error) => tracing::warn!(path = %path.display(), %error, "what an earlier proof left stays"),
    }
}

async fn is_recorded(ledger: &Ledger, run: &RunId) -> Result<bool, LedgerError> {
    match ledger.run(run).await {
        Ok(_) => Ok(true),
        Err(LedgerError::Absent { .. }) => Ok(false),
        // A run that cannot be read is not one that nobody knows.
        Err(other) => Err(other),
    }
}
