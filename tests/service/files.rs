//! The file tool through the service: who may call it, and that a refusal leaves everything as it was.

use crate::world::World;
use salaam::domain::digest::Digest;
use salaam::domain::files::answer::{InspectAnswer, ReadAnswer};
use salaam::domain::files::page::MAX_ANSWER;
use salaam::domain::files::{Answer, Request};
use salaam::domain::ids::CallId;
use salaam::domain::refusal::{Code, Refusal};
use salaam::domain::session::{Session, SessionKind};
use salaam::service::{CreateSession, Service};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

async fn call(service: &Service, session: &Session, request: Value) -> Result<Answer, Refusal> {
    let request = Request::parse(request.to_string().as_bytes())?;
    let answer = service.files(&session.id, None, request).await?;
    assert!(serde_json::to_vec(&answer).unwrap().len() <= MAX_ANSWER);
    Ok(answer)
}

async fn inspect(service: &Service, session: &Session) -> InspectAnswer {
    match call(service, session, json!({"operation": "inspect"})).await.unwrap() {
        Answer::Inspect(answer) => answer,
        other => panic!("{other:?}"),
    }
}

async fn read(service: &Service, session: &Session, path: &str) -> Result<ReadAnswer, Refusal> {
    match call(service, session, json!({"operation": "read", "path": path})).await? {
        Answer::Read(answer) => Ok(answer),
        other => panic!("{other:?}"),
    }
}

/// Everything below a directory.
fn snapshot(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut out, mut todo) = (Vec::new(), vec![root.to_owned()]);
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            out.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    out.sort();
    out
}

#[tokio::test]
async fn ft1_a_coding_session_inspects_lists_searches_and_reads() {
    let (_world, service, session) = World::ready().await;
    let seen = inspect(&service, &session).await;
    let workspace = session.workspace.clone().unwrap();
    assert_eq!((seen.revision, seen.digest.as_str()), (1, workspace.digest.as_str()));
    assert_eq!((seen.files, seen.bytes, seen.excluded_total), (1, 1, 1));
    assert_eq!((seen.limits.files, seen.limits.file_bytes), (512, 262_144));
    assert_eq!(
        seen.excluded[0].reason, "version control metadata",
        "exclusions are seen before a patch fails"
    );
    let listed = call(&service, &session, json!({"operation": "list", "path": "src"})).await.unwrap();
    let Answer::List(listed) = listed else { panic!("{listed:?}") };
    assert_eq!((listed.total, listed.files[0].hash.as_str()), (1, Digest::of(b"1").as_str()));
    let found = call(&service, &session, json!({"operation": "search", "text": "1"})).await.unwrap();
    let Answer::Search(found) = found else { panic!("{found:?}") };
    assert_eq!((found.matches[0].path.as_str(), found.matches[0].line), ("src/main.js", 1));
    let shown = read(&service, &session, "src/main.js").await.unwrap();
    assert_eq!((shown.lines[0].text.as_str(), shown.final_newline), ("1", false));
    for (path, code) in [("src", Code::NotFound), ("none", Code::NotFound), ("../x", Code::Invalid)] {
        assert_eq!(read(&service, &session, path).await.unwrap_err().code, code, "{path}");
    }
    for (path, says) in [
        ("src", "'src' is a directory"),
        ("", "'.' is a directory"),
        ("none", "there is no 'none'"),
        (".git", "'.git' was left out at the import: version control metadata"),
        (".git/config", "'.git' was left out at the import"),
        (".gitx", "there is no '.gitx'"),
    ] {
        let refused = read(&service, &session, path).await.unwrap_err();
        assert!(refused.message.contains(says), "{path}: {refused}");
    }
    for operation in [json!({"operation": "list"}), json!({"operation": "search", "text": "x"})] {
        let mut request = operation;
        request["path"] = ".git".into();
        let refused = call(&service, &session, request).await.unwrap_err();
        assert!(refused.message.contains("left out at the import"), "{refused}");
    }
}

