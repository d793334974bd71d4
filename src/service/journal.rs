//! The rules of the journal (FT.3, FT.4), pure: whether an application may begin, and what is done about
//! one that nobody follows.

use super::rules::{named, workspace_of};
use crate::domain::application::{Application, Call, Found, Intent, Survey};
use crate::domain::digest::Digest;
use crate::domain::manifest::TreeManifest;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::session::Workspace;
use crate::ledger::{ApplyGrounds, Receipt};

/// Decides whether an application may begin; `Some` answers what its call has published before. The
/// receipt goes first, before session, revision and the one place.
///
/// # Errors
/// `conflict`, `forbidden`, `stale_revision` or `busy`.
pub fn decide(grounds: &ApplyGrounds, intent: &Intent) -> Result<Option<Workspace>, Refusal> {
    if let (Some(saved), Some(call)) = (&grounds.receipt, &intent.call) {
        return answered(saved, call).map(Some);
    }
    let workspace = workspace_of(&grounds.session)?;
    check_current(workspace, intent.base.revision)?;
    if workspace.digest != intent.base.digest {
        return Err(stale(workspace, "the digest of the base"));
    }
    match &grounds.open {
        None => Ok(None),
        Some(open) => Err(busy(workspace, open.as_str())),
    }
}

/// What a receipt answers to `call`.
///
/// # Errors
/// `conflict` when the call's arguments are others.
pub fn answered(saved: &Receipt, call: &Call) -> Result<Workspace, Refusal> {
    if saved.call.request == call.request {
        return Ok(saved.workspace.clone());
    }
    Err(Refusal::new(
        Code::Conflict,
        format!("the call id {} was used with other arguments", call.id),
        "repeat the original arguments, or use a new id",
    ))
}

/// Checks that `revision` is the current one.
///
/// # Errors
/// `stale_revision`.
pub fn check_current(workspace: &Workspace, revision: u32) -> Result<(), Refusal> {
    if workspace.revision == revision {
        return Ok(());
    }
    Err(stale(workspace, &format!("revision {revision}")))
}

/// True when the revision after `revision` is the current one and holds what was reviewed on it: a refresh
/// that is repeated.
pub fn adopted(workspace: &Workspace, revision: u32, reviewed: &Digest) -> bool {
    revision > 0 && workspace.revision == revision.saturating_add(1) && workspace.digest == *reviewed
}

fn stale(workspace: &Workspace, what: &str) -> Refusal {
    Refusal::new(
        Code::StaleRevision,
        format!("{what} is not the current one of {}; that is {}", workspace.id, workspace.revision),
        "read the workspace again, then repeat on the current revision",
    )
}

/// The refusal while `by` changes the workspace.
pub fn busy(workspace: &Workspace, by: &str) -> Refusal {
    Refusal::new(
        Code::Busy,
        format!("the workspace {} is being changed by {by}", workspace.id),
        "repeat in a moment",
    )
}

/// What is done about an application that nobody follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// What was written is whole and the base is what it was: name it, and record it.
    Publish,
    /// Nothing whole was written: remove what there is. Holds the reason.
    Fail(String),
    /// Original content conflicts: keep what was written, and the base. Holds the reason.
    Block(String),
}

/// Decides on an application, from what was written, the base's directory and what that should hold
/// (`source`). No write is ever done again: what is not whole has failed.
pub fn plan(application: &Application, source: &TreeManifest, survey: &Survey, base: &Found) -> Step {
    let whole = |found: &Found| matches!(found, Found::Tree(tree) if *tree == application.manifest);
    let target = &application.intent.target.root;
    match (&survey.staged, &survey.target) {
        (Found::Absent, Found::Absent) => Step::Fail("nothing was written".into()),
        (Found::Absent, found) if !whole(found) => {
            Step::Block(format!("{target} holds something else than was written there"))
        }
        (Found::Absent, _) => on_base(&application.intent, source, base),
        (staged, _) if !whole(staged) => Step::Fail("what was written is not whole".into()),
        (_, Found::Absent) => on_base(&application.intent, source, base),
        // The rename never happened, so this is none of ours.
        (_, _) => Step::Fail(format!("there is another directory at {target}")),
    }
}

fn on_base(intent: &Intent, source: &TreeManifest, base: &Found) -> Step {
    match conflict(intent, source, base) {
        None => Step::Publish,
        Some(reason) => Step::Block(reason),
    }
}

