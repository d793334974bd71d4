//! Observation: what a published root holds now (WS.6, CMD.3).

use super::beneath::{self, is_ours};
use super::policy::{Limits, printable};
use super::refused::Refusals;
use super::walk::{self, Sink};
use crate::domain::digest::Digest;
use crate::domain::manifest::{Change, TreeManifest};
use crate::domain::refusal::{Code, Refusal};
use crate::domain::session::{Excluded, PathChange};
use rustix::io::Errno;
use std::convert::Infallible;
use std::path::{Path, PathBuf};

/// What a root holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The files that may be in a workspace; short of some when a total limit is passed.
    pub manifest: TreeManifest,
    /// Excluded names; they stay out of the manifest.
    pub excluded: Vec<Excluded>,
    /// What may not be in a workspace.
    pub refused: Refusals,
}

/// A root that cannot be observed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// It cannot be opened.
    #[error("the workspace root {} cannot be opened: {source}", path.display())]
    Root {
        /// The root.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The system failed, which says nothing about what the root holds.
    #[error("what {} holds cannot be told: {error}", path.display())]
    Fault {
        /// The root, or a path below it.
        path: PathBuf,
        /// The system's error.
        error: String,
    },
}

impl ObserveError {
    /// What an error of opening `path` is.
    pub(super) fn of(path: &Path, errno: Errno) -> Self {
        let (path, source) = (path.to_owned(), std::io::Error::from(errno));
        if is_ours(errno) {
            Self::Fault { path, error: source.to_string() }
        } else {
            Self::Root { path, source }
        }
    }
}

impl From<&ObserveError> for Refusal {
    fn from(error: &ObserveError) -> Self {
        let (code, hint) = match error {
            ObserveError::Root { .. } => (
                Code::WorkspaceChanged,
                "restore the directory, or end the session and import the project again",
            ),
            ObserveError::Fault { .. } => {
                (Code::Internal, "check the disk and the service's limit of open files, then try again")
            }
        };
        Self::new(code, error.to_string(), hint)
    }
}

impl Observed {
    /// True when the root is exactly the tree of `digest`: no change and nothing refused.
    pub fn is(&self, digest: &Digest) -> bool {
        self.refused.is_empty() && self.manifest.digest() == *digest
    }

    /// Paths that differ from the published tree. A published file that is now something refused, such
    /// as a symlink, is modified; refused paths that were not published are in `refused` alone.
    pub fn changes_since(&self, published: &TreeManifest) -> Vec<PathChange> {
        let refused = |path: &str| {
            let shown = printable(path.as_bytes());
            self.refused.listed().iter().any(|r| r.path == shown)
        };
        let judge = |(path, change): (_, Change)| match change {
            Change::Deleted if refused(crate::domain::relpath::RelPath::as_str(&path)) => {
                PathChange { path, change: Change::Modified }
            }
            _ => PathChange { path, change },
        };
        published.changes(&self.manifest).into_iter().map(judge).collect()
    }
}

/// Reads and hashes every file below `root`, by the same walk as an import.
///
/// # Errors
/// [`ObserveError`] when `root` itself is missing, no directory or a symlink, or when the system fails.
pub fn observe(root: &Path, limits: &Limits) -> Result<Observed, ObserveError> {
    let opened = beneath::revision(root).map_err(|errno| ObserveError::of(root, errno))?;
    let Ok(walked) = walk::walk(opened, limits, &mut ReadOnly);
    if let Some((path, error)) = walked.refused.fault() {
        return Err(ObserveError::Fault { path: root.join(path), error: error.to_owned() });
    }
    Ok(Observed { manifest: walked.manifest, excluded: walked.excluded, refused: walked.refused })
}

struct ReadOnly;

impl Sink for ReadOnly {
    type Error = Infallible;
    const READS_ON: bool = true;

    fn enter(&mut self, _name: &str) -> Result<(), Infallible> {
        Ok(())
    }

    fn file(&mut self, _name: &str, _executable: bool, _content: &[u8]) -> Result<(), Infallible> {
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
