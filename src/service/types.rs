//! What the facade takes and answers.

use crate::domain::application::Blocked;
use crate::domain::change::Base;
use crate::domain::diff::Diff;
use crate::domain::digest::Digest;
use crate::domain::ids::{StepKey, WorkspaceId};
use crate::domain::relpath::RelPath;
use crate::domain::run::{Cleanup, OutputSize, Run};
use crate::domain::session::{Excluded, PathChange, SessionKind, Workspace};
use std::path::PathBuf;
use std::time::Duration;

/// Most bytes that one read of the output answers.
pub const MAX_LOG_PART: usize = 64 * 1024;
/// Longest command text, in bytes.
pub const MAX_COMMAND: usize = 32 * 1024;

/// How long the service waits for others to do their part before it takes a run in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Graces {
    /// Past a run's deadline, for the supervisor's own enforcement.
    pub deadline: Duration,
    /// After the exit or a cancel, for the removal.
    pub removal: Duration,
    /// After a failed write, before the ledger is opened again; doubled at each vain attempt.
    pub reopen: Duration,
}

impl Default for Graces {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(5),
            removal: Duration::from_secs(10),
            reopen: Duration::from_secs(1),
        }
    }
}

/// A session to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateSession {
    /// Its kind.
    pub kind: SessionKind,
    /// The absolute project directory that a coding session is imported from.
    pub cwd: PathBuf,
}

/// A command to be started (CMD.1, CMD.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartCommand {
    /// The caller's key; `None` makes a fresh one.
    pub step_key: Option<StepKey>,
    /// The command text, at most [`MAX_COMMAND`] bytes and without NUL.
    pub command: String,
    /// Working directory below `/work`.
    pub cwd: RelPath,
    /// The revision that the caller has seen; `None` means the current one, or, with an existing key,
    /// whichever the original run captured.
    pub revision: Option<u32>,
}

/// A workspace, and how its directory differs from its published revision (WS.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceView {
    /// The published revision.
    pub workspace: Workspace,
    /// Digest of what the directory holds now.
    pub observed_digest: Digest,
    /// Paths that differ from the published revision.
    pub changes: Vec<PathChange>,
    /// What the import left out, and excluded names that lie in the directory now.
    pub excluded: Vec<Excluded>,
    /// Applications that a changed base blocked and whose directories are still kept.
    pub blocked: Vec<Blocked>,
}

/// What changed between two revisions of a workspace (WS.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceDiff {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// The initial import: always revision 1.
    pub from: Base,
    /// What it is compared with.
    pub to: Base,
    /// The differences.
    pub diff: Diff,
}

/// A part of a run's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// Offset of the first byte.
    pub offset: u64,
    /// The bytes as the command wrote them; empty past the stored end.
    pub bytes: Vec<u8>,
    /// Size of the whole output so far.
    pub output: OutputSize,
    /// True when no more bytes will ever be stored.
    pub ended: bool,
}

/// The answer to a cancel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelReply {
    /// The run, settled (see [`settled`]).
    pub run: Run,
    /// True when the command had ended by itself before the cancel could take hold.
    pub already_finished: bool,
}

/// What the service says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether new runs are granted.
    pub ready: bool,
    /// Why not.
    pub reason: Option<String>,
    /// `oci`, `docker`, `scripted` or `none`.
    pub executor: String,
    /// Digest of the start-up proof.
    pub proof_digest: Option<Digest>,
    /// Number of live runs.
    pub runs: u32,
    /// Process id of the service.
    pub pid: u32,
    /// Version of the program.
    pub version: String,
    /// Reference of the image that commands run in.
    pub image: Option<String>,
    /// Wall-clock time of the start, RFC 3339, for display only.
    pub started: String,
}

/// True when waiting for `run` longer is in vain: it is terminal, or its removal is uncertain, which only
/// `reconcile` or the next start looks into again.
pub fn settled(run: &Run) -> bool {
    run.state.is_terminal() || run.cleanup == Cleanup::Uncertain
}
