//! A proof's own container and files (PRF.1, SVC.3, SVC.5).

use crate::world::{World, command, launched, start, wait};
use salaam::domain::ids::RunId;
use salaam::domain::refusal::Code;
use salaam::exec::scripted::Play;
use salaam::service::ports::Prover;
use salaam::service::prove::ContainerProver;
use salaam::service::startup::Opened;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The state directory's files of proofs: sources and outputs.
fn proof_files(state: &Path) -> Vec<String> {
    let names = |dir: PathBuf| std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.file_name());
    let sources = names(state.to_owned()).filter(|name| name.to_str().unwrap().starts_with("proof-"));
    sources.chain(names(state.join("outputs"))).map(|name| name.into_string().unwrap()).collect()
}

/// Waits for the source and the output of a proof.
async fn until_proving(world: &World) {
    while proof_files(&world.path("state")).len() < 2 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn svc5_a_stop_during_the_proof_ends_its_container_and_deletes_its_files() {
    let world = World::new();
    let opened = Opened::open(&world.path("state")).await.unwrap();
    let recovered =
        opened.choose_in_boot(Some(world.backend()), None, "boot-1".into()).recover().await.unwrap();
    world.exec.next(launched([Play::Write(b"{}".to_vec()), Play::Wait(Duration::from_secs(60))]));
    let (stop, told) = tokio::sync::watch::channel(false);
    let prover = ContainerProver::new(world.backend(), world.path("state")).stopped_by(told.clone());
    let proving = tokio::spawn(async move { recovered.prove(&prover).await.map(drop) });
    until_proving(&world).await;
    stop.send_replace(true);
    let refused = tokio::time::timeout(Duration::from_secs(10), proving).await.unwrap().unwrap().unwrap_err();
    assert!(refused.code == Code::NotReady && refused.message.contains("told to stop"), "{refused}");
    assert_eq!((world.exec.swept(), world.exec.forgotten()), (1, 1));
    assert_eq!(proof_files(&world.path("state")), Vec::<String>::new());
    // One that is told before it begins launches nothing.
    let late = ContainerProver::new(world.backend(), world.path("state")).stopped_by(told);
    assert_eq!(late.prove().await.unwrap_err().code, Code::NotReady);
    assert_eq!(world.exec.launched(), 1);
}

#[tokio::test]
async fn prf1_the_proof_is_readable_inside_whatever_the_umask() {
    use nix::sys::stat::{Mode, umask};
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    drop(Opened::open(&world.path("state")).await.unwrap());
    world.exec.next(vec![Play::Supervising, Play::Write(b"{}".to_vec()), Play::Hold]);
    let (stop, told) = tokio::sync::watch::channel(false);
    let prover = ContainerProver::new(world.backend(), world.path("state")).stopped_by(told);
    let before = umask(Mode::from_bits_truncate(0o077));
    let proving = tokio::spawn(async move { prover.prove().await });
    until_proving(&world).await;
    umask(before);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let mut entries = std::fs::read_dir(world.path("state")).unwrap().flatten();
    let source = entries.find(|entry| entry.file_name().to_str().unwrap().starts_with("proof-")).unwrap();
    assert_eq!((mode(&source.path()), mode(&source.path().join("nonce"))), (0o755, 0o644));
    stop.send_replace(true);
    proving.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn svc3_a_start_deletes_what_a_killed_proof_left_and_nothing_else() {
    let (world, service, session) = World::ready().await;
    world.exec.next(launched([Play::Write(b"kept".to_vec()), Play::Exit(0), Play::Removed(vec![])]));
    let run = start(&service, &session, command("true")).await;
    wait(&service, &session.id, &run).await;
    service.shutdown(false).await.unwrap();
    let state = world.path("state");
    let source = state.join(format!("proof-{}", RunId::fresh()));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("nonce"), "x").unwrap();
    std::fs::create_dir(state.join("proof-of-mine")).unwrap();
    std::fs::write(state.join("outputs").join(RunId::fresh().as_str()), "probe").unwrap();
    let service = world.start().await;
    let mut left = proof_files(&state);
    left.sort();
    assert_eq!(left, ["proof-of-mine".to_owned(), run.to_string()]);
    assert_eq!(service.logs(&session.id, &run, 0, 9).await.unwrap().bytes, b"kept");
}
