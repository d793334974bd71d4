//! Adopting hand edits of the current root as a new revision (WS.6).

use super::core::{Core, blocking};
use super::journal;
use super::publish::{self, Planned};
use super::rules::workspace_of;
use crate::domain::change::{Base, TreeChange};
use crate::domain::digest::Digest;
use crate::domain::ids::SessionId;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::session::Workspace;
use std::path::PathBuf;
use std::sync::Arc;

/// Publishes what the current root holds, if that is exactly the reviewed `digest` on the reviewed
/// `revision`; every file is copied from the root and checked while it is. A repeat answers what the first
/// has adopted.
pub(super) async fn refresh(
    core: &Arc<Core>,
    session: &SessionId,
    revision: u32,
    digest: &Digest,
) -> Result<Workspace, Refusal> {
    core.readiness.check_open()?;
    let found = core.ledger.session(session).await?;
    let workspace = workspace_of(&found)?;
    if journal::adopted(workspace, revision, digest) {
        return Ok(workspace.clone());
    }
    journal::check_current(workspace, revision)?;
    let (port, root) = (core.workspaces()?, PathBuf::from(&workspace.root));
    let observed = blocking(move || port.observe(&root)).await?.manifest;
    let now = observed.digest();
    if now != *digest {
        return Err(Refusal::new(
            Code::WorkspaceChanged,
            format!("{} holds {now} now, which is not the reviewed {digest}", workspace.root),
            format!("look at it again with `sal workspace inspect {session}`, and give the observed digest"),
        ));
    }
    if now == workspace.digest {
        return Ok(workspace.clone());
    }
    let base = Base { revision, digest: workspace.digest.clone() };
    let change = TreeChange { base, target: observed, written: Vec::new() };
    let planned = Planned { change, call: None, source: now };
    Ok(publish::apply(core, session, planned).await?.workspace)
}
