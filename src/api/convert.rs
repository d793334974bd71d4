//! Translates between wire types and the values of the domain and the service.

use super::wire;
use crate::domain::application::Blocked;
use crate::domain::diff::{FileDiff, Side};
use crate::domain::ids::StepKey;
use crate::domain::outcome::Outcome;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::relpath::RelPath;
use crate::domain::run::{Headroom, HistoryEntry, OutputSize, Run, RunEvent};
use crate::domain::session::{Excluded, PathChange, Session, Workspace};
use crate::service;
use std::path::PathBuf;

impl TryFrom<wire::CreateSession> for service::CreateSession {
    type Error = Refusal;

    fn try_from(asked: wire::CreateSession) -> Result<Self, Refusal> {
        let cwd = PathBuf::from(&asked.cwd);
        if !cwd.is_absolute() || asked.cwd.contains('\0') {
            return Err(invalid(
                format!("cwd '{}' is not an absolute path", asked.cwd),
                "give the whole path of the project directory",
            ));
        }
        Ok(Self { kind: asked.kind, cwd })
    }
}

impl TryFrom<wire::StartCommand> for service::StartCommand {
    type Error = Refusal;

    fn try_from(asked: wire::StartCommand) -> Result<Self, Refusal> {
        let step_key = asked.step_key.as_deref().map(StepKey::parse).transpose();
        let cwd = asked.cwd.unwrap_or_default();
        Ok(Self {
            step_key: step_key.map_err(|bad| invalid(bad.to_string(), "choose another step key"))?,
            cwd: RelPath::parse(&cwd)
                .map_err(|bad| invalid(format!("cwd '{cwd}': {bad}"), "name a directory of the workspace"))?,
            command: asked.command,
            revision: asked.revision,
        })
    }
}

impl From<Session> for wire::Session {
    fn from(session: Session) -> Self {
        Self {
            session_id: session.id.into(),
            kind: session.kind,
            cwd: session.cwd,
            workspace: session.workspace.map(Into::into),
            excluded: all(session.excluded),
            ended: session.ended,
        }
    }
}

impl From<Workspace> for wire::Workspace {
    fn from(workspace: Workspace) -> Self {
        let Workspace { id, revision, digest, root } = workspace;
        Self { id: id.into(), revision, digest: digest.into(), root }
    }
}

impl From<Excluded> for wire::Excluded {
    fn from(excluded: Excluded) -> Self {
        let Excluded { path, reason } = excluded;
        Self { path, reason }
    }
}

impl From<PathChange> for wire::PathChange {
    fn from(change: PathChange) -> Self {
        let PathChange { path, change } = change;
        Self { path: path.to_string(), change }
    }
}

impl From<Blocked> for wire::Blocked {
    fn from(blocked: Blocked) -> Self {
        let Blocked { intent, detail, kept } = blocked;
        Self { application: intent.id.into(), revision: intent.base.revision, kept, detail }
    }
}

impl From<service::WorkspaceView> for wire::WorkspaceView {
    fn from(view: service::WorkspaceView) -> Self {
        let Workspace { id, revision, digest, root } = view.workspace;
        Self {
            id: id.into(),
            revision,
            digest: digest.into(),
            observed_digest: view.observed_digest.into(),
            root,
            changes: all(view.changes),
            excluded: all(view.excluded),
            blocked: all(view.blocked),
        }
    }
}

impl From<service::WorkspaceDiff> for wire::WorkspaceDiff {
    fn from(found: service::WorkspaceDiff) -> Self {
        let files: Vec<wire::FileDiff> = all(found.diff.files);
        Self {
            id: found.workspace.into(),
            from_revision: found.from.revision,
            from_digest: found.from.digest.into(),
            to_revision: found.to.revision,
            to_digest: found.to.digest.into(),
            added_lines: files.iter().map(|file| file.added_lines).sum(),
            deleted_lines: files.iter().map(|file| file.deleted_lines).sum(),
            patch_bytes: found.diff.patch.len() as u64,
            files,
        }
    }
}

