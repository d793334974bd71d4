//! Publishing a revision (FT.4), step by step:
//!
//! ```text
//!  intent committed ─▶ written aside ─▶ synced ─▶ base looked at again ─▶ renamed ─▶ root, revision,
//!                                                                        digest, event and receipt
//!                                                                        in one transaction
//! ```
//! The base's directory is only read. Whatever breaks off in between is decided on by
//! [`super::settle`], from what is on disk; no write is done again.

use super::core::{Core, blocking, to_the_end};
use super::journal;
use super::rules::{check_unchanged, workspace_of};
use super::settle::{self, Place, Settled, at, on_disk};
pub use crate::domain::application::Call;
use crate::domain::application::{Application, Found, Intent, Root};
use crate::domain::change::TreeChange;
use crate::domain::digest::Digest;
use crate::domain::ids::{ApplicationId, SessionId};
use crate::domain::refusal::{Code, Refusal};
use crate::domain::session::Workspace;
use crate::ledger::{Begun, LedgerError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The workspace as the publication made it.
    pub workspace: Workspace,
}

/// What a revision is made from.
pub(super) struct Planned {
    /// The next tree.
    pub change: TreeChange,
    /// The call to answer.
    pub call: Option<Call>,
    /// What the base's directory must hold until the end.
    pub source: Digest,
}

/// Publishes `change` as the next revision, or answers the receipt of `call`. A call whose publication
/// failed leaves no receipt: its id is free again.
pub(super) async fn publish(
    core: &Arc<Core>,
    session: &SessionId,
    change: TreeChange,
    call: Option<Call>,
) -> Result<Published, Refusal> {
    let source = change.base.digest.clone();
    apply(core, session, Planned { change, call, source }).await
}

/// Answers what `call` has published before, whatever the revision is now.
pub(super) async fn receipt(
    core: &Core,
    session: &SessionId,
    call: &Call,
) -> Result<Option<Published>, Refusal> {
    let Some(saved) = core.ledger.receipt(session, &call.id).await? else { return Ok(None) };
    let workspace = journal::answered(&saved, call)?;
    Ok(Some(Published { workspace }))
}

/// Applies a plan to its end, even if the asker goes away.
pub(super) async fn apply(
    core: &Arc<Core>,
    session: &SessionId,
    planned: Planned,
) -> Result<Published, Refusal> {
    if let Some(call) = &planned.call
        && let Some(saved) = receipt(core, session, call).await?
    {
        return Ok(saved);
    }
    core.readiness.check_open()?;
    if let Some(reason) = core.ledger.latched() {
        return Err(LedgerError::Latched(reason).into());
    }
    let (core, session) = (Arc::clone(core), session.clone());
    to_the_end(async move {
        // Held so that a stop, and the mending of the ledger, wait for the end.
        let _entered = core.enter().await?;
        apply_alone(&core, &session, planned).await
    })
    .await
}

async fn apply_alone(core: &Arc<Core>, session: &SessionId, planned: Planned) -> Result<Published, Refusal> {
    let found = core.ledger.session(session).await?;
    let workspace = workspace_of(&found)?;
    let Some(place) = Place::take(core, &workspace.id) else {
        return Err(journal::busy(workspace, "another application"));
    };
    settle::settle_workspace(core, &place).await?;
    if let Some(call) = &planned.call
        && let Some(saved) = receipt(core, session, call).await?
    {
        return Ok(saved);
    }
    // As it is after that; the transaction below has the last word.
    let found = core.ledger.session(session).await?;
    let workspace = workspace_of(&found)?;
    let Planned { change, call, source } = planned;
    if source != change.base.digest && journal::adopted(workspace, change.base.revision, &source) {
        return Ok(Published { workspace: workspace.clone() });
    }
    journal::check_current(workspace, change.base.revision)?;
    if source == workspace.digest {
        check_root(core, workspace).await?;
    }
    let revision = workspace.revision.saturating_add(1);
    let root = settle::room(core, &workspace.id, revision, &change.target).await?;
    let intent = Intent {
        id: ApplicationId::fresh(),
        session_id: session.clone(),
        workspace_id: workspace.id.clone(),
        call,
        base: Root {
            revision: change.base.revision,
            digest: change.base.digest.clone(),
            root: workspace.root.clone(),
        },
        source,
        target: Root { revision, digest: change.target.digest(), root: root.display().to_string() },
    };
    let application = Application { intent: intent.clone(), manifest: change.target.clone() };
    let begun = core
        .ledger
        .begin_application(application.clone(), move |grounds| journal::decide(grounds, &intent))
        .await?;
    let workspace = match begun {
        Begun::Receipt(workspace) => workspace,
        Begun::Fresh => carry_out(core, application, change).await?,
    };
    Ok(Published { workspace })
}

