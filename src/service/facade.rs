//! The facade: every operation of the service, for the HTTP layer and for tests.

use super::core::{Core, blocking, to_the_end};
use super::driver::Live;
use super::publish::{self, Call, Published};
use super::rules::kept_workspace_of;
use super::types::{
    CancelReply, CreateSession, LogPart, MAX_LOG_PART, StartCommand, Status, WorkspaceDiff, WorkspaceView,
    settled,
};
use super::{diff, files, output, reconcile, refresh, sessions, start};
use crate::domain::application::Blocked;
use crate::domain::change::TreeChange;
use crate::domain::digest::Digest;
use crate::domain::files::{Answer, Request};
use crate::domain::ids::{CallId, RunId, SessionId};
use crate::domain::outcome::Cause;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::run::{HistoryEntry, OutputSize, Run};
use crate::domain::session::{PathChange, Session, Workspace};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{oneshot, watch};

/// A started service; cheap to clone.
#[derive(Clone)]
pub struct Service {
    core: Arc<Core>,
}

impl Service {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Makes a session; a coding session imports its project first.
    ///
    /// # Errors
    /// `import_refused`, `limit_exceeded` or `forbidden` when there is no coding root.
    pub async fn create_session(&self, req: CreateSession) -> Result<Session, Refusal> {
        self.core.readiness.check_open()?;
        let core = Arc::clone(&self.core);
        to_the_end(async move { sessions::create(&core, req).await }).await
    }

