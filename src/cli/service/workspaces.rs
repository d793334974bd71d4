//! The workspace store as the service wants it.

use crate::domain::diff::Diff;
use crate::domain::ids::WorkspaceId;
use crate::domain::refusal::{Code, Refusal};
use crate::service::ports::{Imported, Observation, Published, WorkspacePort};
use crate::workspace::diff::{Revision, revisions};
use crate::workspace::observe::observe;
use crate::workspace::store::Store;
use std::path::Path;

/// Workspaces below a coding root.
pub(super) struct Workspaces {
    store: Store,
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
        Ok(Self { store })
    }
}

impl WorkspacePort for Workspaces {
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
            "remove it from the workspace's directory, or adopt your edits with `sal workspace refresh`",
        ))
    }

    fn remove(&self, id: &WorkspaceId) -> Result<(), Refusal> {
        self.store.remove_workspace(id).map(drop).map_err(|e| Refusal::from(&e))
    }

    fn diff(&self, old: &Published, new: &Published) -> Result<Diff, Refusal> {
        revisions(revision(old), revision(new)).map_err(|e| Refusal::from(&e))
    }
}

fn revision(published: &Published) -> Revision<'_> {
    let Published { root, elsewhere, manifest } = published;
    Revision { root, elsewhere: elsewhere.as_deref(), manifest }
}
