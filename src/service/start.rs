//! Starting a command: the rules of CMD.1–4 as a pure decision, and the steps around it.

use super::admission;
use super::clock;
use super::core::{Core, blocking, to_the_end};
use super::driver::{self, Begin};
use super::types::{MAX_COMMAND, StartCommand};
use crate::domain::ids::{ContainerId, ExecId, RunId, SessionId, StepKey};
use crate::domain::job::{self, Entry, Job};
use crate::domain::manifest::TreeManifest;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::relpath::RelPath;
use crate::domain::run::{Run, RunIntent};
use crate::domain::session::Workspace;
use crate::ledger::{Grounds, Requested, Verdict};
use std::path::PathBuf;
use std::sync::Arc;

/// Most changed paths that a refusal names.
const NAMED_PATHS: usize = 10;

/// Decides a start on what the ledger holds. The key goes first, before revision, admission and
/// readiness (CMD.2).
///
/// # Errors
/// `conflict`, `forbidden`, `stale_revision`, `busy` or the refusal in `ready`.
pub fn decide(
    grounds: &Grounds,
    req: &StartCommand,
    ready: impl FnOnce() -> Result<(), Refusal>,
) -> Result<Verdict, Refusal> {
    if let Some(run) = &grounds.existing {
        let original = &run.intent;
        let same = original.command == req.command
            && original.cwd == req.cwd
            && req.revision.is_none_or(|n| n == original.revision);
        return if same {
            Ok(Verdict::Original)
        } else {
            Err(Refusal::new(
                Code::Conflict,
                format!(
                    "the step key {} belongs to run {}, which has another command, directory or revision",
                    original.step_key, original.run_id
                ),
                "repeat the original arguments, or use a new key",
            ))
        };
    }
    let workspace = coding(grounds)?;
    if let Some(n) = req.revision
        && n != workspace.revision
    {
        return Err(Refusal::new(
            Code::StaleRevision,
            format!(
                "revision {n} is not the current one of {}; that is {}",
                workspace.id, workspace.revision
            ),
            "read the workspace again, then start on the current revision",
        ));
    }
    ready()?;
    admission::admit(&grounds.held, &workspace.id)?;
    Ok(Verdict::Admit)
}

fn coding(grounds: &Grounds) -> Result<&Workspace, Refusal> {
    let id = &grounds.session.id;
    if grounds.session.ended {
        return Err(Refusal::new(
            Code::Forbidden,
            format!("session {id} was ended; nothing can be started in it"),
            "make a new one with `sal session create --coding`",
        ));
    }
    grounds.session.workspace.as_ref().ok_or_else(|| {
        Refusal::new(
            Code::Forbidden,
            format!("session {id} is an ordinary one; it has no workspace to run commands in"),
            "make a coding session with `sal session create --coding`",
        )
    })
}

/// Checks the command text (CMD.1).
///
/// # Errors
/// `limit_exceeded` or `invalid`.
pub fn check_text(command: &str) -> Result<(), Refusal> {
    if command.len() > MAX_COMMAND {
        return Err(Refusal::new(
            Code::LimitExceeded,
            format!("the command text has {} bytes; the limit is {MAX_COMMAND}", command.len()),
            "put the text into a script in the workspace and run that",
        ));
    }
    if command.contains('\0') {
        return Err(Refusal::new(Code::Invalid, "the command text holds a NUL character", "leave it out"));
    }
    Ok(())
}

/// Checks that `cwd` is a directory of the revision.
///
/// # Errors
/// `invalid`.
pub fn check_cwd(manifest: &TreeManifest, cwd: &RelPath) -> Result<(), Refusal> {
    let below =
        |path: &RelPath| path.as_str().strip_prefix(cwd.as_str()).is_some_and(|rest| rest.starts_with('/'));
    let exists = cwd.is_root()
        || manifest.files().iter().any(|file| below(&file.path))
        || manifest.empty_dirs().iter().any(|dir| dir == cwd || below(dir));
    if exists {
        Ok(())
    } else {
        Err(Refusal::new(
            Code::Invalid,
            format!("the working directory '{cwd}' is not a directory of the revision"),
            "give a directory below the workspace root, or leave it out",
        ))
    }
}

