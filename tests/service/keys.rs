//! Step keys: what answers the original run, and what leaves a key free (CMD.2).

use crate::world::{World, keyed, refusal, start, wait};
use salaam::domain::refusal::Code;
use salaam::domain::relpath::RelPath;
use salaam::service::StartCommand;
use std::path::{Path, PathBuf};

#[tokio::test]
async fn cmd2_a_key_answers_its_original_run_and_refuses_other_arguments() {
    let (world, service, session) = World::ready().await;
    let first = start(&service, &session, keyed("k", "true")).await;
    let end = wait(&service, &session.id, &first).await;
    assert_eq!(service.start_command(&session.id, keyed("k", "true")).await.unwrap(), end);
    let same_revision = StartCommand { revision: Some(1), ..keyed("k", "true") };
    assert_eq!(service.start_command(&session.id, same_revision).await.unwrap(), end);
    let src = RelPath::parse("src").unwrap();
    for other in [
        keyed("k", "false"),
        StartCommand { cwd: src, ..keyed("k", "true") },
        StartCommand { revision: Some(2), ..keyed("k", "true") },
    ] {
        assert_eq!(refusal(&service, &session, other).await.code, Code::Conflict);
    }
    // The key goes before the workspace's state, admission and readiness.
    std::fs::write(Path::new(&session.workspace.as_ref().unwrap().root).join("src/main.js"), "2").unwrap();
    assert_eq!(service.start_command(&session.id, keyed("k", "true")).await.unwrap(), end);
    service.shutdown(false).await.unwrap();
    let service = world.start().await;
    assert_eq!(service.start_command(&session.id, keyed("k", "true")).await.unwrap(), end);
    assert_eq!(world.exec.launches(&first), 1);
    // Keys are scoped to their session.
    let other = world.session(&service).await;
    assert_ne!(start(&service, &other, keyed("k", "false")).await, first);
}

#[tokio::test]
async fn cmd2_the_same_key_at_once_runs_once() {
    let (world, service, session) = World::ready().await;
    let starts = (0..10).map(|_| {
        let (service, session) = (service.clone(), session.clone());
        tokio::spawn(async move { start(&service, &session, keyed("k", "true")).await })
    });
    let mut ids = Vec::new();
    for start in starts.collect::<Vec<_>>() {
        ids.push(start.await.unwrap());
    }
    ids.dedup();
    assert_eq!((ids.len(), world.exec.launched()), (1, 1));
}

#[tokio::test]
async fn cmd2_a_refused_start_stores_nothing_and_leaves_its_key_free() {
    let (_world, service, session) = World::ready().await;
    let root = PathBuf::from(&session.workspace.as_ref().unwrap().root);
    let before = service.commits();
    let refuse = async |req: StartCommand| refusal(&service, &session, req).await;
    let stale = refuse(StartCommand { revision: Some(2), ..keyed("k", "true") }).await;
    assert_eq!(stale.code, Code::StaleRevision);
    let nowhere = refuse(StartCommand { cwd: RelPath::parse("lib").unwrap(), ..keyed("k", "true") }).await;
    assert_eq!(nowhere.code, Code::Invalid);
    let file =
        refuse(StartCommand { cwd: RelPath::parse("src/main.js").unwrap(), ..keyed("k", "true") }).await;
    assert_eq!(file.code, Code::Invalid);
    assert_eq!(refuse(keyed("k", "a\0b")).await.code, Code::Invalid);
    assert_eq!(refuse(keyed("k", &"x".repeat(32 * 1024 + 1))).await.code, Code::LimitExceeded);
    std::fs::write(root.join("src/main.js"), "2").unwrap();
    let changed = refuse(keyed("k", "true")).await;
    assert_eq!(changed.code, Code::WorkspaceChanged);
    assert!(changed.message.contains("src/main.js"), "{}", changed.message);
    let view = service.inspect_workspace(&session.id).await.unwrap();
    assert_eq!(view.changes.len(), 1);
    assert_ne!(view.observed_digest, view.workspace.digest);
    std::fs::write(root.join("src/main.js"), "1").unwrap();
    assert_eq!(service.commits(), before);
    let src = RelPath::parse("src").unwrap();
    start(&service, &session, StartCommand { cwd: src, ..keyed("k", "true") }).await;
}
