//! Sessions and workspaces as values.

use super::digest::Digest;
use super::ids::{SessionId, WorkspaceId};
use super::manifest::Change;
use super::relpath::RelPath;
use serde::{Deserialize, Serialize};

/// What a session may do (SES.1). Only `Coding` has a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// Conversation only.
    Ordinary,
    /// Has a workspace, file tools and commands.
    Coding,
}

/// A path that the import left out, and why (WS.1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Excluded {
    /// The path in the project, as it is spelled there.
    pub path: String,
    /// The reason, such as `version control metadata`.
    pub reason: String,
}

/// A workspace's current published revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// Stable id.
    pub id: WorkspaceId,
    /// Current revision; the initial import is 1.
    pub revision: u32,
    /// Manifest digest of that revision.
    pub digest: Digest,
    /// Its directory on the host.
    pub root: String,
}

/// A session as the ledger holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// Its kind.
    pub kind: SessionKind,
    /// The project directory it was imported from; empty for an ordinary one.
    pub cwd: String,
    /// Present for a coding session.
    pub workspace: Option<Workspace>,
    /// What the import left out.
    pub excluded: Vec<Excluded>,
    /// True once it was ended: nothing can be started in it.
    pub ended: bool,
}

/// One path that differs on disk from the published revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathChange {
    /// Which path.
    pub path: RelPath,
    /// What happened.
    pub change: Change,
}
