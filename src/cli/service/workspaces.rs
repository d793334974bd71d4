//! The workspace store as the service wants it.

use crate::domain::application::{Intent, Survey};
use crate::domain::change::{Base, TreeChange};
use crate::domain::diff::Diff;
use crate::domain::files::FileContent;
use crate::domain::files::answer::FileLimits;
use crate::domain::files::request::Patch;
use crate::domain::ids::WorkspaceId;
use crate::domain::manifest::{FileEntry, TreeManifest};
use crate::domain::refusal::{Code, Refusal};
use crate::service::ports::{Imported, Observation, Published, RevisionPort, WorkspacePort};
use crate::workspace::diff::{Revision, revisions};
use crate::workspace::observe::observe;
use crate::workspace::patch;
use crate::workspace::published;
use crate::workspace::remembered::Remembered;
use crate::workspace::store::Store;
use std::path::{Path, PathBuf};

/// How many of the largest revisions are kept in memory, 16 MiB: about as many as are searched by turns.
const REMEMBERED: u64 = 4;

/// Workspaces below a coding root.
pub(super) struct Workspaces {
    store: Store,
    /// What was read of published revisions.
    remembered: Remembered,
}

impl Workspaces {
    /// Opens the coding root (SVC.2) and removes what dead imports left in it.
    ///
    /// # Errors
    /// `unsafe_path` naming the root, or what could not be removed.
    pub(super) fn open(root: &Path) -> Result<Self, Refusal> {
        let store = Store::open(root).map_err(|e| Refusal::from(&e))?;
        if let Some(warning) = store.coding_root().warning() {
            tracing::warn!("{warning}");
        }
        store.sweep_staging().map_err(|e| Refusal::from(&e))?;
        let remembered = Remembered::new(REMEMBERED * store.limits().total_bytes);
        Ok(Self { store, remembered })
    }
}

impl WorkspacePort for Workspaces {
    fn coding_root(&self) -> &Path {
        self.store.coding_root().path()
    }

    fn create(&self, id: &WorkspaceId, project: &Path) -> Result<Imported, Refusal> {
        let made = self.store.create_workspace(id, project).map_err(|e| Refusal::from(&e))?;
        Ok(Imported { root: made.root, manifest: made.imported.manifest, excluded: made.imported.excluded })
    }

    fn observe(&self, root: &Path) -> Result<Observation, Refusal> {
        let seen = observe(root, self.store.limits()).map_err(|e| Refusal::from(&e))?;
        if seen.refused.is_empty() {
            return Ok(Observation { manifest: seen.manifest, excluded: seen.excluded });
        }
        Err(Refusal::new(
            Code::WorkspaceChanged,
            format!("the workspace holds what no revision may hold: {}", seen.refused),
            "change the paths as listed; then adopt your edits with `sal workspace refresh`, or undo them",
        ))
    }

    fn read(&self, root: &Path, files: &[FileEntry]) -> Result<Vec<FileContent>, Refusal> {
        self.remembered.read(root, files).map_err(|e| Refusal::from(&e))
    }

    fn plan(
        &self,
        root: &Path,
        base: Base,
        tree: &TreeManifest,
        patch: &Patch,
    ) -> Result<TreeChange, Refusal> {
        let read = |file: &FileEntry| published::read_one(root, file);
        patch::plan(&patch::Published { base, tree, read }, patch, self.store.limits())
    }

    fn limits(&self) -> FileLimits {
        self.store.limits().into()
    }

    fn remove(&self, id: &WorkspaceId) -> Result<(), Refusal> {
        self.store.remove_workspace(id).map(drop).map_err(|e| Refusal::from(&e))
    }

    fn diff(&self, old: &Published, new: &Published) -> Result<Diff, Refusal> {
        revisions(revision(old), revision(new)).map_err(|e| Refusal::from(&e))
    }

    fn revisions(&self) -> Option<&dyn RevisionPort> {
        Some(self)
    }
}

impl RevisionPort for Workspaces {
    fn room(&self, id: &WorkspaceId, revision: u32, target: &TreeManifest) -> Result<PathBuf, Refusal> {
        self.store.room(id, revision, target).map_err(|e| Refusal::from(&e))
    }

    fn stage(&self, intent: &Intent, change: &TreeChange) -> Result<(), Refusal> {
        self.store.write_aside(intent, change).map_err(|e| Refusal::from(&e))
    }

    fn sync(&self, intent: &Intent) -> Result<(), Refusal> {
        self.store.sync_aside(intent).map_err(|e| Refusal::from(&e))
    }

    fn publish(&self, intent: &Intent) -> Result<(), Refusal> {
        self.store.publish_aside(intent).map_err(|e| Refusal::from(&e))
    }

    fn condemn(&self, intent: &Intent) -> Result<(), Refusal> {
        self.store.condemn_aside(intent).map_err(|e| Refusal::from(&e))
    }

    fn survey(&self, intent: &Intent) -> Result<Survey, Refusal> {
        self.store.survey(intent).map_err(|e| Refusal::from(&e))
    }

    fn discard(&self, intent: &Intent) -> Result<(), Refusal> {
        self.store.discard_aside(intent).map_err(|e| Refusal::from(&e))
    }

    fn keep(&self, intent: &Intent) -> Result<PathBuf, Refusal> {
        self.store.keep_aside(intent).map_err(|e| Refusal::from(&e))
    }
}

fn revision(published: &Published) -> Revision<'_> {
    let Published { root, elsewhere, manifest } = published;
    Revision { root, elsewhere, manifest }
}
