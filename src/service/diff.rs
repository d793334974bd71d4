//! What changed in a workspace since its import (WS.7).

use super::core::{Core, blocking};
use super::ports::Published;
use super::rules::kept_workspace_of;
use super::types::WorkspaceDiff;
use crate::domain::change::Base;
use crate::domain::diff::Content;
use crate::domain::ids::{SessionId, WorkspaceId};
use crate::domain::refusal::Refusal;

/// The revision of the import.
const IMPORT: u32 = 1;

/// Compares the import with the current revision, or with `revision`. Revisions are never rewritten in
/// the ledger, so an asker who names one gets the same answer again.
pub(super) async fn diff(
    core: &Core,
    id: &SessionId,
    revision: Option<u32>,
) -> Result<WorkspaceDiff, Refusal> {
    let session = core.ledger.session(id).await?;
    let workspace = kept_workspace_of(&session)?.clone();
    let port = core.workspaces()?;
    let (from, mut old) = published(core, &workspace.id, IMPORT).await?;
    let (to, mut new) = published(core, &workspace.id, revision.unwrap_or(workspace.revision)).await?;
    let (first, asked) = (port.clone(), (old.clone(), new.clone()));
    let mut diff = blocking(move || first.diff(&asked.0, &asked.1)).await?;
    if diff.files.iter().any(|file| file.content == Content::Lost) {
        // What an editor has overwritten in one revision may lie in another, or in the project: of the import,
        // and of a later revision whose patch was applied there.
        for number in IMPORT..=workspace.revision {
            old.elsewhere.push(core.ledger.root(&workspace.id, number).await?.into());
        }
        old.elsewhere.push(session.cwd.into());
        new.elsewhere = old.elsewhere.clone();
        diff = blocking(move || port.diff(&old, &new)).await?;
    }
    Ok(WorkspaceDiff { workspace: workspace.id, from, to, diff })
}

async fn published(core: &Core, id: &WorkspaceId, revision: u32) -> Result<(Base, Published), Refusal> {
    let manifest = core.ledger.manifest(id, revision).await?;
    let root = core.ledger.root(id, revision).await?.into();
    Ok((Base { revision, digest: manifest.digest() }, Published { root, elsewhere: vec![], manifest }))
}
