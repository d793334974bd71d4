//! Carries out the plan for applications that nobody follows: at a start, after the ledger was opened
//! again, and before the next application of the same workspace (FT.4, FT.5).
//!
//! Idempotent, and may itself be killed anywhere: the row stays intended until the last step.

use super::core::{Core, blocking};
use super::journal::{Step, plan};
use super::ports::{RevisionPort, WorkspacePort};
use crate::domain::application::{Application, Found, Intent};
use crate::domain::ids::WorkspaceId;
use crate::domain::manifest::TreeManifest;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::session::Workspace;
use crate::fault::{self, Side};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What became of an application.
pub(super) enum Settled {
    /// It is the workspace's revision.
    Published(Workspace),
    /// It is not, and never will be; the refusal says why.
    Refused(Refusal),
}

/// The one place of a workspace for who follows its application, or decides on one that nobody follows.
pub(super) struct Place {
    core: Arc<Core>,
    workspace: WorkspaceId,
}

impl Place {
    /// Takes the place; `None` while somebody has it.
    pub(super) fn take(core: &Arc<Core>, workspace: &WorkspaceId) -> Option<Self> {
        let free = core.applying().insert(workspace.clone());
        free.then(|| Self { core: Arc::clone(core), workspace: workspace.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.core.applying().remove(&self.workspace);
    }
}

/// Decides on every application that is not decided and that nobody follows. One that an error keeps open
/// bars further ones in its workspace alone; answers how many of them a later attempt may decide on.
pub(super) async fn settle_all(core: &Arc<Core>) -> Result<usize, Refusal> {
    let mut open = 0;
    for application in core.ledger.intended_applications().await? {
        if let Err(refusal) = reach(core, &application.intent) {
            tracing::warn!(application = %application.intent.id, %refusal, "it stays undecided");
            continue;
        }
        let Some(place) = Place::take(core, &application.intent.workspace_id) else {
            // Whoever has it may be about to give up.
            open += 1;
            continue;
        };
        match settle_workspace(core, &place).await {
            Ok(()) => {}
            Err(refusal) if core.ledger.latched().is_some() => return Err(refusal),
            Err(refusal) => {
                tracing::error!(%refusal, "it is tried again");
                open += 1;
            }
        }
    }
    Ok(open)
}

/// Decides on what is undecided in the workspace of `place`. It is read only now: who had the place before
/// may have decided on it.
pub(super) async fn settle_workspace(core: &Core, place: &Place) -> Result<(), Refusal> {
    for application in core.ledger.intended_applications().await? {
        if application.intent.workspace_id == place.workspace {
            let id = application.intent.id.clone();
            let settled = settle(core, application).await.map_err(|refusal| {
                let message = format!("the application {id} is not decided yet: {}", refusal.message);
                Refusal::new(Code::NotReady, message, refusal.hint)
            });
            match settled? {
                Settled::Published(workspace) => {
                    tracing::info!(application = %id, revision = workspace.revision, "published");
                }
                Settled::Refused(refusal) => tracing::info!(application = %id, %refusal, "not published"),
            }
        }
    }
    Ok(())
}

/// Decides on one application, whose place the caller has.
pub(super) async fn settle(core: &Core, application: Application) -> Result<Settled, Refusal> {
    let source = source(core, &application).await?;
    let (port, looked) = (reach(core, &application.intent)?, application.clone());
    let step = blocking(move || {
        let survey = revisions(&port)?.survey(&looked.intent)?;
        let base = look(&*port, Path::new(&looked.intent.base.root))?;
        Ok(plan(&looked, &source, &survey, &base))
    })
    .await?;
    match step {
        Step::Publish => {
            on_disk(core, &application, |port, application| {
                // Whole in memory is not yet whole on disk.
                if port.survey(&application.intent)?.staged != Found::Absent {
                    durably(port, application, || port.sync(&application.intent))?;
                }
                at("settle.rename", application, || port.publish(&application.intent))
            })
            .await?;
            Ok(Settled::Published(core.ledger.publish_application(&application.intent.id).await?))
        }
        Step::Fail(reason) => {
            fail(core, &application, &reason).await?;
            Ok(Settled::Refused(failed(&reason)))
        }
        Step::Block(reason) => Ok(Settled::Refused(block(core, &application, reason).await?)),
    }
}

/// Removes what was written, then records the failure: until then a crash finds it undecided.
pub(super) async fn fail(core: &Core, application: &Application, reason: &str) -> Result<(), Refusal> {
    on_disk(core, application, |port, application| {
        at("discard", application, || port.discard(&application.intent))
    })
    .await?;
    Ok(core.ledger.fail_application(&application.intent.id, reason.to_owned()).await?)
}

/// Keeps what was written and records the block; answers the refusal that names both directories.
pub(super) async fn block(
    core: &Core,
    application: &Application,
    reason: String,
) -> Result<Refusal, Refusal> {
    let kept = on_disk(core, application, |port, application| {
        at("keep", application, || port.keep(&application.intent))
    })
    .await?
    .display()
    .to_string();
    let refusal = Refusal::new(
        Code::WorkspaceChanged,
        format!("the revision was not published: {reason}; what was written is kept at {kept}"),
        "adopt the edits with `sal workspace refresh` or undo them, then change it again; delete the kept \
         directory when it is of no use",
    );
    core.ledger.block_application(&application.intent.id, reason, kept).await?;
    Ok(refusal)
}

fn failed(reason: &str) -> Refusal {
    Refusal::new(
        Code::Internal,
        format!("the revision was not published: {reason}"),
        "the workspace is as it was; repeat the change",
    )
}

/// What the base's directory must hold, path by path.
pub(super) async fn source(core: &Core, application: &Application) -> Result<TreeManifest, Refusal> {
    let intent = &application.intent;
    if intent.source == intent.target.digest {
        return Ok(application.manifest.clone());
    }
    Ok(core.ledger.manifest(&intent.workspace_id, intent.base.revision).await?)
}

/// What a published directory holds now; an error says nothing about it.
pub(super) fn look(port: &dyn WorkspacePort, root: &Path) -> Result<Found, Refusal> {
    match port.observe(root) {
        Ok(seen) => Ok(Found::Tree(seen.manifest)),
        Err(refusal) if refusal.code == Code::WorkspaceChanged => Ok(Found::Unfit(refusal.message)),
        Err(refusal) => Err(refusal),
    }
}

/// The workspaces, if the directories of `intent` lie among them: elsewhere nothing of them would be found,
/// which would be taken for a failure.
fn reach(core: &Core, intent: &Intent) -> Result<Arc<dyn WorkspacePort>, Refusal> {
    let roots = [&intent.base.root, &intent.target.root].map(Path::new);
    let found = match &core.workspaces {
        Some(port) if roots.iter().all(|root| root.starts_with(port.coding_root())) => {
            return Ok(port.clone());
        }
        Some(port) => port.coding_root().display().to_string(),
        None => "no coding root".to_owned(),
    };
    let [_, target] = roots;
    // <coding root>/<workspace>/<revision>
    let root = target.ancestors().nth(2).unwrap_or(target).display();
    Err(Refusal::new(
        Code::NotReady,
        format!("the service was started with {found}, and {} lies below {root}", target.display()),
        format!("restart the service with --coding-root {root}"),
    ))
}

/// Makes what was written durable by `sync`. What could not be is put out of sight of recovery before
/// anything else: its bytes may be in memory alone, and a second sync would not tell.
pub(super) fn durably(
    port: &dyn RevisionPort,
    application: &Application,
    sync: impl FnOnce() -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    sync().inspect_err(|_| {
        if let Err(refusal) = port.condemn(&application.intent) {
            tracing::error!(application = %application.intent.id, %refusal, "what may not be durable stays");
        }
    })
}

/// Runs one step on the directories of an application.
pub(super) async fn on_disk<T: Send + 'static>(
    core: &Core,
    application: &Application,
    work: impl FnOnce(&dyn RevisionPort, &Application) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let (port, application) = (core.workspaces()?, application.clone());
    blocking(move || work(revisions(&port)?, &application)).await
}

/// Runs a step between its two points of [`fault`].
pub(super) fn at<T>(
    boundary: &str,
    application: &Application,
    step: impl FnOnce() -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let id = application.intent.id.as_str();
    let passed = |side| {
        fault::reach(boundary, side, id).map_err(|error| {
            Refusal::new(Code::Internal, format!("{boundary}: {error}"), "check the disk, then try again")
        })
    };
    passed(Side::Before)?;
    let value = step()?;
    passed(Side::After)?;
    Ok(value)
}

pub(super) fn revisions(port: &Arc<dyn WorkspacePort>) -> Result<&dyn RevisionPort, Refusal> {
    port.revisions().ok_or_else(|| {
        Refusal::new(
            Code::Forbidden,
            "this service publishes no revisions",
            "start it with a coding root that does",
        )
    })
}

/// The directory of a revision to be.
pub(super) async fn room(
    core: &Core,
    id: &WorkspaceId,
    revision: u32,
    target: &TreeManifest,
) -> Result<PathBuf, Refusal> {
    let (port, id, target) = (core.workspaces()?, id.clone(), target.clone());
    blocking(move || revisions(&port)?.room(&id, revision, &target)).await
}
