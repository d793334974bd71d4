//! Starting a command: the steps around the rules of [`super::rules`].

use super::clock;
use super::core::{Core, blocking, to_the_end};
use super::driver::{self, Begin};
use super::rules::{check_cwd, check_text, check_unchanged, coding, decide};
use super::types::StartCommand;
use crate::domain::ids::{ContainerId, ExecId, RunId, SessionId, StepKey};
use crate::domain::job::{self, Entry, Job};
use crate::domain::manifest::TreeManifest;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::run::{Run, RunIntent};
use crate::domain::session::Workspace;
use crate::ledger::{Requested, Verdict};
use std::path::PathBuf;
use std::sync::Arc;

/// Attempts of a start that names no revision, while publications get in between.
const ATTEMPTS: usize = 8;

/// Starts a command, or answers the original run of its key. One that names no revision means whichever is
/// current, so a publication in between is no reason to refuse it.
pub(super) async fn start(
    core: &Arc<Core>,
    session: &SessionId,
    mut req: StartCommand,
) -> Result<Run, Refusal> {
    check_text(&req.command)?;
    let key = match req.step_key.take() {
        Some(key) => key,
        None => fresh_key()?,
    };
    req.step_key = Some(key.clone());
    let mut attempts = if req.revision.is_some() { 1 } else { ATTEMPTS };
    loop {
        attempts -= 1;
        match attempt(core, session, &key, req.clone()).await {
            Err(refusal) if refusal.code == Code::StaleRevision && attempts > 0 => {}
            done => return done,
        }
    }
}

/// Starts a command on the current revision, or on none.
async fn attempt(
    core: &Arc<Core>,
    session: &SessionId,
    key: &StepKey,
    mut req: StartCommand,
) -> Result<Run, Refusal> {
    let grounds = core.ledger.grounds(session, key).await?;
    if let (Verdict::Original, Some(run)) = (decide(&grounds, &req, || gate(core))?, &grounds.existing) {
        return Ok(core.view(&run.intent.run_id).unwrap_or_else(|| run.clone()));
    }
    let workspace = coding(&grounds)?.clone();
    let manifest = core.ledger.manifest(&workspace.id, workspace.revision).await?;
    check_cwd(&manifest, &req.cwd)?;
    let (port, root) = (core.workspaces()?, PathBuf::from(&workspace.root));
    let observed = blocking(move || port.observe(&root)).await?;
    check_unchanged(&manifest, &observed.manifest)?;
    // What was checked is what the transaction must still find.
    req.revision = Some(workspace.revision);
    let (core, session, key) = (Arc::clone(core), session.clone(), key.clone());
    to_the_end(async move { request_and_drive(core, session, key, req, workspace, manifest).await }).await
}

/// Whether anything new may start here and now.
fn gate(core: &Core) -> Result<(), Refusal> {
    core.backend()?;
    core.check_ready()?;
    core.check_identity()
}

async fn request_and_drive(
    core: Arc<Core>,
    session: SessionId,
    key: StepKey,
    req: StartCommand,
    workspace: Workspace,
    manifest: TreeManifest,
) -> Result<Run, Refusal> {
    let starting = Arc::clone(&core.starting).read_owned().await;
    let backend = core.backend()?.clone();
    let deadline = core.profile.deadline_ms.saturating_mul(1_000_000);
    let intent = RunIntent {
        run_id: RunId::fresh(),
        session_id: session,
        container_id: ContainerId::fresh(),
        exec_id: ExecId::fresh(),
        step_key: key,
        command: req.command.clone(),
        cwd: req.cwd.clone(),
        revision: workspace.revision,
        digest: workspace.digest.clone(),
        image: backend.bundle.pin.clone(),
        profile: core.profile.digest(),
        executor: backend.executor.name().to_owned(),
        engine: core.proof.get().map(|proof| proof.engine.clone()).unwrap_or_default(),
        boot_id: core.boot_id.clone(),
        deadline_ns: clock::boottime_ns()?.saturating_add(deadline),
    };
    let shared = Arc::clone(&core);
    let requested = core.ledger.request_run(intent, move |g| decide(g, &req, || gate(&shared))).await?;
    match requested {
        Requested::Original(run) => Ok(core.view(&run.intent.run_id).unwrap_or(run)),
        Requested::Fresh(run) => {
            let job = job(&core, &backend, &run.intent, &workspace, manifest);
            driver::spawn(&core, &backend, run.clone(), Begin::Launch(Box::new(job), starting));
            Ok(run)
        }
    }
}

fn job(
    core: &Core,
    backend: &super::core::Backend,
    intent: &RunIntent,
    workspace: &Workspace,
    manifest: TreeManifest,
) -> Job {
    Job {
        format: job::FORMAT,
        run_id: intent.run_id.clone(),
        container_id: intent.container_id.clone(),
        exec_id: intent.exec_id.clone(),
        boot_id: intent.boot_id.clone(),
        deadline_ns: intent.deadline_ns,
        entry: Entry::Command { text: intent.command.clone(), cwd: intent.cwd.clone() },
        profile: core.profile.clone(),
        bundle: backend.bundle.clone(),
        source: PathBuf::from(&workspace.root),
        manifest,
        output: core.state.output(&intent.run_id),
        probe: backend.probe.clone(),
    }
}

/// A key for a caller that gave none.
fn fresh_key() -> Result<StepKey, Refusal> {
    StepKey::parse(&format!("op-{}", uuid::Uuid::now_v7()))
        .map_err(|e| Refusal::new(Code::Internal, e.to_string(), "give a key of your own"))
}