/// An edited root is refused before anything is written: nothing would come of it.
async fn check_root(core: &Core, workspace: &Workspace) -> Result<(), Refusal> {
    let published = core.ledger.manifest(&workspace.id, workspace.revision).await?;
    let (port, root) = (core.workspaces()?, PathBuf::from(&workspace.root));
    let observed = blocking(move || port.observe(&root)).await?;
    check_unchanged(&published, &observed.manifest)
}

/// The steps after the intent.
async fn carry_out(core: &Core, application: Application, change: TreeChange) -> Result<Workspace, Refusal> {
    let written = on_disk(core, &application, move |port, application| {
        at("stage", application, || port.stage(&application.intent, &change))?;
        settle::durably(port, application, || at("sync", application, || port.sync(&application.intent)))
    })
    .await;
    let base = match written {
        Ok(()) => look_again(core, &application).await,
        Err(refusal) => Err(refusal),
    };
    match base {
        Err(refusal) => return Err(give_up(core, &application, refusal).await),
        Ok(Some(reason)) => {
            let blocked = settle::block(core, &application, reason).await;
            return Err(blocked.unwrap_or_else(|refusal| undecided(core, &application, &refusal.message)));
        }
        Ok(None) => {}
    }
    let renamed = on_disk(core, &application, |port, application| {
        at("rename", application, || port.publish(&application.intent))
    })
    .await;
    if let Err(refusal) = renamed {
        let survey = on_disk(core, &application, |port, application| port.survey(&application.intent)).await;
        let settled = match survey {
            // It was not renamed.
            Ok(survey) if survey.target == Found::Absent || survey.staged != Found::Absent => {
                return Err(give_up(core, &application, refusal).await);
            }
            // It has its name; whether for good is seen to once more.
            Ok(_) => settle::settle(core, application.clone()).await,
            Err(refusal) => Err(refusal),
        };
        return match settled {
            Ok(Settled::Published(workspace)) => Ok(workspace),
            Ok(Settled::Refused(refusal)) => Err(refusal),
            Err(refusal) => Err(undecided(core, &application, &refusal.message)),
        };
    }
    let published = core.ledger.publish_application(&application.intent.id).await;
    published.map_err(|error| undecided(core, &application, &error.to_string()))
}

/// How the base conflicts by now, if it does.
async fn look_again(core: &Core, application: &Application) -> Result<Option<String>, Refusal> {
    let source = settle::source(core, application).await?;
    let (port, intent) = (core.workspaces()?, application.intent.clone());
    blocking(move || {
        let base = settle::look(&*port, Path::new(&intent.base.root))?;
        Ok(journal::conflict(&intent, &source, &base))
    })
    .await
}

/// Undoes what was written and records the failure. Where not even that succeeds the application stays
/// undecided, and the refusal says so.
async fn give_up(core: &Core, application: &Application, refusal: Refusal) -> Refusal {
    match settle::fail(core, application, &refusal.message).await {
        Ok(()) => refusal,
        Err(more) => {
            let why = format!("{}; nor could that be recorded: {}", refusal.message, more.message);
            undecided(core, application, &why)
        }
    }
}

/// The refusal while it is not known what becomes of an application. It is decided on by the mender, if
/// not by whoever changes the workspace next.
fn undecided(core: &Core, application: &Application, why: &str) -> Refusal {
    core.undecided.notify_one();
    let Intent { call, target, .. } = &application.intent;
    let hint = match call {
        Some(call) => format!(
            "the service finds out by itself; repeat the call {} with the same arguments: it answers what it \
             published, or publishes it",
            call.id
        ),
        None => {
            "the service finds out by itself; read the workspace again before you repeat the change".into()
        }
    };
    let message = format!("it is not known yet whether revision {} is published: {why}", target.revision);
    Refusal::new(Code::NotReady, message, hint)
}
