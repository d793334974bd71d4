//! What the service needs from its neighbours, as narrow traits; the assembly in `cli` wires the
//! real ones.

use crate::domain::application::{Intent, Survey};
use crate::domain::change::{Base, TreeChange};
use crate::domain::diff::Diff;
use crate::domain::digest::Digest;
use crate::domain::files::FileContent;
use crate::domain::files::answer::FileLimits;
use crate::domain::files::request::Patch;
use crate::domain::ids::WorkspaceId;
use crate::domain::manifest::{FileEntry, TreeManifest};
use crate::domain::refusal::Refusal;
use crate::domain::session::Excluded;
use crate::exec::Fut;
use std::path::{Path, PathBuf};

/// A freshly imported workspace: revision 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Absolute directory of the revision on the host.
    pub root: PathBuf,
    /// What it holds.
    pub manifest: TreeManifest,
    /// What was left out.
    pub excluded: Vec<Excluded>,
}

/// What a revision's directory holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Its files and empty directories.
    pub manifest: TreeManifest,
    /// Excluded names that lie in it; they are no part of the manifest.
    pub excluded: Vec<Excluded>,
}

/// A published revision: where it lies, and what it held when it was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its directory on the host.
    pub root: PathBuf,
    /// Where bytes of it may lie that an editor has overwritten there: other revisions and, for the import,
    /// the project.
    pub elsewhere: Vec<PathBuf>,
    /// Its files and empty directories.
    pub manifest: TreeManifest,
}

/// Workspaces on disk. All calls block, so the service makes them off its runtime threads.
pub trait WorkspacePort: Send + Sync + 'static {
    /// The canonical directory below which every workspace lies. A ledger is bound to one.
    fn coding_root(&self) -> &Path;

    /// Imports `project` as revision 1 of `id`; a refusal leaves nothing behind.
    ///
    /// # Errors
    /// The refusal of WS.1–3 that applies.
    fn create(&self, id: &WorkspaceId, project: &Path) -> Result<Imported, Refusal>;

    /// Reads what `root` holds now.
    ///
    /// # Errors
    /// `workspace_changed` naming what no revision may hold; any other code when that cannot be told, as
    /// when the disk fails or the process has no descriptor left.
    fn observe(&self, root: &Path) -> Result<Observation, Refusal>;

    /// Reads `files` of the revision in `root`.
    ///
    /// # Errors
    /// `workspace_changed` when `root` itself cannot be opened.
    fn read(&self, root: &Path, files: &[FileEntry]) -> Result<Vec<FileContent>, Refusal>;

    /// Plans a patch of the revision `base`, which holds `tree` in `root`. Nothing is written.
    ///
    /// # Errors
    /// The refusal of FT.2 or WS.1–3 that applies.
    fn plan(
        &self,
        root: &Path,
        base: Base,
        tree: &TreeManifest,
        patch: &Patch,
    ) -> Result<TreeChange, Refusal>;

    /// What no revision may exceed.
    fn limits(&self) -> FileLimits;

    /// Deletes every revision of `id`; one that is absent is no error.
    ///
    /// # Errors
    /// A refusal that names what could not be deleted.
    fn remove(&self, id: &WorkspaceId) -> Result<(), Refusal>;

    /// Compares two published revisions, as they were published.
    ///
    /// # Errors
    /// `workspace_changed` when a root cannot be opened; files whose published bytes are no longer there are
    /// named in the diff.
    fn diff(&self, old: &Published, new: &Published) -> Result<Diff, Refusal>;

    /// What publishes further revisions; `None` where there is only the import.
    fn revisions(&self) -> Option<&dyn RevisionPort> {
        None
    }
}

/// The directories of applications (FT.4). Each step may be done again after a crash, and none touches a
/// published revision. All calls block.
pub trait RevisionPort {
    /// Gives the directory of the revision to be, if `target` may be one and there is room for it (WS.3).
    ///
    /// # Errors
    /// A refusal that names the limit and the figure, or the paths.
    fn room(&self, id: &WorkspaceId, revision: u32, target: &TreeManifest) -> Result<PathBuf, Refusal>;

    /// Writes the target of `change` aside; what the base has already is copied from its directory and
    /// checked while it is.
    ///
    /// # Errors
    /// `workspace_changed` naming paths of the base, or what could not be written; what was written stays
    /// until [`RevisionPort::discard`].
    fn stage(&self, intent: &Intent, change: &TreeChange) -> Result<(), Refusal>;

    /// Makes what was written aside durable.
    ///
    /// # Errors
    /// What could not be synced.
    fn sync(&self, intent: &Intent) -> Result<(), Refusal>;

    /// Renames what was written aside to the revision's directory, durably; if that is done already, only
    /// its durability is made sure.
    ///
    /// # Errors
    /// The name is taken, or the disk failed.
    fn publish(&self, intent: &Intent) -> Result<(), Refusal>;

    /// Puts what was written aside, and could not be synced, where [`RevisionPort::survey`] finds nothing of
    /// it and only [`RevisionPort::discard`] does.
    ///
    /// # Errors
    /// What could not be moved.
    fn condemn(&self, intent: &Intent) -> Result<(), Refusal>;

    /// Looks where what was written is.
    ///
    /// # Errors
    /// Why that cannot be told.
    fn survey(&self, intent: &Intent) -> Result<Survey, Refusal>;

    /// Removes what was written aside; there may be nothing.
    ///
    /// # Errors
    /// What could not be removed.
    fn discard(&self, intent: &Intent) -> Result<(), Refusal>;

    /// Sees that what was written lies out of the way of other revisions, and gives its directory.
    ///
    /// # Errors
    /// What could not be moved.
    fn keep(&self, intent: &Intent) -> Result<PathBuf, Refusal>;
}

/// What a passed proof establishes (PRF.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofSummary {
    /// Digest of `executor-proof.json`.
    pub digest: Digest,
    /// Kernel and engine identity, stored with each run.
    pub engine: String,
}

/// Runs the start-up proof and stores its report.
pub trait Prover: Send + Sync {
    /// Proves every control under the command profile.
    ///
    /// # Errors
    /// `proof_failed` naming the control, expected and observed, or the host's refusal.
    fn prove(&self) -> Fut<'_, Result<ProofSummary, Refusal>>;
}