#[tokio::test]
async fn ft_only_a_coding_session_has_the_tool_and_an_ended_one_is_only_read() {
    let (_world, service, session) = World::ready().await;
    let plain = CreateSession { kind: SessionKind::Ordinary, cwd: PathBuf::new() };
    let plain = service.create_session(plain).await.unwrap();
    let refused = call(&service, &plain, json!({"operation": "inspect"})).await.unwrap_err();
    assert_eq!(refused.code, Code::Forbidden);
    service.end_session(&session.id).await.unwrap();
    assert_eq!(inspect(&service, &session).await.files, 1);
    let patch = json!({"operation": "patch", "revision": 1, "files": [
        {"path": "new", "expected_hash": null, "content": ""}]});
    assert_eq!(call(&service, &session, patch).await.unwrap_err().code, Code::Forbidden);
}

#[tokio::test]
async fn a20_a21_a2_a_refused_patch_changes_no_byte() {
    let (world, service, session) = World::ready().await;
    let root = world.path("coding");
    let (before, seen) = (snapshot(&root), inspect(&service, &session).await);
    let new = |path: &str, content: &str| json!({"path": path, "expected_hash": null, "content": content});
    let hash = Digest::of(b"1").to_string();
    let edit = |old: &str| json!({"path": "src/main.js", "expected_hash": hash, "edits": [{"old": old, "new": "2"}]});
    for (revision, second, code, named) in [
        (1, new("../outside", ""), Code::Invalid, "'../outside'"),
        (1, new("/etc/x", ""), Code::Invalid, "'/etc/x'"),
        (1, edit("1"), Code::Invalid, "twice"),
        (1, new(".GIT/hooks/x", ""), Code::PatchRefused, "version control"),
        (1, new("a/.Env", ""), Code::PatchRefused, "environment"),
        (1, new("b", &"x".repeat(262_145)), Code::LimitExceeded, "262144"),
        (1, new("SRC/x", ""), Code::PatchRefused, "collide"),
        (2, new("b", ""), Code::StaleRevision, "the workspace is at 1"),
    ] {
        let patch = json!({"operation": "patch", "revision": revision, "files": [edit("1"), second]});
        let refused = call(&service, &session, patch).await.unwrap_err();
        assert_eq!(refused.code, code, "{refused}");
        assert!(refused.message.contains(named), "{refused}");
        assert_eq!(snapshot(&root), before);
        assert_eq!(inspect(&service, &session).await, seen);
    }
    let patch = json!({"operation": "patch", "revision": 1, "files": [edit("3")]});
    let refused = call(&service, &session, patch).await.unwrap_err();
    assert!(refused.message.contains("'src/main.js' does not fit: edit 1"), "{refused}");
}

#[tokio::test]
async fn ft1_a_hand_edited_file_is_named_and_never_shown() {
    let (_world, service, session) = World::ready().await;
    let file = Path::new(&session.workspace.as_ref().unwrap().root).join("src/main.js");
    std::fs::write(&file, "7").unwrap();
    let refused = read(&service, &session, "src/main.js").await.unwrap_err();
    assert_eq!(refused.code, Code::WorkspaceChanged);
    assert!(refused.message.starts_with("'src/main.js' was changed"), "{refused}");
    let found = call(&service, &session, json!({"operation": "search", "text": "7"})).await.unwrap();
    let Answer::Search(found) = found else { panic!("{found:?}") };
    assert!(found.matches.is_empty());
    assert_eq!(found.skipped[0].path, "src/main.js");
    let edit = json!({"operation": "patch", "revision": 1, "files": [{"path": "src/main.js",
        "expected_hash": Digest::of(b"1").as_str(), "edits": [{"old": "7", "new": "8"}]}]});
    assert_eq!(call(&service, &session, edit).await.unwrap_err().code, Code::WorkspaceChanged);
    // The listing is the ledger's, and says nothing of the directory.
    let listed = call(&service, &session, json!({"operation": "list"})).await.unwrap();
    assert!(matches!(listed, Answer::List(list) if list.total == 1));
}

#[tokio::test]
async fn ft3_a_call_id_is_no_matter_for_reading() {
    let (_world, service, session) = World::ready().await;
    let id = CallId::parse("call-1").unwrap();
    for text in ["1", "2"] {
        let request = json!({"operation": "search", "text": text}).to_string();
        let request = Request::parse(request.as_bytes()).unwrap();
        assert!(service.files(&session.id, Some(id.clone()), request).await.is_ok());
    }
}
