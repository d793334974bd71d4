//! The facade: every operation of the service, for the HTTP layer and for tests.

use super::types::{CancelReply, CreateSession, LogPart, StartCommand, Status, WorkspaceView};
use crate::domain::ids::{RunId, SessionId};
use crate::domain::refusal::{Code, Refusal};
use crate::domain::run::Run;
use crate::domain::session::Session;
use std::sync::Arc;
use tokio::sync::watch;

/// A started service; cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<()>,
}

fn not_built<T>(what: &str) -> Result<T, Refusal> {
    Err(Refusal::new(Code::NotBuilt, format!("{what} is not built yet"), "see the README for what is"))
}

impl Service {
    /// Makes a session; a coding session imports its project first.
    ///
    /// # Errors
    /// `import_refused`, `limit_exceeded` or `forbidden` when there is no coding root.
    pub async fn create_session(&self, _req: CreateSession) -> Result<Session, Refusal> {
        not_built("session create")
    }

    /// Answers one session.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn session(&self, _id: &SessionId) -> Result<Session, Refusal> {
        not_built("session inspect")
    }

    /// Lists all sessions, oldest first.
    ///
    /// # Errors
    /// `internal` when the ledger cannot be read.
    pub async fn sessions(&self) -> Result<Vec<Session>, Refusal> {
        not_built("session list")
    }

    /// Ends a session: nothing can be started in it, its workspace is kept.
    ///
    /// # Errors
    /// `not_found`; `busy` while a run is live.
    pub async fn end_session(&self, _id: &SessionId) -> Result<(), Refusal> {
        not_built("session end")
    }

    /// Deletes a session, its workspace, its runs and their output.
    ///
    /// # Errors
    /// `not_found`; `busy` while a run is live.
    pub async fn remove_session(&self, _id: &SessionId) -> Result<(), Refusal> {
        not_built("session rm")
    }

    /// Answers a session's workspace and how its directory differs from the published revision.
    ///
    /// # Errors
    /// `not_found`; `forbidden` for an ordinary session.
    pub async fn inspect_workspace(&self, _id: &SessionId) -> Result<WorkspaceView, Refusal> {
        not_built("workspace inspect")
    }

    /// Starts a command, or answers the original run of its step key. Returns once the intent is
    /// committed; [`Service::follow`] tells the rest.
    ///
    /// # Errors
    /// `conflict`, `stale_revision`, `workspace_changed`, `busy`, `not_ready`, `invalid`, `forbidden`.
    pub async fn start_command(&self, _id: &SessionId, _req: StartCommand) -> Result<Run, Refusal> {
        not_built("commands start")
    }

    /// Answers one run.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn run(&self, _session: &SessionId, _run: &RunId) -> Result<Run, Refusal> {
        not_built("commands inspect")
    }

    /// Lists the runs of a session, oldest first.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn runs(&self, _session: &SessionId) -> Result<Vec<Run>, Refusal> {
        not_built("commands list")
    }

    /// Follows a run: the current state at once, then each change. The sender is dropped when the run
    /// is settled ([`super::settled`]).
    ///
    /// # Errors
    /// `not_found`.
    pub async fn follow(&self, _session: &SessionId, _run: &RunId) -> Result<watch::Receiver<Run>, Refusal> {
        not_built("commands follow")
    }

    /// Reads stored output from `offset`, at most `limit` bytes and [`super::MAX_LOG_PART`].
    ///
    /// # Errors
    /// `not_found`; `internal` when the file cannot be read.
    pub async fn logs(
        &self,
        _session: &SessionId,
        _run: &RunId,
        _offset: u64,
        _limit: usize,
    ) -> Result<LogPart, Refusal> {
        not_built("commands logs")
    }

    /// Cancels a run; answers once it is settled.
    ///
    /// # Errors
    /// `not_found`; `internal` when the cancel could not be committed.
    pub async fn cancel(&self, _session: &SessionId, _run: &RunId) -> Result<CancelReply, Refusal> {
        not_built("commands cancel")
    }

    /// Settles a run whose backend or cleanup is uncertain.
    ///
    /// # Errors
    /// `not_built`.
    pub async fn reconcile(&self, _session: &SessionId, _run: &RunId) -> Result<Run, Refusal> {
        not_built("commands reconcile")
    }

    /// What the service says about itself; never blocks.
    pub fn status(&self) -> Status {
        let _ = &self.inner;
        Status {
            ready: false,
            reason: Some("not built yet".into()),
            executor: "none".into(),
            proof_digest: None,
            runs: 0,
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            image: None,
            started: String::new(),
        }
    }

    /// Stops admitting, cancels live runs if told to, flushes the ledger and closes it. Live runs that
    /// are not cancelled go on under their supervisors.
    ///
    /// # Errors
    /// `internal` when the ledger could not be closed cleanly, or a run could not be cancelled.
    pub async fn shutdown(&self, _cancel_runs: bool) -> Result<(), Refusal> {
        Ok(())
    }
}
