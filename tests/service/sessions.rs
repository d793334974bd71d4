//! Sessions: refused, ended, removed, half made (WS.1).

use crate::publish::{disk, meddled};
use crate::world::{World, command, launched, refusal, start, wait};
use salaam::domain::refusal::Code;
use salaam::domain::session::SessionKind;
use salaam::exec::scripted::Play;
use salaam::service::CreateSession;
use salaam::service::startup::Opened;
use std::path::{Path, PathBuf};

#[tokio::test]
async fn ws1_a_refused_import_leaves_nothing_and_a_session_can_be_removed() {
    let world = World::new();
    let service = world.start().await;
    let empty = CreateSession { kind: SessionKind::Coding, cwd: world.path("coding") };
    assert_eq!(service.create_session(empty).await.unwrap_err().code, Code::ImportRefused);
    assert!(service.sessions().await.unwrap().is_empty());
    let plain = CreateSession { kind: SessionKind::Ordinary, cwd: PathBuf::new() };
    let plain = service.create_session(plain).await.unwrap();
    let refused = refusal(&service, &plain, command("true")).await;
    assert_eq!(refused.code, Code::Forbidden);
    let session = world.session(&service).await;
    assert_eq!(session.excluded.len(), 1);
    assert_eq!(session.workspace.as_ref().unwrap().revision, 1);
    world.exec.next(launched([Play::Write(b"x".to_vec()), Play::Exit(0), Play::Removed(vec![])]));
    let run = start(&service, &session, command("true")).await;
    wait(&service, &session.id, &run).await;
    let output = world.path("state/outputs").join(run.as_str());
    assert!(output.exists());
    assert!(!service.session(&session.id).await.unwrap().ended);
    service.end_session(&session.id).await.unwrap();
    assert!(service.session(&session.id).await.unwrap().ended);
    assert_eq!(service.sessions().await.unwrap().iter().filter(|s| s.ended).count(), 1);
    let ended = refusal(&service, &session, command("true")).await;
    assert_eq!(ended.code, Code::Forbidden);
    assert!(Path::new(&session.workspace.as_ref().unwrap().root).exists());
    service.remove_session(&session.id).await.unwrap();
    assert!(!output.exists() && !Path::new(&session.workspace.unwrap().root).exists());
    assert_eq!(service.session(&session.id).await.unwrap_err().code, Code::NotFound);
    assert_eq!(service.run(&session.id, &run).await.unwrap_err().code, Code::NotFound);
    assert_eq!(service.sessions().await.unwrap(), vec![plain]);
}

#[tokio::test]
async fn ws1_half_made_and_half_removed_sessions_are_finished_at_the_next_start() {
    let world = World::new();
    let service = world.start().await;
    let (kept, importing, removing) =
        (world.session(&service).await, world.session(&service).await, world.session(&service).await);
    service.shutdown(false).await.unwrap();
    world.sql(&format!(
        "UPDATE sessions SET phase = 'importing' WHERE id = '{}';
         UPDATE sessions SET phase = 'removing' WHERE id = '{}'",
        importing.id, removing.id
    ));
    let service = world.start().await;
    assert_eq!(service.sessions().await.unwrap(), vec![kept.clone()]);
    for gone in [importing, removing] {
        assert!(!Path::new(&gone.workspace.unwrap().root).exists());
    }
    assert!(Path::new(&kept.workspace.unwrap().root).exists());
}

#[tokio::test]
async fn ws1_a_removal_without_the_coding_root_is_refused_and_hides_nothing() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    service.shutdown(false).await.unwrap();
    let opened = Opened::open(&world.path("state")).await.unwrap();
    let chosen = opened.choose_in_boot(None, None, "boot-1".into());
    let service = chosen.recover().await.unwrap().without_commands().unwrap().ready();
    let refused = service.remove_session(&session.id).await.unwrap_err();
    assert!(refused.hint.contains("--coding-root"), "{refused}: {}", refused.hint);
    assert_eq!(service.sessions().await.unwrap(), vec![session.clone()]);
    service.shutdown(false).await.unwrap();
    let service = world.start().await;
    assert!(Path::new(&session.workspace.as_ref().unwrap().root).exists());
    service.remove_session(&session.id).await.unwrap();
}

#[tokio::test]
async fn ws1_a_removal_that_an_error_cut_off_is_finished_when_it_is_repeated() {
    let (_world, service, session, port) = meddled().await;
    port.hook("remove", || Err(disk("i/o error")));
    let refused = service.remove_session(&session.id).await.unwrap_err();
    assert!(refused.message.contains("i/o error"), "{refused}");
    let root = Path::new(&session.workspace.as_ref().unwrap().root);
    assert!(root.exists());
    service.remove_session(&session.id).await.unwrap();
    assert!(!root.exists());
    assert_eq!(service.remove_session(&session.id).await.unwrap_err().code, Code::NotFound);
}
