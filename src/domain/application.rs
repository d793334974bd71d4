//! An application as a value: the journal's record of one intended publication (FT.4).
//!
//! ```text
//!  intended ──renamed and recorded──▶ published
//!     ├──nothing whole was written──▶ failed
//!     └──the base's directory is no longer what it was──▶ blocked (both directories are kept)
//! ```

use super::digest::Digest;
use super::ids::{ApplicationId, CallId, SessionId, WorkspaceId};
use super::manifest::TreeManifest;
use serde::{Deserialize, Serialize};

/// A revision's place, beside its number and digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// The revision.
    pub revision: u32,
    /// Digest of its manifest.
    pub digest: Digest,
    /// Its directory on the host.
    pub root: String,
}

/// The tool call that a publication answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its id; a repeat is answered from the receipt.
    pub id: CallId,
    /// Digest of its arguments; the same id with another one is a conflict.
    pub request: Digest,
}

/// What is intended, written once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Names the application, and what is staged for it.
    pub id: ApplicationId,
    /// In which session.
    pub session_id: SessionId,
    /// Of which workspace.
    pub workspace_id: WorkspaceId,
    /// For which call; `None` for a refresh or an operator.
    pub call: Option<Call>,
    /// The current revision.
    pub base: Root,
    /// What the base's directory must hold until the end: its own digest for a patch, the reviewed one
    /// for a refresh.
    pub source: Digest,
    /// The revision to be.
    pub target: Root,
}

/// An intended application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// What is intended.
    pub intent: Intent,
    /// What the new revision holds, whole.
    pub manifest: TreeManifest,
}

/// Where an application is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its intent is committed; recovery decides on it if nobody follows it.
    Intended,
    /// Its target is the workspace's revision.
    Published,
    /// Nothing of it is left; its call id is free again.
    Failed,
    /// The base changed; what was staged is kept for a person, and never published.
    Blocked,
}

/// Something committed about an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The intent.
    Intended,
    /// Root, revision and digest are those of the target.
    Published,
    /// Why it failed.
    Failed {
        /// One sentence.
        detail: String,
    },
    /// Why it is blocked.
    Blocked {
        /// One sentence.
        detail: String,
        /// The directory that is kept.
        kept: String,
    },
}

/// A blocked application, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// What was intended.
    pub intent: Intent,
    /// Why it was not published.
    pub detail: String,
    /// Where what was written aside is kept.
    pub kept: String,
}

/// What a directory of an application holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is none.
    Absent,
    /// A tree that may be a revision, its modes final.
    Tree(TreeManifest),
    /// Something that may not be one, as a sentence.
    Unfit(String),
}

/// Where what was written for an application is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Under the application's own name.
    pub staged: Found,
    /// Under the name of the revision.
    pub target: Found,
}
