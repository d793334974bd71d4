//! Observation: what a published root holds now (WS.6, CMD.3).

use super::beneath;
use super::policy::{Limits, printable};
use super::refused::Refusals;
use super::walk::{self, Sink};
use crate::domain::digest::Digest;
use crate::domain::manifest::{Change, TreeManifest};
use crate::domain::refusal::{Code, Refusal};
use crate::domain::session::{Excluded, PathChange};
use rustix::io::Errno;
use std::convert::Infallible;
use std::os::fd::OwnedFd;
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
#[error("the workspace root {} cannot be opened: {source}", path.display())]
pub struct ObserveError {
    /// The root.
    pub path: PathBuf,
    /// The system's error.
    pub source: std::io::Error,
}

impl From<&ObserveError> for Refusal {
    fn from(error: &ObserveError) -> Self {
        let hint = "restore the directory, or end the session and import the project again";
        Self::new(Code::WorkspaceChanged, error.to_string(), hint)
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
/// [`ObserveError`] when `root` itself is missing, no directory or a symlink.
pub fn observe(root: &Path, limits: &Limits) -> Result<Observed, ObserveError> {
    let Ok(walked) = walk::walk(open(root)?, limits, &mut ReadOnly);
    Ok(Observed { manifest: walked.manifest, excluded: walked.excluded, refused: walked.refused })
}

/// Opens the directory of a revision.
pub(super) fn open(root: &Path) -> Result<OwnedFd, ObserveError> {
    let failed = |source| ObserveError { path: root.to_owned(), source };
    let parent = root.parent().ok_or_else(|| failed(Errno::INVAL.into()))?;
    let name = root.file_name().ok_or_else(|| failed(Errno::INVAL.into()))?;
    // The last component is ours and never a symlink; those above belong to the operator.
    let path = parent.canonicalize().map_err(failed)?.join(name);
    beneath::root(&path).map_err(|errno| failed(errno.into()))
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