impl From<FileDiff> for wire::FileDiff {
    fn from(file: FileDiff) -> Self {
        Self {
            path: file.path.into(),
            change: file.change,
            content: file.content,
            old: file.old.map(Into::into),
            new: file.new.map(Into::into),
            added_lines: file.added_lines,
            deleted_lines: file.deleted_lines,
            in_patch: file.in_patch,
            patch_bytes: file.section.len() as u64,
        }
    }
}

impl From<Side> for wire::FileSide {
    fn from(side: Side) -> Self {
        Self { mode: side.git_mode().to_owned(), bytes: side.bytes }
    }
}

impl From<Run> for wire::Run {
    fn from(run: Run) -> Self {
        let intent = run.intent;
        Self {
            run_id: intent.run_id.into(),
            session_id: intent.session_id.into(),
            step_key: intent.step_key.into(),
            command: intent.command,
            cwd: intent.cwd.to_string(),
            revision: intent.revision,
            state: run.state,
            recovery_phase: run.recovery_phase,
            cancel_requested: run.cancel_requested,
            outcome: run.outcome.map(Into::into),
            output: run.output.into(),
            headroom: run.headroom.into(),
            cleanup: run.cleanup,
            image: wire::RunImage {
                manifest: intent.image.manifest.into(),
                config: intent.image.config.into(),
                index: intent.image.index.map(Into::into),
                diff_ids: intent.image.diff_ids.into_iter().map(Into::into).collect(),
            },
            executor: intent.executor,
        }
    }
}

impl From<HistoryEntry> for wire::HistoryEntry {
    fn from(entry: HistoryEntry) -> Self {
        let HistoryEntry { seq, at, event } = entry;
        let (event, detail) = match event {
            RunEvent::Requested => ("requested", String::new()),
            RunEvent::CreateAsked => ("create_asked", String::new()),
            RunEvent::Launched => ("launched", String::new()),
            RunEvent::CancelRequested => ("cancel_requested", String::new()),
            RunEvent::Ended { outcome } => ("ended", outcome.detail),
            RunEvent::Removed => ("removed", String::new()),
            RunEvent::RemovalUncertain { left } => {
                ("removal_uncertain", format!("left: {}", left.join(", ")))
            }
            RunEvent::Lost { detail } => ("lost", detail),
            RunEvent::CleanedUp => ("cleaned_up", String::new()),
        };
        Self { seq, at, event: event.to_owned(), detail }
    }
}

impl From<Outcome> for wire::Outcome {
    fn from(outcome: Outcome) -> Self {
        let Outcome { exit_code, signal, cause, detail, oom_kills, pids_limit_hits } = outcome;
        Self { exit_code, signal, cause, detail, oom_kills, pids_limit_hits }
    }
}

impl From<wire::Outcome> for Outcome {
    fn from(outcome: wire::Outcome) -> Self {
        let wire::Outcome { exit_code, signal, cause, detail, oom_kills, pids_limit_hits } = outcome;
        Self { exit_code, signal, cause, detail, oom_kills, pids_limit_hits }
    }
}

impl From<OutputSize> for wire::Output {
    fn from(size: OutputSize) -> Self {
        let OutputSize { stored_bytes, total_bytes, truncated } = size;
        Self { stored_bytes, total_bytes, truncated }
    }
}

impl From<Headroom> for wire::Headroom {
    fn from(headroom: Headroom) -> Self {
        let Headroom { memory_peak, pids_peak, cpu_ms, throttled_ms } = headroom;
        Self { memory_peak, pids_peak, cpu_ms, throttled_ms }
    }
}

impl From<service::CancelReply> for wire::Cancelled {
    fn from(reply: service::CancelReply) -> Self {
        Self { run: reply.run.into(), already_finished: reply.already_finished }
    }
}

impl From<service::Status> for wire::Status {
    fn from(status: service::Status) -> Self {
        Self {
            ready: status.ready,
            reason: status.reason,
            executor: status.executor,
            proof_digest: status.proof_digest.map(Into::into),
            runs: status.runs,
            pid: status.pid,
            version: status.version,
            image: status.image,
            started: status.started,
        }
    }
}

/// Translates a list.
pub(crate) fn all<T, W: From<T>>(values: Vec<T>) -> Vec<W> {
    values.into_iter().map(W::from).collect()
}

fn invalid(message: String, hint: &str) -> Refusal {
    Refusal::new(Code::Invalid, message, hint)
}
