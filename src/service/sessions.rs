//! Making, ending and removing sessions, with the directories that belong to them.

use super::core::{Core, blocking};
use super::settle::{self, Place};
use super::types::CreateSession;
use crate::domain::ids::{SessionId, WorkspaceId};
use crate::domain::refusal::{Code, Refusal};
use crate::domain::session::{Session, SessionKind};
use crate::ledger::{Import, Phase, Unfinished};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// Makes a session. The ids are committed before a directory bears them, so that whatever a crash
/// leaves is found and removed at the next start.
pub(super) async fn create(core: &Core, req: CreateSession) -> Result<Session, Refusal> {
    let cwd = req.cwd.display().to_string();
    let id = SessionId::fresh();
    if req.kind == SessionKind::Ordinary {
        core.ledger.begin_session(&id, req.kind, cwd, None).await?;
        return Ok(core.ledger.session(&id).await?);
    }
    if !req.cwd.is_absolute() {
        return Err(Refusal::new(
            Code::Invalid,
            format!("the project directory '{cwd}' is not an absolute path"),
            "give it from the root on",
        ));
    }
    let port = core.workspaces()?;
    let workspace = WorkspaceId::fresh();
    let below = (workspace.clone(), port.coding_root().display().to_string());
    let _entered = core.enter().await?;
    core.ledger.begin_session(&id, req.kind, cwd, Some(below)).await?;
    let imported = blocking(move || port.create(&workspace, &req.cwd)).await;
    match imported {
        Ok(imported) => {
            let root = imported.root.display().to_string();
            let import = Import { root, manifest: imported.manifest, excluded: imported.excluded };
            Ok(core.ledger.publish_import(&id, import).await?)
        }
        Err(refusal) => {
            core.ledger.drop_session(&id).await?;
            Err(refusal)
        }
    }
}

/// Ends a session.
pub(super) async fn end(core: &Arc<Core>, id: &SessionId) -> Result<(), Refusal> {
    let _entered = core.enter().await?;
    let _place = decide_first(core, id).await?;
    Ok(core.ledger.end_session(id).await?)
}

/// Removes a session: hidden first, then its files, then its rows. One that an error left half removed is
/// taken up where it was.
pub(super) async fn remove(core: &Arc<Core>, id: &SessionId) -> Result<(), Refusal> {
    let begun = core.ledger.unfinished_sessions().await?;
    let begun = begun.into_iter().find(|one| one.session == *id && one.phase == Phase::Removing);
    let unfinished = match begun {
        Some(begun) => begun,
        None => {
            let _entered = core.enter().await?;
            let _place = decide_first(core, id).await?;
            if core.ledger.session(id).await?.workspace.is_some() {
                // A refusal after the next step would leave it hidden, with its files.
                core.workspaces()?;
            }
            core.ledger.begin_removal(id).await?
        }
    };
    finish(core, unfinished).await
}

/// Decides on what a failure left undecided in the session's workspace, which would keep the session open.
/// `None` if there is nothing to decide on, or somebody is about it.
async fn decide_first(core: &Arc<Core>, id: &SessionId) -> Result<Option<Place>, Refusal> {
    let Some(workspace) = core.ledger.session(id).await?.workspace else { return Ok(None) };
    let Some(place) = Place::take(core, &workspace.id) else { return Ok(None) };
    settle::settle_workspace(core, &place).await?;
    Ok(Some(place))
}

/// Refuses a coding root other than that of the ledger's workspaces: recovery would look for what was
/// published where it is not, and take it for lost.
pub(super) async fn check_coding_root(core: &Core) -> Result<(), Refusal> {
    let Some(port) = &core.workspaces else { return Ok(()) };
    match core.ledger.coding_root().await? {
        Some(bound) if Path::new(&bound) != port.coding_root() => Err(Refusal::new(
            Code::Conflict,
            format!(
                "the workspaces of {} lie below the coding root {bound}, and the service was started with {}",
                core.state.root().display(),
                port.coding_root().display()
            ),
            format!(
                "start it with --coding-root {bound} (a directory that was moved must be moved back), or with \
                 another --state"
            ),
        )),
        _ => Ok(()),
    }
}

/// Finishes what a stop left half made or half removed; doing it twice is no error.
pub(super) async fn finish_unfinished(core: &Core) -> Result<(), Refusal> {
    for unfinished in core.ledger.unfinished_sessions().await? {
        // Without a coding root their directories are out of reach; a later start finds them again.
        if unfinished.workspace.is_none() || core.workspaces.is_some() {
            tracing::info!(session = %unfinished.session, phase = ?unfinished.phase, "finishing");
            finish(core, unfinished).await?;
        }
    }
    Ok(())
}

async fn finish(core: &Core, unfinished: Unfinished) -> Result<(), Refusal> {
    let Unfinished { session, workspace, phase } = unfinished;
    let runs = if phase == Phase::Removing { core.ledger.run_ids(&session).await? } else { Vec::new() };
    let outputs: Vec<_> = runs.iter().map(|run| core.state.output(run)).collect();
    let target = workspace.map(|id| core.workspaces().map(|port| (port, id))).transpose()?;
    blocking(move || {
        if let Some((port, id)) = target {
            port.remove(&id)?;
        }
        for path in outputs {
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(Refusal::new(
                        Code::Internal,
                        format!("the output {} cannot be deleted: {e}", path.display()),
                        "check the state directory, then repeat",
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    })
    .await?;
    Ok(core.ledger.drop_session(&session).await?)
}
