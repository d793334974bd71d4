//! All types of version 1 of the interface, with the names that scripts rely on.
//!
//! Requests refuse unknown fields, so that a misspelt option is never dropped; answers may gain
//! fields, so readers ignore those they do not know. The enumerations are the domain's own: their
//! names are part of the contract there too.

use crate::domain::diff::{Content, FileChange};
use crate::domain::manifest::Change;
use crate::domain::outcome::Cause;
use crate::domain::refusal::Code;
use crate::domain::run::{Cleanup, RunState};
use crate::domain::session::SessionKind;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Header of an answer with output: bytes kept.
pub const STORED: &str = "salaam-output-stored";
/// Header of an answer with output: bytes written.
pub const TOTAL: &str = "salaam-output-total";
/// Header of an answer with output: whether some were not kept.
pub const TRUNCATED: &str = "salaam-output-truncated";
/// Header of an answer with output: whether no more bytes will be stored.
pub const ENDED: &str = "salaam-output-ended";

/// Header of a tool call: the caller's id of it. The calls themselves are those of
/// [`crate::domain::files`].
pub const CALL_ID: &str = "salaam-call-id";
/// Header of an answer with a patch: changes that it only names.
pub const LEFT_OUT: &str = "salaam-diff-left-out";
/// Header of an answer with a patch: those of them whose published bytes are lost.
pub const LOST: &str = "salaam-diff-lost";

/// The one form of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong, and the next step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// The kind, for programs.
    pub code: Code,
    /// One sentence that names the thing and the limit.
    pub message: String,
    /// What to do next; may be empty.
    pub hint: String,
}

/// Asks for a new session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSession {
    /// What the session may do.
    pub kind: SessionKind,
    /// Absolute path of the project directory on the service's host.
    pub cwd: String,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// Its id.
    pub session_id: String,
    /// What it may do.
    pub kind: SessionKind,
    /// The project directory that it was made from.
    pub cwd: String,
    /// The workspace of a coding session.
    pub workspace: Option<Workspace>,
    /// What the import left out.
    pub excluded: Vec<Excluded>,
    /// True once it was ended: nothing can be started in it.
    pub ended: bool,
}

/// A workspace's current revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Workspace {
    /// Stable while revisions change.
    pub id: String,
    /// The current revision; the initial import is 1.
    pub revision: u32,
    /// Digest of that revision's manifest.
    pub digest: String,
    /// Its directory on the host.
    pub root: String,
}

/// A path that the import left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Excluded {
    /// The path as the project spells it.
    pub path: String,
    /// Why it was left out.
    pub reason: String,
}

/// All sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionList {
    /// The sessions, oldest first.
    pub sessions: Vec<Session>,
}

/// A workspace as it is on disk, beside what its revision says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceView {
    /// Stable while revisions change.
    pub id: String,
    /// The current revision.
    pub revision: u32,
    /// Digest of the current revision's manifest.
    pub digest: String,
    /// Digest of what lies in the directory now.
    pub observed_digest: String,
    /// The revision's directory on the host.
    pub root: String,
    /// How the directory differs from the revision.
    pub changes: Vec<PathChange>,
    /// What the import left out.
    pub excluded: Vec<Excluded>,
    /// What was written for revisions that were not published, and is kept.
    #[serde(default)]
    pub blocked: Vec<Blocked>,
}

/// A revision that was written and not published, because the directory it was made from had changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Blocked {
    /// Its application.
    pub application: String,
    /// The revision that it was made from.
    pub revision: u32,
    /// Where what was written is kept, for a person to look at and delete.
    pub kept: String,
    /// What had changed.
    pub detail: String,
}

/// Asks for the edits of the current root to be adopted as a new revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Refresh {
    /// The reviewed revision, which must be the current one.
    pub revision: u32,
    /// The reviewed observed digest, which must be what lies in the directory.
    pub digest: String,
}

/// One path that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathChange {
    /// The path below the root.
    pub path: String,
    /// What happened to it.
    pub change: Change,
}

/// Asks for a command to be run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartCommand {
    /// The text for the image's `/bin/sh -c`.
    pub command: String,
    /// Makes the start idempotent in its session; chosen by the service if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_key: Option<String>,
    /// Directory below `/work`; absent means `/work` itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The workspace revision that the command is meant for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
}

/// A run of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// Its id.
    pub run_id: String,
    /// The session it belongs to.
    pub session_id: String,
    /// The key that makes its start idempotent.
    pub step_key: String,
    /// The command text.
    pub command: String,
    /// Directory below `/work`; `.` is `/work` itself.
    pub cwd: String,
    /// The workspace revision it runs on.
    pub revision: u32,
    /// Where it is.
    pub state: RunState,
    /// The recovery phase it waits in, if any.
    pub recovery_phase: Option<String>,
    /// True once a cancel is committed.
    pub cancel_requested: bool,
    /// How it ended; null until that is known.
    pub outcome: Option<Outcome>,
    /// Its output so far.
    pub output: Output,
    /// How near the limits it came.
    pub headroom: Headroom,
    /// Whether its traces are gone.
    pub cleanup: Cleanup,
    /// The image it runs in.
    pub image: RunImage,
    /// `oci`, `docker` or `scripted`.
    pub executor: String,
}

impl Run {
    /// True when waiting longer is in vain: the run is at its end, or its cleanup is uncertain, which
    /// only `reconcile` or the next start of the service looks into again.
    pub fn is_settled(&self) -> bool {
        self.state.is_terminal() || self.cleanup == Cleanup::Uncertain
    }

