//! The rules of a start (CMD.1–3), pure: on the text, the revision, and what the ledger holds.

use super::admission;
use super::types::{MAX_COMMAND, StartCommand};
use crate::domain::manifest::{Change, TreeManifest};
use crate::domain::refusal::{Code, Refusal};
use crate::domain::relpath::RelPath;
use crate::domain::session::{Session, SessionKind, Workspace};
use crate::ledger::{Grounds, Verdict};

/// Most changed paths that a refusal names.
pub const NAMED_PATHS: usize = 10;

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

/// The workspace that the session may run commands in.
///
/// # Errors
/// `forbidden` for an ended or an ordinary session.
pub fn coding(grounds: &Grounds) -> Result<&Workspace, Refusal> {
    workspace_of(&grounds.session)
}

/// The workspace of a coding session that goes on.
///
/// # Errors
/// As [`coding`]'s.
pub fn workspace_of(session: &Session) -> Result<&Workspace, Refusal> {
    if session.ended {
        return Err(Refusal::new(
            Code::Forbidden,
            format!("session {} was ended; its workspace is only kept", session.id),
            "make a new one with `sal session create --coding`",
        ));
    }
    kept_workspace_of(session)
}

/// The workspace of a coding session, whether or not it was ended.
///
/// # Errors
/// `forbidden` for an ordinary session.
pub fn kept_workspace_of(session: &Session) -> Result<&Workspace, Refusal> {
    let own = session.workspace.as_ref().filter(|_| session.kind == SessionKind::Coding);
    own.ok_or_else(|| {
        Refusal::new(
            Code::Forbidden,
            format!("session {} is an ordinary one; it has no workspace", session.id),
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

/// Checks that the directory holds what the revision says.
///
/// # Errors
/// `workspace_changed`, naming at most [`NAMED_PATHS`] paths.
pub fn check_unchanged(published: &TreeManifest, observed: &TreeManifest) -> Result<(), Refusal> {
    let changes = published.changes(observed);
    if changes.is_empty() {
        return Ok(());
    }
    let names = named(&changes);
    Err(Refusal::new(
        Code::WorkspaceChanged,
        format!("the workspace differs from its published revision: {names}"),
        "adopt the edits with `sal workspace refresh`, or undo them",
    ))
}

/// The first changed paths, and how many more there are.
pub fn named(changes: &[(RelPath, Change)]) -> String {
    let mut names: Vec<_> =
        changes.iter().take(NAMED_PATHS).map(|(path, _)| path.as_str().to_owned()).collect();
    if changes.len() > NAMED_PATHS {
        names.push(format!("and {} more", changes.len() - NAMED_PATHS));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::digest::Digest;
    use crate::domain::ids::{RunId, SessionId, WorkspaceId};
    use crate::domain::manifest::FileEntry;
    use crate::domain::session::SessionKind;
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

    #[test]
    fn cmd1_a_command_text_is_bounded_and_without_nul() {
        check_text("").unwrap();
        check_text(&"x".repeat(MAX_COMMAND)).unwrap();
        let long = check_text(&"x".repeat(MAX_COMMAND + 1)).unwrap_err();
        assert_eq!(long.code, Code::LimitExceeded);
        assert!(long.message.contains("32769") && long.message.contains("32768"), "{long}");
        assert_eq!(check_text("a\0b").unwrap_err().code, Code::Invalid);
    }

    #[test]
    fn cmd3_changed_paths_are_named_up_to_a_bound() {
        let tree = |count: usize, content: &[u8]| {
            let file = |n| FileEntry {
                path: RelPath::parse(&format!("f{n:02}")).unwrap(),
                executable: false,
                length: 1,
                content: Digest::of(content),
            };
            TreeManifest::new((0..count).map(file).collect(), vec![])
        };
        check_unchanged(&tree(3, b"a"), &tree(3, b"a")).unwrap();
        for (count, more) in [(NAMED_PATHS, false), (NAMED_PATHS + 2, true)] {
            let refused = check_unchanged(&tree(count, b"a"), &tree(count, b"b")).unwrap_err();
            assert_eq!(refused.code, Code::WorkspaceChanged);
            assert_eq!(refused.message.matches("f0").count(), NAMED_PATHS, "{refused}");
            assert_eq!(refused.message.ends_with("and 2 more"), more, "{refused}");
            assert_eq!(refused.message.contains(" more"), more, "{refused}");
        }
    }

    #[test]
    fn cmd2_the_same_key_with_other_arguments_is_a_conflict() {
        let mut g = grounds();
        let mut run = apply::requested(intent());
        run.intent.command = "true".into();
        run.intent.revision = 3;
        g.existing = Some(run);
        let decide = |req: &StartCommand| decide(&g, req, || Ok(())).map_err(|refusal| refusal.code);
        assert_eq!(decide(&asked(Some(3))), Ok(Verdict::Original));
        let other = StartCommand { command: "false".into(), ..asked(None) };
        assert_eq!(decide(&other), Err(Code::Conflict));
        let other = StartCommand { cwd: RelPath::parse("a").unwrap(), ..asked(None) };
        assert_eq!(decide(&other), Err(Code::Conflict));
    }

    #[test]
    fn ses1_only_a_coding_session_that_goes_on_runs_commands() {
        let mut g = grounds();
        assert_eq!(coding(&g).unwrap().revision, 3);
        g.session.workspace = None;
        assert!(coding(&g).unwrap_err().message.contains("ordinary"));
        g.session.ended = true;
        assert!(coding(&g).unwrap_err().message.contains("ended"));
    }
}