fn check_unchanged(published: &TreeManifest, observed: &TreeManifest) -> Result<(), Refusal> {
    let changes = published.changes(observed);
    if changes.is_empty() {
        return Ok(());
    }
    let mut names: Vec<_> =
        changes.iter().take(NAMED_PATHS).map(|(path, _)| path.as_str().to_owned()).collect();
    if changes.len() > NAMED_PATHS {
        names.push(format!("and {} more", changes.len() - NAMED_PATHS));
    }
    Err(Refusal::new(
        Code::WorkspaceChanged,
        format!("the workspace differs from its published revision: {}", names.join(", ")),
        "adopt the edits with `sal workspace refresh`, or undo them",
    ))
}

/// Starts a command, or answers the original run of its key.
pub(super) async fn start(
    core: &Arc<Core>,
    session: &SessionId,
    mut req: StartCommand,
) -> Result<Run, Refusal> {
    check_text(&req.command)?;
    let key = match req.step_key.take() {
        Some(key) => key,
        None => fresh_key()?,
    };
    req.step_key = Some(key.clone());
    let grounds = core.ledger.grounds(session, &key).await?;
    if let (Verdict::Original, Some(run)) = (decide(&grounds, &req, || gate(core))?, &grounds.existing) {
        return Ok(core.view(&run.intent.run_id).unwrap_or_else(|| run.clone()));
    }
    let workspace = coding(&grounds)?.clone();
    let manifest = core.ledger.manifest(&workspace.id, workspace.revision).await?;
    check_cwd(&manifest, &req.cwd)?;
    let (port, root) = (core.workspaces()?, PathBuf::from(&workspace.root));
    let observed = blocking(move || port.observe(&root)).await?;
    check_unchanged(&manifest, &observed.manifest)?;
    // What was checked is what the transaction must still find.
    req.revision = Some(workspace.revision);
    let (core, session) = (Arc::clone(core), session.clone());
    to_the_end(async move { request_and_drive(core, session, key, req, workspace, manifest).await }).await
}

/// Whether anything new may start here and now.
fn gate(core: &Core) -> Result<(), Refusal> {
    core.backend()?;
    core.check_ready()?;
    core.check_identity()
}

async fn request_and_drive(
    core: Arc<Core>,
    session: SessionId,
    key: StepKey,
    req: StartCommand,
    workspace: Workspace,
    manifest: TreeManifest,
) -> Result<Run, Refusal> {
    let starting = Arc::clone(&core.starting).read_owned().await;
    let backend = core.backend()?.clone();
    let deadline = core.profile.deadline_ms.saturating_mul(1_000_000);
    let intent = RunIntent {
        run_id: RunId::fresh(),
        session_id: session,
        container_id: ContainerId::fresh(),
        exec_id: ExecId::fresh(),
        step_key: key,
        command: req.command.clone(),
        cwd: req.cwd.clone(),
        revision: workspace.revision,
        digest: workspace.digest.clone(),
        image: backend.bundle.pin.clone(),
        profile: core.profile.digest(),
        executor: backend.executor.name().to_owned(),
        engine: core.proof.get().map(|proof| proof.engine.clone()).unwrap_or_default(),
        boot_id: core.boot_id.clone(),
        deadline_ns: clock::boottime_ns()?.saturating_add(deadline),
    };
    let shared = Arc::clone(&core);
    let requested = core.ledger.request_run(intent, move |g| decide(g, &req, || gate(&shared))).await?;
    match requested {
        Requested::Original(run) => Ok(core.view(&run.intent.run_id).unwrap_or(run)),
        Requested::Fresh(run) => {
            let job = job(&core, &backend, &run.intent, &workspace, manifest);
            driver::spawn(&core, &backend, run.clone(), Begin::Launch(Box::new(job), starting));
            Ok(run)
        }
    }
}