    /// The exit code of a caller who waited: the command's own, 137 for deadline, cancelled and oom,
    /// 125 when the run or its cleanup is uncertain.
    pub fn process_exit_code(&self) -> u8 {
        match &self.outcome {
            Some(outcome) if self.cleanup != Cleanup::Uncertain => {
                crate::domain::outcome::Outcome::from(outcome.clone()).process_exit_code()
            }
            _ => 125,
        }
    }
}

/// A run with its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Inspected {
    /// The run.
    #[serde(flatten)]
    pub run: Run,
    /// Everything that was committed about it, in that order.
    pub history: Vec<HistoryEntry>,
}

/// One committed event of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntry {
    /// Position in the order of all events; this, and not the time, tells what came first.
    pub seq: u64,
    /// Wall-clock time of the commit, RFC 3339, for display only.
    pub at: String,
    /// `requested`, `create_asked`, `launched`, `cancel_requested`, `ended`, `removed`, `removal_uncertain`,
    /// `lost` or `cleaned_up`.
    pub event: String,
    /// One sentence for a person; empty when the event says it all.
    pub detail: String,
}

/// The image of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunImage {
    /// Digest of the platform manifest.
    pub manifest: String,
    /// Digest of the image configuration.
    pub config: String,
    /// Digest of the index through which the manifest was found, if there was one.
    pub index: Option<String>,
    /// Digests of the uncompressed layers, lowest first.
    pub diff_ids: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// The exit status, 128+n when signalled; null only if unknown.
    pub exit_code: Option<u8>,
    /// The signal that ended the main process.
    pub signal: Option<u8>,
    /// Why it ended.
    pub cause: Cause,
    /// One sentence for a person; empty when the cause says it all.
    pub detail: String,
    /// Processes killed for want of memory.
    pub oom_kills: u64,
    /// Forks refused by the process limit.
    pub pids_limit_hits: u64,
}

/// How much a command wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Output {
    /// Bytes kept, addressed by offset.
    pub stored_bytes: u64,
    /// Bytes written.
    pub total_bytes: u64,
    /// True when some were not kept.
    pub truncated: bool,
}

/// How near the limits a run came; null where the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Headroom {
    /// Peak memory in bytes.
    pub memory_peak: Option<u64>,
    /// Peak number of processes and threads.
    pub pids_peak: Option<u64>,
    /// CPU time in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Throttled time in milliseconds.
    pub throttled_ms: Option<u64>,
}

/// The runs of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunList {
    /// The runs, oldest first.
    pub runs: Vec<Run>,
}

/// The answer to a cancel: the run, and whether there was anything left to cancel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cancelled {
    /// The run after the cancel.
    #[serde(flatten)]
    pub run: Run,
    /// True when it had ended before.
    pub already_finished: bool,
}

/// The state of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Whether new commands are admitted.
    pub ready: bool,
    /// Why not.
    pub reason: Option<String>,
    /// `oci`, `docker`, `scripted` or `none`.
    pub executor: String,
    /// Digest of the startup proof.
    pub proof_digest: Option<String>,
    /// Number of live runs.
    pub runs: u32,
    /// Process id of the service, as it sees itself.
    pub pid: u32,
    /// Version of the service.
    pub version: String,
    /// The pinned image, such as `docker.io/library/node@sha256:…`.
    pub image: Option<String>,
    /// Wall-clock time of its start, RFC 3339, for display only.
    pub started: String,
}

/// Asks the service to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Shutdown {
    /// Cancel running commands first; otherwise their supervisors go on.
    #[serde(default)]
    pub cancel: bool,
}

/// A removed thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Removed {
    /// Its id.
    pub removed: String,
}

/// The service has accepted to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stopping {
    /// Always true.
    pub stopping: bool,
}

/// What changed in a workspace since its import, without the patch itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceDiff {
    /// The workspace.
    pub id: String,
    /// The revision that is compared from: 1, the import.
    pub from_revision: u32,
    /// Digest of that revision's manifest.
    pub from_digest: String,
    /// The revision that is compared to.
    pub to_revision: u32,
    /// Digest of that revision's manifest.
    pub to_digest: String,
    /// The files that differ, in the order of the patch.
    pub files: Vec<FileDiff>,
    /// Lines that the patch adds.
    pub added_lines: u64,
    /// Lines that the patch deletes.
    pub deleted_lines: u64,
    /// Length of the patch.
    pub patch_bytes: u64,
}

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileDiff {
    /// The path below the root.
    pub path: String,
    /// What happened to it.
    pub change: FileChange,
    /// What its content is, both sides taken together.
    pub content: Content,
    /// The file in the import; null when it was added.
    pub old: Option<FileSide>,
    /// The file in the later revision; null when it was deleted.
    pub new: Option<FileSide>,
    /// Lines that the patch adds to it.
    pub added_lines: u64,
    /// Lines that the patch deletes from it.
    pub deleted_lines: u64,
    /// False when the patch only names the change, in a comment: it is binary, or bytes are lost.
    pub in_patch: bool,
    /// Length of its section of the patch; the sections follow each other in the order of the files.
    pub patch_bytes: u64,
}

/// A file in one of two revisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileSide {
    /// Its mode as git knows it: `100644` or `100755`.
    pub mode: String,
    /// Its length.
    pub bytes: u64,
}