/// How the base's directory conflicts with the application, if it does.
pub fn conflict(intent: &Intent, source: &TreeManifest, base: &Found) -> Option<String> {
    let root = &intent.base.root;
    match base {
        Found::Tree(tree) if tree.digest() == intent.source => None,
        Found::Tree(tree) => Some(format!("{root} changed meanwhile: {}", named(&source.changes(tree)))),
        Found::Absent => Some(format!("{root} is gone")),
        Found::Unfit(reason) => Some(format!("{root} changed meanwhile: {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::application::Root;
    use crate::domain::ids::{ApplicationId, CallId, SessionId, WorkspaceId};
    use crate::domain::manifest::FileEntry;
    use crate::domain::relpath::RelPath;
    use crate::domain::session::{Session, SessionKind};

    fn tree(content: &[u8], empty: &[&str]) -> TreeManifest {
        let file = FileEntry {
            path: RelPath::parse("f").unwrap(),
            executable: false,
            length: content.len() as u64,
            content: Digest::of(content),
        };
        TreeManifest::new(vec![file], empty.iter().map(|path| RelPath::parse(path).unwrap()).collect())
    }

    fn application() -> (Application, TreeManifest) {
        let (source, manifest) = (tree(b"old", &[]), tree(b"new", &["e"]));
        let root = |revision, tree: &TreeManifest| Root {
            revision,
            digest: tree.digest(),
            root: format!("/r{revision}"),
        };
        let intent = Intent {
            id: ApplicationId::fresh(),
            session_id: SessionId::fresh(),
            workspace_id: WorkspaceId::fresh(),
            call: Some(Call { id: CallId::parse("c").unwrap(), request: Digest::of(b"x") }),
            base: root(3, &source),
            source: source.digest(),
            target: root(4, &manifest),
        };
        (Application { intent, manifest }, source)
    }

    #[test]
    fn ft4_the_plan_over_its_whole_table() {
        let (application, source) = application();
        let whole = Found::Tree(application.manifest.clone());
        // An empty directory less is no other digest, and yet not whole.
        let short = Found::Tree(tree(b"new", &[]));
        let unfit = Found::Unfit("x".into());
        let found = [Found::Absent, whole.clone(), short, Found::Tree(tree(b"other", &[])), unfit];
        for staged in &found {
            for target in &found {
                for base in [
                    Found::Tree(source.clone()),
                    Found::Tree(tree(b"old", &["made"])),
                    Found::Tree(tree(b"edited", &[])),
                    Found::Unfit("a link".into()),
                    Found::Absent,
                ] {
                    let same = matches!(&base, Found::Tree(tree) if tree.digest() == source.digest());
                    let survey = Survey { staged: staged.clone(), target: target.clone() };
                    let got = plan(&application, &source, &survey, &base);
                    let alone = *staged == Found::Absent || *target == Found::Absent;
                    let fits = match (*staged == whole, *target == whole) {
                        _ if *staged == Found::Absent && *target == Found::Absent => {
                            matches!(got, Step::Fail(_))
                        }
                        (true, _) if alone && same => got == Step::Publish,
                        (true, _) if alone => matches!(got, Step::Block(_)),
                        (false, true) if alone && same => got == Step::Publish,
                        (false, true) if alone => matches!(got, Step::Block(_)),
                        _ if *staged == Found::Absent => matches!(got, Step::Block(_)),
                        _ => matches!(got, Step::Fail(_)),
                    };
                    assert!(fits, "{staged:?} {target:?} {base:?}: {got:?}");
                }
            }
        }
    }

    #[test]
    fn ft3_the_receipt_goes_first_then_session_revision_and_place() {
        let (application, _) = application();
        let intent = application.intent;
        let workspace = Workspace {
            id: intent.workspace_id.clone(),
            revision: 3,
            digest: intent.base.digest.clone(),
            root: "/r3".into(),
        };
        let session = Session {
            id: intent.session_id.clone(),
            kind: SessionKind::Coding,
            cwd: "/p".into(),
            workspace: Some(workspace.clone()),
            excluded: vec![],
            ended: false,
        };
        let mut grounds = ApplyGrounds { session, receipt: None, open: None };
        assert_eq!(decide(&grounds, &intent), Ok(None));
        let code = |grounds: &ApplyGrounds| decide(grounds, &intent).map_err(|refusal| refusal.code);
        grounds.open = Some(ApplicationId::fresh());
        assert_eq!(code(&grounds), Err(Code::Busy));
        for (revision, digest) in [(4, workspace.digest.clone()), (3, Digest::of(b"other"))] {
            grounds.session.workspace = Some(Workspace { revision, digest, ..workspace.clone() });
            assert_eq!(code(&grounds), Err(Code::StaleRevision));
        }
        grounds.session.ended = true;
        assert_eq!(code(&grounds), Err(Code::Forbidden));
        let call = intent.call.clone().unwrap();
        grounds.receipt = Some(Receipt { call: call.clone(), workspace: workspace.clone() });
        assert_eq!(code(&grounds), Ok(Some(workspace.clone())));
        let other = Call { request: Digest::of(b"y"), ..call };
        grounds.receipt = Some(Receipt { call: other, workspace });
        assert_eq!(code(&grounds), Err(Code::Conflict));
    }
}
