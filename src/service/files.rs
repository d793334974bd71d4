//! The operation `salaam_files`: reading a published revision, and patching it into the next one.

use super::core::{Core, blocking};
use super::ports::WorkspacePort;
use super::publish::{self, Call};
use super::rules::{kept_workspace_of, workspace_of};
use crate::domain::change::Base;
use crate::domain::files::answer::{InspectAnswer, PatchAnswer, Patched};
use crate::domain::files::page::Page;
use crate::domain::files::request::{Inspect, Patch};
use crate::domain::files::{Answer, Request, View, list, path, read, search, shown};
use crate::domain::ids::{CallId, SessionId};
use crate::domain::manifest::{Change, TreeManifest};
use crate::domain::refusal::{Code, Refusal};
use crate::domain::relpath::RelPath;
use crate::domain::session::{Excluded, Session, Workspace};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Does what is asked. Only a patch keeps a receipt for its call id.
pub(super) async fn run(
    core: &Arc<Core>,
    id: &SessionId,
    call: Option<CallId>,
    request: Request,
) -> Result<Answer, Refusal> {
    let session = core.ledger.session(id).await?;
    let workspace = kept_workspace_of(&session)?.clone();
    let asked = match request {
        Request::Patch(asked) => return patch(core, &session, workspace, call, asked).await,
        asked => asked,
    };
    let tree = core.manifest(&workspace.id, workspace.revision).await?;
    let port = core.workspaces()?;
    blocking(move || look(port.as_ref(), &session, &workspace, &tree, asked)).await
}

/// The operations that only read.
fn look(
    port: &dyn WorkspacePort,
    session: &Session,
    workspace: &Workspace,
    tree: &TreeManifest,
    request: Request,
) -> Result<Answer, Refusal> {
    let view = View { revision: workspace.revision, tree };
    let below = request.path().map(str::to_owned);
    answer(port, session, workspace, view, request).map_err(|refusal| {
        match below.and_then(|path| left_out(session, &path)) {
            Some(excluded) if refusal.code == Code::NotFound => excluded,
            _ => refusal,
        }
    })
}

/// The refusal of a path that the import has left out, so that a real source folder with an excluded name
/// is not taken for one that never was (WS.1).
fn left_out(session: &Session, path: &str) -> Option<Refusal> {
    let above =
        |name: &str| path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let Excluded { path: name, reason } = session.excluded.iter().find(|one| above(&one.path))?;
    Some(Refusal::new(
        Code::NotFound,
        format!("'{}' was left out at the import: {reason}", shown(name)),
        "the operation inspect lists what was left out; nothing of it can be read or written",
    ))
}

fn answer(
    port: &dyn WorkspacePort,
    session: &Session,
    workspace: &Workspace,
    view: View<'_>,
    request: Request,
) -> Result<Answer, Refusal> {
    let root = Path::new(&workspace.root);
    Ok(match request {
        Request::Inspect(asked) => {
            inspect(port, session, workspace, view.tree, &asked).map(Answer::Inspect)?
        }
        Request::List(asked) => Answer::List(list::list(view, &asked)?),
        Request::Search(asked) => {
            Answer::Search(search::search(view, &asked, |files| port.read(root, files))?)
        }
        Request::Read(asked) => {
            let file = view.file(&path(&asked.path)?)?;
            let content = port.read(root, std::slice::from_ref(file))?.pop();
            let content = content.unwrap_or_else(|| Err(unread(&asked.path)))?;
            Answer::Read(read::read(view, file, content, &asked)?)
        }
        Request::Patch(_) => return Err(unread("a patch")),
    })
}

/// A port that answered for fewer files than it was asked for.
fn unread(what: &str) -> Refusal {
    Refusal::new(Code::Internal, format!("{what} could not be read"), "report this")
}

fn inspect(
    port: &dyn WorkspacePort,
    session: &Session,
    workspace: &Workspace,
    tree: &TreeManifest,
    asked: &Inspect,
) -> Result<InspectAnswer, Refusal> {
    let (excluded, next_cursor) =
        list::excluded(workspace.revision, &session.excluded, asked.cursor.as_deref())?;
    Ok(InspectAnswer {
        workspace_id: workspace.id.to_string(),
        revision: workspace.revision,
        digest: workspace.digest.to_string(),
        files: tree.files().len() as u64,
        bytes: tree.total_bytes(),
        empty_directories: tree.empty_dirs().len() as u64,
        limits: port.limits(),
        excluded,
        excluded_total: session.excluded.len() as u64,
        next_cursor,
    })
}

/// Answers what the call made before, or plans the patch and publishes what it makes.
async fn patch(
    core: &Arc<Core>,
    session: &Session,
    workspace: Workspace,
    call: Option<CallId>,
    asked: Patch,
) -> Result<Answer, Refusal> {
    let call = call.map(|id| Call { id, request: asked.digest() });
    // Before anything else: the call that made a revision must not find its own revision stale.
    if let Some(call) = &call
        && let Some(before) = publish::receipt(core, &session.id, call).await?
    {
        return patched(core, &asked, before.workspace).await;
    }
    workspace_of(session)?;
    let tree = core.ledger.manifest(&workspace.id, workspace.revision).await?;
    let (port, root) = (core.workspaces()?, PathBuf::from(&workspace.root));
    let base = Base { revision: workspace.revision, digest: workspace.digest };
    let (change, asked) = blocking(move || Ok((port.plan(&root, base, &tree, &asked)?, asked))).await?;
    let published = publish::publish(core, &session.id, change, call).await?;
    patched(core, &asked, published.workspace).await
}

/// Answers a patch that was published, now or before. It is told from the revision that it made, so that a
/// repeated call gets the same answer.
async fn patched(core: &Arc<Core>, asked: &Patch, made: Workspace) -> Result<Answer, Refusal> {
    let tree = core.ledger.manifest(&made.id, made.revision).await?;
    Ok(Answer::Patch(PatchAnswer {
        workspace_id: made.id.to_string(),
        revision: made.revision,
        digest: made.digest.to_string(),
        files: after(asked, &tree),
        files_total: asked.files.len() as u64,
    }))
}

/// The files that a patch named, as the tree that it made holds them, as far as an answer goes.
fn after(asked: &Patch, tree: &TreeManifest) -> Vec<Patched> {
    let most = u32::try_from(asked.files.len()).unwrap_or(u32::MAX).max(1);
    let mut page = Page::new(None, most, most);
    let files = asked.files.iter().map(|file| {
        let found = RelPath::parse(&file.path).ok().and_then(|path| tree.file(&path));
        let change = match (&file.expected_hash, found) {
            (_, None) => Change::Deleted,
            (None, Some(_)) => Change::Added,
            (Some(_), Some(_)) => Change::Modified,
        };
        Patched { path: file.path.clone(), change, hash: found.map(|file| file.content.to_string()) }
    });
    files.take_while(|file| page.takes(file)).collect()
}
