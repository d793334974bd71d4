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

/// Decides on every application that is not decided and that nobody follows. One that a disk error keeps
/// open stays so, and bars further ones in its workspace alone.
pub(super) async fn settle_all(core: &Arc<Core>) -> Result<(), Refusal> {
    for application in core.ledger.intended_applications().await? {
        let Intent { id, workspace_id, .. } = application.intent;
        if core.workspaces.is_none() {
            tracing::warn!(application = %id, "it stays undecided: there is no coding root");
            continue;
        }
        let Some(place) = Place::take(core, &workspace_id) else { continue };
        match settle_workspace(core, &place).await {
            Ok(()) => {}
            Err(refusal) if core.ledger.latched().is_some() => return Err(refusal),
            Err(refusal) => tracing::error!(application = %id, %refusal, "it stays undecided"),
        }
    }
    Ok(())
}

/// Decides on what is undecided in the workspace of `place`. It is read only now: who had the place before
/// may have decided on it.
pub(super) async fn settle_workspace(core: &Core, place: &Place) -> Result<(), Refusal> {
    for application in core.ledger.intended_applications().await? {
        if application.intent.workspace_id == place.workspace {
            let id = application.intent.id.clone();
            match settle(core, application).await? {
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
    let (port, looked) = (core.workspaces()?, application.clone());
    let step = blocking(move || {
        let survey = revisions(&port)?.survey(&looked.intent);
        let base = look(&*port, Path::new(&looked.intent.base.root));
        Ok(plan(&looked, &source, &survey, &base))
    })
    .await?;
    match step {
        Step::Publish => {
            on_disk(core, &application, |port, application| {
                // Whole in memory is not yet whole on disk.
                if port.survey(&application.intent).staged != Found::Absent {
                    port.sync(&application.intent)?;
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

/// What a published directory holds now.
pub(super) fn look(port: &dyn WorkspacePort, root: &Path) -> Found {
    match port.observe(root) {
        Ok(seen) => Found::Tree(seen.manifest),
        Err(refusal) => Found::Unfit(refusal.message),
    }
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