    /// Answers one session.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn session(&self, id: &SessionId) -> Result<Session, Refusal> {
        Ok(self.core.ledger.session(id).await?)
    }

    /// Lists all sessions, oldest first.
    ///
    /// # Errors
    /// `internal` when the ledger cannot be read.
    pub async fn sessions(&self) -> Result<Vec<Session>, Refusal> {
        Ok(self.core.ledger.sessions().await?)
    }

    /// Ends a session: nothing can be started in it, its workspace is kept.
    ///
    /// # Errors
    /// `not_found`; `busy` while a run is live or the workspace is changed; `not_ready` while a change that
    /// was cut off cannot be decided on.
    pub async fn end_session(&self, id: &SessionId) -> Result<(), Refusal> {
        let (core, id) = (Arc::clone(&self.core), id.clone());
        to_the_end(async move { sessions::end(&core, &id).await }).await
    }

    /// Deletes a session, its workspace, its runs and their output.
    ///
    /// # Errors
    /// `not_found`; `busy` while a run is live or the workspace is changed; `not_ready` while a change that
    /// was cut off cannot be decided on.
    pub async fn remove_session(&self, id: &SessionId) -> Result<(), Refusal> {
        let (core, id) = (Arc::clone(&self.core), id.clone());
        to_the_end(async move { sessions::remove(&core, &id).await }).await
    }

    /// Answers a session's workspace and how its directory differs from the published revision.
    ///
    /// # Errors
    /// `not_found`; `forbidden` for an ordinary session; `workspace_changed` naming what no revision may
    /// hold, and what is kept of blocked changes.
    pub async fn inspect_workspace(&self, id: &SessionId) -> Result<WorkspaceView, Refusal> {
        let session = self.core.ledger.session(id).await?;
        let workspace = kept_workspace_of(&session)?.clone();
        let published = self.core.ledger.manifest(&workspace.id, workspace.revision).await?;
        let mut blocked = self.core.ledger.blocked_applications(&workspace.id).await?;
        let (port, root) = (self.core.workspaces()?, PathBuf::from(&workspace.root));
        let (observed, blocked) = blocking(move || {
            // A person who has seen to it deletes the directory.
            blocked.retain(|one| PathBuf::from(&one.kept).exists());
            match port.observe(&root) {
                Ok(observed) => Ok((observed, blocked)),
                Err(refusal) => Err(with_kept(refusal, &blocked)),
            }
        })
        .await?;
        let changes = published.changes(&observed.manifest).into_iter();
        let mut excluded = session.excluded;
        for item in observed.excluded {
            if !excluded.iter().any(|known| known.path == item.path) {
                excluded.push(item);
            }
        }
        Ok(WorkspaceView {
            workspace,
            observed_digest: observed.manifest.digest(),
            changes: changes.map(|(path, change)| PathChange { path, change }).collect(),
            excluded,
            blocked,
        })
    }

    /// Does what `salaam_files` asks. A patch whose call id is known answers what it made then.
    ///
    /// # Errors
    /// `not_found`; `forbidden` for an ordinary session, and for a patch of an ended one; `invalid`,
    /// `stale_revision`, `workspace_changed`, `patch_refused`, `limit_exceeded`; `conflict` for a call id
    /// with other arguments.
    pub async fn files(
        &self,
        id: &SessionId,
        call: Option<CallId>,
        request: Request,
    ) -> Result<Answer, Refusal> {
        let (core, id) = (Arc::clone(&self.core), id.clone());
        to_the_end(async move { files::run(&core, &id, call, request).await }).await
    }

    /// Publishes `change` as the next revision of a session's workspace, or answers the receipt of its call.
    ///
    /// # Errors
    /// `conflict` for a call id with other arguments; `stale_revision`, `workspace_changed`,
    /// `limit_exceeded`, `busy`, `forbidden`; `not_ready` while the ledger takes no writes.
    pub async fn publish(
        &self,
        id: &SessionId,
        change: TreeChange,
        call: Option<Call>,
    ) -> Result<Published, Refusal> {
        publish::publish(&self.core, id, change, call).await
    }

    /// Answers what a call has published, if it has.
    ///
    /// # Errors
    /// `conflict` when its id was used with other arguments.
    pub async fn receipt(&self, id: &SessionId, call: &Call) -> Result<Option<Published>, Refusal> {
        publish::receipt(&self.core, id, call).await
    }

    /// Adopts hand edits of the current root as a new revision, if the root holds exactly what was
    /// reviewed; without edits, answers the workspace as it is.
    ///
    /// # Errors
    /// `stale_revision`; `workspace_changed` when the root holds something else, or what no revision may
    /// hold; `limit_exceeded`, `busy`, `forbidden`, `not_ready`.
    pub async fn refresh(
        &self,
        id: &SessionId,
        revision: u32,
        digest: &Digest,
    ) -> Result<Workspace, Refusal> {
        refresh::refresh(&self.core, id, revision, digest).await
    }

    /// Starts a command, or answers the original run of its step key. Returns once the intent is
    /// committed; [`Service::follow`] tells the rest.
    ///
    /// # Errors
    /// `conflict`, `stale_revision`, `workspace_changed`, `busy`, `not_ready`, `invalid`, `forbidden`.
    pub async fn start_command(&self, id: &SessionId, req: StartCommand) -> Result<Run, Refusal> {
        start::start(&self.core, id, req).await
    }

    /// Answers one run.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn run(&self, session: &SessionId, run: &RunId) -> Result<Run, Refusal> {
        let mut found = self.core.run(session, run).await?;
        if found.outcome.is_none() {
            found.output = self.output_so_far(run).await?;
        }
        Ok(found)
    }

    /// Lists the runs of a session, oldest first.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn runs(&self, session: &SessionId) -> Result<Vec<Run>, Refusal> {
        let runs = self.core.ledger.runs(session).await?;
        let live = runs.into_iter().map(|run| self.core.view(&run.intent.run_id).unwrap_or(run));
        Ok(live.collect())
    }

    /// Follows a run: the current state at once, then each change. The sender is dropped when the run
    /// is settled ([`super::settled`]).
    ///
    /// # Errors
    /// `not_found`.
    pub async fn follow(&self, session: &SessionId, run: &RunId) -> Result<watch::Receiver<Run>, Refusal> {
        let found = self.core.run(session, run).await?;
        let live = self.core.live().get(run).map(|live| live.watch.clone());
        // A settled run has no driver: its state at once, and no sender.
        Ok(live.unwrap_or_else(|| watch::channel(found).1))
    }

    /// Reads stored output from `offset`, at most `limit` bytes and [`super::MAX_LOG_PART`].
    ///
    /// # Errors
    /// `not_found`; `internal` when the file cannot be read.
    pub async fn logs(
        &self,
        session: &SessionId,
        run: &RunId,
        offset: u64,
        limit: usize,
    ) -> Result<LogPart, Refusal> {
        let found = self.core.run(session, run).await?;
        let ended = found.outcome.is_some();
        let output = if ended { found.output } else { self.output_so_far(run).await? };
        let (path, limit) = (self.core.state.output(run), limit.min(MAX_LOG_PART));
        let bytes = blocking(move || {
            output::read(&path, offset, limit, output.stored_bytes).map_err(|e| {
                Refusal::new(
                    Code::Internal,
                    format!("the output {} cannot be read: {e}", path.display()),
                    "check the state directory",
                )
            })
        })
        .await?;
        Ok(LogPart { offset, bytes, output, ended })
    }

    /// Cancels a run; answers once it is settled.
    ///
    /// # Errors
    /// `not_found`; `internal` when the cancel could not be committed.
    pub async fn cancel(&self, session: &SessionId, run: &RunId) -> Result<CancelReply, Refusal> {
        let found = self.core.run(session, run).await?;
        let order = self.core.live().get(run).map(|live| (live.orders.clone(), live.watch.clone()));
        let Some((orders, mut watch)) = order else {
            // Its driver may have ended since.
            let run = self.core.run(session, run).await.unwrap_or(found);
            return if settled(&run) {
                Ok(CancelReply { run, already_finished: true })
            } else {
                Err(unobserved(&run))
            };
        };
        let (reply, answer) = oneshot::channel();
        // A driver that is just ending takes no orders; its last state is in the watch.
        let taken = match orders.send(reply) {
            Ok(()) => match answer.await {
                Ok(taken) => taken?,
                Err(_) => false,
            },
            Err(_) => false,
        };
        let _ = watch.wait_for(settled).await;
        let run = watch.borrow().clone();
        if !settled(&run) {
            return Err(unobserved(&run));
        }
        let ours = |cause| matches!(cause, Cause::Cancelled | Cause::Interrupted | Cause::BackendLost);
        let by_itself = run.outcome.as_ref().is_some_and(|outcome| !ours(outcome.cause));
        Ok(CancelReply { run, already_finished: !taken || by_itself })
    }

    /// Answers the history of a run: every event in the order in which it was committed.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn history(&self, session: &SessionId, run: &RunId) -> Result<Vec<HistoryEntry>, Refusal> {
        self.core.run(session, run).await?;
        Ok(self.core.ledger.history(run).await?)
    }

    /// Settles a run whose backend or cleanup is uncertain, from evidence only (CMD.9): nothing of it is
    /// killed for that, and nothing is assumed. A settled run is answered as it is.
    ///
    /// # Errors
    /// `busy` while the run is observed; `conflict` under another executor, image or profile than the
    /// run's; `not_ready` while something of it lives or cannot be removed, naming it and the next step.
    pub async fn reconcile(&self, session: &SessionId, run: &RunId) -> Result<Run, Refusal> {
        let found = self.core.run(session, run).await?;
        let core = Arc::clone(&self.core);
        to_the_end(async move { reconcile::reconcile(&core, found).await }).await
    }

    /// What the service says about itself; never blocks.
    pub fn status(&self) -> Status {
        let core = &self.core;
        let reason = core.check_ready().err().map(|refusal| refusal.message);
        Status {
            ready: reason.is_none(),
            reason,
            executor: core.backend.as_ref().map_or("none", |backend| backend.executor.name()).to_owned(),
            proof_digest: core.proof.get().map(|proof| proof.digest.clone()),
            runs: u32::try_from(core.live().len()).unwrap_or(u32::MAX),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            image: core.backend.as_ref().map(|backend| backend.bundle.pin.reference.clone()),
            started: core.started.clone(),
        }
    }

    /// Number of ledger transactions with a change since the start, for measurements.
    pub fn commits(&self) -> u64 {
        self.core.ledger.commits()
    }

    /// Stops admitting, cancels live runs if told to, flushes the ledger and closes it. Live runs that
    /// are not cancelled go on under their supervisors.
    ///
    /// # Errors
    /// `internal` when the ledger could not be closed cleanly, or a run could not be cancelled.
    pub async fn shutdown(&self, cancel_runs: bool) -> Result<(), Refusal> {
        self.core.readiness.stopping();
        if let Some(mender) = self.core.mender.get() {
            mender.abort();
        }
        // Starts that were admitted before get their drivers first.
        drop(self.core.starting.write().await);
        let mut failed = Vec::new();
        if cancel_runs {
            let ids: Vec<_> =
                self.live(|id, live| (id.clone(), live.watch.borrow().intent.session_id.clone()));
            for (run, session) in ids {
                match self.cancel(&session, &run).await {
                    Ok(reply) if reply.run.state.is_terminal() => {}
                    _ => failed.push(run.to_string()),
                }
            }
        }
        self.live(|_, live| live.task.abort());
        let core = Arc::clone(&self.core);
        blocking(move || {
            core.ledger.close();
            core.state.release();
            Ok(())
        })
        .await?;
        if failed.is_empty() {
            Ok(())
        } else {
            Err(Refusal::new(
                Code::Internal,
                format!("not settled before the stop: {}", failed.join(", ")),
                "start the service again; it observes them from their records",
            ))
        }
    }

    /// Compares the initial import with the current revision, or with `revision` (WS.7).
    ///
    /// # Errors
    /// `not_found`; `forbidden` for an ordinary session; `workspace_changed` when a revision's directory
    /// cannot be opened. Files whose published bytes an editor has overwritten are named as lost.
    pub async fn diff(&self, id: &SessionId, revision: Option<u32>) -> Result<WorkspaceDiff, Refusal> {
        diff::diff(&self.core, id, revision).await
    }

    fn live<T>(&self, each: impl Fn(&RunId, &Live) -> T) -> Vec<T> {
        self.core.live().iter().map(|(id, live)| each(id, live)).collect()
    }

    async fn output_so_far(&self, run: &RunId) -> Result<OutputSize, Refusal> {
        let (path, most) = (self.core.state.output(run), self.core.profile.output_bytes);
        let stored_bytes = blocking(move || Ok(output::stored(&path, most))).await?;
        // At the bound more may have come; below it nothing was dropped.
        Ok(OutputSize { stored_bytes, total_bytes: stored_bytes, truncated: stored_bytes >= most })
    }
}

/// Tells with a refusal what is kept of blocked changes, of which the view would have told.
fn with_kept(mut refusal: Refusal, blocked: &[Blocked]) -> Refusal {
    for Blocked { intent, detail, kept } in blocked {
        refusal.message.push_str(&format!("\n{} was blocked: {detail}; it is kept at {kept}", intent.id));
    }
    refusal
}

fn unobserved(run: &Run) -> Refusal {
    Refusal::new(
        Code::NotReady,
        format!("the run {} is not settled and nobody observes it", run.intent.run_id),
        "`sal service status` says why; a restart of the service observes it again",
    )
}