fn job(
    core: &Core,
    backend: &super::core::Backend,
    intent: &RunIntent,
    workspace: &Workspace,
    manifest: TreeManifest,
) -> Job {
    Job {
        format: job::FORMAT,
        run_id: intent.run_id.clone(),
        container_id: intent.container_id.clone(),
        exec_id: intent.exec_id.clone(),
        boot_id: intent.boot_id.clone(),
        deadline_ns: intent.deadline_ns,
        entry: Entry::Command { text: intent.command.clone(), cwd: intent.cwd.clone() },
        profile: core.profile.clone(),
        bundle: backend.bundle.clone(),
        source: PathBuf::from(&workspace.root),
        manifest,
        output: core.state.output(&intent.run_id),
        probe: backend.probe.clone(),
    }
}

/// A key for a caller that gave none.
fn fresh_key() -> Result<StepKey, Refusal> {
    StepKey::parse(&format!("op-{}", uuid::Uuid::now_v7()))
        .map_err(|e| Refusal::new(Code::Internal, e.to_string(), "give a key of your own"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::digest::Digest;
    use crate::domain::ids::WorkspaceId;
    use crate::domain::manifest::FileEntry;
    use crate::domain::session::{Session, SessionKind};
    use crate::ledger::apply::tests::intent;
    use crate::ledger::{Place, apply};

    fn grounds() -> Grounds {
        let workspace =
            Workspace { id: WorkspaceId::fresh(), revision: 3, digest: Digest::of(b""), root: "/r".into() };
        let session = Session {
            id: SessionId::fresh(),
            ended: false,
            kind: SessionKind::Coding,
            cwd: "/p".into(),
            workspace: Some(workspace),
            excluded: vec![],
        };
        Grounds { session, existing: None, held: vec![] }
    }

    fn asked(revision: Option<u32>) -> StartCommand {
        StartCommand { step_key: None, command: "true".into(), cwd: RelPath::default(), revision }
    }

    #[test]
    fn cmd2_the_key_goes_before_everything_else() {
        let mut g = grounds();
        let mut run = apply::requested(intent());
        run.intent.command = "true".into();
        run.intent.revision = 1;
        g.existing = Some(run);
        g.session.ended = true;
        g.session.workspace = None;
        let unready = || Err(Refusal::new(Code::NotReady, "no", "no"));
        for revision in [None, Some(1)] {
            assert_eq!(decide(&g, &asked(revision), unready).unwrap(), Verdict::Original);
        }
        assert_eq!(decide(&g, &asked(Some(3)), unready).unwrap_err().code, Code::Conflict);
    }

    #[test]
    fn cmd2_then_session_revision_readiness_and_places_in_this_order() {
        let mut g = grounds();
        let taken = Place { run_id: RunId::fresh(), workspace_id: WorkspaceId::fresh() };
        g.held = vec![taken.clone(), taken];
        let unready = || Err(Refusal::new(Code::NotReady, "no", "no"));
        let code = |g: &Grounds, n, ready: bool| {
            let gate = || if ready { Ok(()) } else { unready() };
            decide(g, &asked(n), gate).map_err(|refusal| refusal.code)
        };
        assert_eq!(code(&g, Some(2), false), Err(Code::StaleRevision));
        assert_eq!(code(&g, Some(3), false), Err(Code::NotReady));
        assert_eq!(code(&g, Some(3), true), Err(Code::Busy));
        g.held.pop();
        assert_eq!(code(&g, None, true), Ok(Verdict::Admit));
        g.session.ended = true;
        assert_eq!(code(&g, Some(2), false), Err(Code::Forbidden));
    }

    #[test]
    fn cmd1_the_working_directory_must_be_one_of_the_revision() {
        let path = |text| RelPath::parse(text).unwrap();
        let file =
            FileEntry { path: path("a/b/c.js"), executable: false, length: 0, content: Digest::of(b"") };
        let manifest = TreeManifest::new(vec![file], vec![path("e/f")]);
        for good in [".", "a", "a/b", "e", "e/f"] {
            assert!(check_cwd(&manifest, &path(good)).is_ok(), "{good}");
        }
        for bad in
            ["a/b/c.js", "b", "a/", "e/f/g", "a/bb", "ee"].iter().filter_map(|p| RelPath::parse(p).ok())
        {
            assert_eq!(check_cwd(&manifest, &bad).unwrap_err().code, Code::Invalid, "{bad}");
        }
    }
}
