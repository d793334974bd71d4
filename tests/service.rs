//! The service over a scripted executor: the rules of CMD, PRF.4 and the ledger, without a container.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use salaam::domain::digest::Digest;
use salaam::domain::ids::{RunId, SessionId, StepKey, WorkspaceId};
use salaam::domain::job::{Bundle, ImagePin};
use salaam::domain::manifest::{FileEntry, TreeManifest};
use salaam::domain::outcome::{Cause, Ending, Evidence};
use salaam::domain::record::Record;
use salaam::domain::refusal::{Code, Refusal};
use salaam::domain::relpath::RelPath;
use salaam::domain::run::{Cleanup, Run, RunEvent, RunState};
use salaam::domain::session::{Excluded, Session, SessionKind};
use salaam::exec::Fut;
use salaam::exec::scripted::{Play, Scripted};
use salaam::ledger::Ledger;
use salaam::service::ports::{Imported, Observation, ProofSummary, Prover, WorkspacePort};
use salaam::service::startup::Opened;
use salaam::service::{Backend, CreateSession, Service, StartCommand, settled};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Workspaces as plain directories of plain files.
struct Plain(PathBuf);

fn tree(root: &Path) -> TreeManifest {
    let mut files = Vec::new();
    let mut todo = vec![(root.to_owned(), String::new())];
    while let Some((dir, prefix)) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                todo.push((entry.path(), format!("{path}/")));
                continue;
            }
            let bytes = std::fs::read(entry.path()).unwrap();
            files.push(FileEntry {
                path: RelPath::parse(&path).unwrap(),
                executable: false,
                length: bytes.len() as u64,
                content: Digest::of(&bytes),
            });
        }
    }
    TreeManifest::new(files, vec![])
}

impl WorkspacePort for Plain {
    fn create(&self, id: &WorkspaceId, project: &Path) -> Result<Imported, Refusal> {
        if !project.join("main.js").exists() {
            return Err(Refusal::new(Code::ImportRefused, "no main.js", "make one"));
        }
        let root = self.0.join(id.as_str()).join("1");
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::copy(project.join("main.js"), root.join("src/main.js")).unwrap();
        let excluded = vec![Excluded { path: ".git".into(), reason: "version control metadata".into() }];
        Ok(Imported { manifest: tree(&root), root, excluded })
    }

    fn observe(&self, root: &Path) -> Result<Observation, Refusal> {
        Ok(Observation { manifest: tree(root), excluded: vec![] })
    }

    fn remove(&self, id: &WorkspaceId) -> Result<(), Refusal> {
        let _ = std::fs::remove_dir_all(self.0.join(id.as_str()));
        Ok(())
    }
}

struct Proof;

impl Prover for Proof {
    fn prove(&self) -> Fut<'_, Result<ProofSummary, Refusal>> {
        Box::pin(async { Ok(ProofSummary { digest: Digest::of(b"proof"), engine: "scripted 1".into() }) })
    }
}

/// A place on disk and an executor that outlive the services started over them.
struct World {
    tmp: TempDir,
    exec: Scripted,
}

impl World {
    fn new() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::create_dir(tmp.path().join("project")).unwrap();
        std::fs::write(tmp.path().join("project/main.js"), "1").unwrap();
        Self { tmp, exec: Scripted::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.tmp.path().join(name)
    }

    fn backend(&self) -> Backend {
        let pin = ImagePin {
            reference: "example/node@sha256:0".into(),
            manifest: Digest::of(b"m"),
            config: Digest::of(b"c"),
            diff_ids: vec![],
        };
        let bundle = Bundle { pin, rootfs: "/nonexistent/rootfs".into(), etc: "/nonexistent/etc".into() };
        Backend { executor: Arc::new(self.exec.clone()), bundle, probe: "/nonexistent/sal".into() }
    }

    async fn start(&self) -> Service {
        self.start_in("boot-1").await
    }

    async fn start_in(&self, boot: &str) -> Service {
        let opened = Opened::open(&self.path("state")).await.unwrap();
        let port = Arc::new(Plain(self.path("coding")));
        let chosen = opened.choose_in_boot(Some(self.backend()), Some(port), boot.into());
        chosen.recover().await.unwrap().prove(&Proof).await.unwrap().ready()
    }

    async fn session(&self, service: &Service) -> Session {
        let req = CreateSession { kind: SessionKind::Coding, cwd: self.path("project") };
        service.create_session(req).await.unwrap()
    }

    /// Opens the ledger of a stopped service.
    fn ledger(&self) -> Ledger {
        Ledger::open(&self.path("state/ledger.db")).unwrap()
    }

    fn sql(&self, text: &str) {
        rusqlite::Connection::open(self.path("state/ledger.db")).unwrap().execute_batch(text).unwrap();
    }
}

fn command(text: &str) -> StartCommand {
    StartCommand { step_key: None, command: text.into(), cwd: RelPath::default(), revision: None }
}

fn keyed(key: &str, text: &str) -> StartCommand {
    StartCommand { step_key: Some(StepKey::parse(key).unwrap()), ..command(text) }
}

async fn wait(service: &Service, session: &SessionId, run: &RunId) -> Run {
    let mut watch = service.follow(session, run).await.unwrap();
    let wait = async { watch.wait_for(settled).await.map(|run| run.clone()) };
    match tokio::time::timeout(Duration::from_secs(20), wait).await.expect("settles in time") {
        Ok(run) => run,
        Err(_) => service.run(session, run).await.unwrap(),
    }
}

async fn state(service: &Service, session: &SessionId, run: &RunId, want: RunState) {
    let mut watch = service.follow(session, run).await.unwrap();
    watch.wait_for(|run| run.state == want).await.unwrap();
}

async fn until_forgotten(exec: &Scripted, run: &RunId) {
    for _ in 0..500 {
        if exec.was_forgotten(run) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{run} was not forgotten");
}

fn cause(run: &Run) -> Cause {
    run.outcome.as_ref().unwrap().cause
}

#[tokio::test]
async fn cmd4_the_plain_path_costs_three_commits_and_is_told_in_order() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.next(vec![
        Play::Supervising,
        Play::Launching,
        Play::Write(b"hello\n".to_vec()),
        Play::Exit(3),
        Play::Wait(Duration::from_millis(30)),
        Play::Removed(vec![]),
    ]);
    let before = service.commits();
    let run = service.start_command(&session.id, command("echo hello; exit 3")).await.unwrap();
    assert_eq!((run.state, run.cleanup), (RunState::Requested, Cleanup::None));
    assert!(run.intent.step_key.as_str().starts_with("op-"));
    let end = wait(&service, &session.id, &run.intent.run_id).await;
    assert_eq!((end.state, end.cleanup), (RunState::Finished, Cleanup::Confirmed));
    assert_eq!((cause(&end), end.outcome.as_ref().unwrap().exit_code), (Cause::Exited, Some(3)));
    assert_eq!(end.output.stored_bytes, 6);
    assert_eq!(service.commits() - before, 3);
    let part = service.logs(&session.id, &run.intent.run_id, 2, 3).await.unwrap();
    assert_eq!((part.bytes.as_slice(), part.ended, part.output.stored_bytes), (&b"llo"[..], true, 6));
    assert!(service.logs(&session.id, &run.intent.run_id, 99, 3).await.unwrap().bytes.is_empty());
    until_forgotten(&world.exec, &run.intent.run_id).await;
    assert_eq!(service.runs(&session.id).await.unwrap(), vec![end]);
    service.shutdown(false).await.unwrap();
    let events = world.ledger().events(&run.intent.run_id).await.unwrap();
    let names: Vec<_> = events
        .iter()
        .map(|e| serde_json::to_value(e).unwrap()["event"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["create_asked", "launched", "ended", "removed"]);
}

#[tokio::test]
async fn cmd2_a_key_answers_its_original_run_and_refuses_other_arguments() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    let first = service.start_command(&session.id, keyed("k", "true")).await.unwrap();
    let end = wait(&service, &session.id, &first.intent.run_id).await;
    assert_eq!(service.start_command(&session.id, keyed("k", "true")).await.unwrap(), end);
    let same_revision = StartCommand { revision: Some(1), ..keyed("k", "true") };
    assert_eq!(service.start_command(&session.id, same_revision).await.unwrap(), end);
    let src = RelPath::parse("src").unwrap();
    for other in [
        keyed("k", "false"),
        StartCommand { cwd: src, ..keyed("k", "true") },
        StartCommand { revision: Some(2), ..keyed("k", "true") },
    ] {
        assert_eq!(service.start_command(&session.id, other).await.unwrap_err().code, Code::Conflict);
    }
    // The key goes before the workspace's state, admission and readiness.
    std::fs::write(Path::new(&session.workspace.as_ref().unwrap().root).join("src/main.js"), "2").unwrap();
    assert_eq!(service.start_command(&session.id, keyed("k", "true")).await.unwrap(), end);
    service.shutdown(false).await.unwrap();
    let service = world.start().await;
    assert_eq!(service.start_command(&session.id, keyed("k", "true")).await.unwrap(), end);
    assert_eq!(world.exec.launches(&first.intent.run_id), 1);
    // Keys are scoped to their session.
    let other = world.session(&service).await;
    let run = service.start_command(&other.id, keyed("k", "false")).await.unwrap();
    assert_ne!(run.intent.run_id, first.intent.run_id);
}

#[tokio::test]
async fn cmd2_the_same_key_at_once_runs_once() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    let starts = (0..10).map(|_| {
        let (service, id) = (service.clone(), session.id.clone());
        tokio::spawn(
            async move { service.start_command(&id, keyed("k", "true")).await.unwrap().intent.run_id },
        )
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
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    let root = PathBuf::from(&session.workspace.as_ref().unwrap().root);
    let before = service.commits();
    let refuse = async |req: StartCommand| service.start_command(&session.id, req).await.unwrap_err();
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
    service.start_command(&session.id, StartCommand { cwd: src, ..keyed("k", "true") }).await.unwrap();
}

#[tokio::test]
async fn cmd3_two_places_per_service_and_one_per_workspace() {
    let world = World::new();
    let service = world.start().await;
    let (a, b, c) =
        (world.session(&service).await, world.session(&service).await, world.session(&service).await);
    world.exec.next(Play::endless());
    world.exec.next(Play::endless());
    let first = service.start_command(&a.id, keyed("k", "x")).await.unwrap().intent.run_id;
    let own = service.start_command(&a.id, command("y")).await.unwrap_err();
    assert!(own.code == Code::Busy && own.message.contains(first.as_str()), "{own}");
    let second = service.start_command(&b.id, command("x")).await.unwrap().intent.run_id;
    let full = service.start_command(&c.id, command("x")).await.unwrap_err();
    assert!(full.message.contains(first.as_str()) && full.message.contains(second.as_str()), "{full}");
    // An existing key is no new run.
    assert_eq!(service.start_command(&a.id, keyed("k", "x")).await.unwrap().intent.run_id, first);
    assert_eq!(service.end_session(&a.id).await.unwrap_err().code, Code::Busy);
    assert_eq!(service.remove_session(&a.id).await.unwrap_err().code, Code::Busy);
    assert_eq!(service.status().runs, 2);
    service.cancel(&a.id, &first).await.unwrap();
    let third = service.start_command(&c.id, command("x")).await.unwrap();
    assert_eq!(cause(&wait(&service, &c.id, &third.intent.run_id).await), Cause::Exited);
}

#[tokio::test]
async fn cmd5_a_cancel_is_committed_first_and_answers_when_settled() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.next(Play::endless());
    let run = service.start_command(&session.id, command("sleep 99")).await.unwrap().intent.run_id;
    state(&service, &session.id, &run, RunState::Running).await;
    let reply = service.cancel(&session.id, &run).await.unwrap();
    assert!(!reply.already_finished && reply.run.cancel_requested);
    assert_eq!((reply.run.state, cause(&reply.run)), (RunState::Finished, Cause::Cancelled));
    let again = service.cancel(&session.id, &run).await.unwrap();
    assert!(again.already_finished);
    assert_eq!(again.run, reply.run);
    service.shutdown(false).await.unwrap();
    let events = world.ledger().events(&run).await.unwrap();
    assert_eq!(events[..3], [RunEvent::CreateAsked, RunEvent::Launched, RunEvent::CancelRequested]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cmd5_cancel_against_exit_has_one_end_in_200_rounds() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    let (mut runs, mut won, mut late) = (Vec::new(), 0, 0);
    for round in 0..200u64 {
        let wait = Play::Wait(Duration::from_micros(round % 10 * 300));
        world.exec.next(vec![Play::Supervising, Play::Launching, wait, Play::Exit(0), Play::Removed(vec![])]);
        let run = service.start_command(&session.id, command("true")).await.unwrap().intent.run_id;
        tokio::time::sleep(Duration::from_micros(round / 10 % 10 * 300)).await;
        let reply = service.cancel(&session.id, &run).await.unwrap();
        assert_eq!((reply.run.state, reply.run.cleanup), (RunState::Finished, Cleanup::Confirmed));
        assert_eq!(reply.already_finished, cause(&reply.run) == Cause::Exited, "{:?}", reply.run);
        if reply.already_finished {
            late += 1
        } else {
            won += 1
        }
        runs.push(run);
    }
    println!("{won} cancelled, {late} too late");
    assert!(won > 0 && late > 0);
    service.shutdown(false).await.unwrap();
    let ledger = world.ledger();
    for run in runs {
        let events = ledger.events(&run).await.unwrap();
        let count = |f: fn(&RunEvent) -> bool| events.iter().filter(|e| f(e)).count();
        assert_eq!(count(|e| matches!(e, RunEvent::Ended { .. } | RunEvent::Lost { .. })), 1, "{events:?}");
        assert_eq!(count(|e| matches!(e, RunEvent::Removed)), 1, "{events:?}");
    }
}

#[tokio::test]
async fn prf4_a_mismatch_fails_the_run_and_withdraws_readiness() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    let failed = |mismatch| {
        vec![
            Play::Supervising,
            Play::Tell(Record::StartFailed {
                stage: "verify".into(),
                detail: "pids.max is 64".into(),
                mismatch,
            }),
            Play::Removed(vec![]),
        ]
    };
    world.exec.next(failed(false));
    let run = service.start_command(&session.id, command("true")).await.unwrap();
    let end = wait(&service, &session.id, &run.intent.run_id).await;
    assert_eq!((end.state, cause(&end)), (RunState::Finished, Cause::StartFailed));
    assert!(service.status().ready);
    world.exec.next(failed(true));
    let run = service.start_command(&session.id, command("true")).await.unwrap();
    assert_eq!(cause(&wait(&service, &session.id, &run.intent.run_id).await), Cause::StartFailed);
    let status = service.status();
    assert!(!status.ready && status.reason.unwrap().contains("pids.max is 64"));
    let refused = service.start_command(&session.id, command("true")).await.unwrap_err();
    assert_eq!(refused.code, Code::NotReady);
}

#[tokio::test]
async fn prf4_another_engine_than_the_proved_one_gets_no_command() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.becomes("scripted, upgraded");
    let refused = service.start_command(&session.id, command("true")).await.unwrap_err();
    assert!(refused.code == Code::NotReady && refused.message.contains("upgraded"), "{refused}");
    assert!(!service.status().ready);
    assert_eq!(world.exec.launched(), 0);
}

#[tokio::test]
async fn cmd4_a_cancel_before_the_launch_tells_no_launch() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.next(vec![Play::Supervising, Play::Hold]);
    let run = service.start_command(&session.id, command("true")).await.unwrap().intent.run_id;
    let reply = service.cancel(&session.id, &run).await.unwrap();
    assert_eq!((reply.run.state, cause(&reply.run)), (RunState::Finished, Cause::Cancelled));
    assert!(reply.run.outcome.unwrap().detail.contains("before the command started"));
    service.shutdown(false).await.unwrap();
    let events = world.ledger().events(&run).await.unwrap();
    assert!(!events.contains(&RunEvent::Launched), "{events:?}");
}

#[tokio::test]
async fn cmd4_a_failed_launch_is_start_failed_and_swept() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.fail_next("no memory");
    let run = service.start_command(&session.id, command("true")).await.unwrap();
    let end = wait(&service, &session.id, &run.intent.run_id).await;
    assert_eq!((end.state, cause(&end)), (RunState::Finished, Cause::StartFailed));
    assert!(end.outcome.unwrap().detail.contains("no memory"));
    assert!(world.exec.was_swept(&run.intent.run_id));
}

#[tokio::test]
async fn cmd9_uncertain_cleanup_blocks_grants_across_a_restart() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.next(vec![
        Play::Supervising,
        Play::Launching,
        Play::Exit(0),
        Play::Removed(vec!["cgroup /x".into()]),
    ]);
    let run = service.start_command(&session.id, command("true")).await.unwrap();
    let end = wait(&service, &session.id, &run.intent.run_id).await;
    assert_eq!((end.state, end.cleanup), (RunState::Finishing, Cleanup::Uncertain));
    assert_eq!(end.recovery_phase.as_deref(), Some("reconcile"));
    assert!(service.status().reason.unwrap().contains("cgroup /x"));
    let other = world.session(&service).await;
    let refused = async |s: &Service| s.start_command(&other.id, command("true")).await.unwrap_err().code;
    assert_eq!(refused(&service).await, Code::NotReady);
    assert!(service.cancel(&session.id, &run.intent.run_id).await.unwrap().already_finished);
    assert!(!world.exec.was_forgotten(&run.intent.run_id));
    service.shutdown(false).await.unwrap();
    let service = world.start().await;
    assert!(!service.status().ready);
    assert_eq!(refused(&service).await, Code::NotReady);
    assert_eq!(service.run(&session.id, &run.intent.run_id).await.unwrap().cleanup, Cleanup::Uncertain);
    let reconcile = service.reconcile(&session.id, &run.intent.run_id).await;
    assert_eq!(reconcile.unwrap_err().code, Code::NotBuilt);
}

#[tokio::test]
async fn cmd8_a_supervisor_lost_after_the_launch_means_interrupted() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    for (script, detail) in [
        (vec![Play::Supervising, Play::Launching], "the exit status was not observed"),
        (vec![Play::Supervising], "the command never ran"),
    ] {
        world.exec.next(script);
        let run = service.start_command(&session.id, command("true")).await.unwrap();
        let end = wait(&service, &session.id, &run.intent.run_id).await;
        assert_eq!((end.state, end.cleanup), (RunState::Interrupted, Cleanup::Confirmed));
        let outcome = end.outcome.unwrap();
        assert!(outcome.detail.contains(detail) && outcome.exit_code.is_none(), "{outcome:?}");
        assert!(world.exec.was_swept(&run.intent.run_id));
        assert_eq!(world.exec.launches(&run.intent.run_id), 1);
    }
    world.exec.sweeps_leave(&["mount /y"]);
    world.exec.next(vec![Play::Supervising, Play::Launching]);
    let run = service.start_command(&session.id, command("true")).await.unwrap();
    let end = wait(&service, &session.id, &run.intent.run_id).await;
    assert_eq!((end.state, end.cleanup), (RunState::Interrupted, Cleanup::Uncertain));
    assert!(!service.status().ready);
}

#[tokio::test]
async fn cmd5_a_deaf_supervisor_is_swept_after_the_grace() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.next(vec![Play::Supervising, Play::Launching, Play::Deaf]);
    let run = service.start_command(&session.id, command("true")).await.unwrap().intent.run_id;
    state(&service, &session.id, &run, RunState::Running).await;
    tokio::time::pause();
    let reply = service.cancel(&session.id, &run).await.unwrap();
    assert_eq!(reply.run.state, RunState::Interrupted);
    assert!(reply.run.cancel_requested && !reply.already_finished);
    assert!(world.exec.was_swept(&run));
}

#[tokio::test]
async fn cmd6_a_deadline_that_the_supervisor_misses_is_kept_by_the_service() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.next(vec![Play::Supervising, Play::Launching, Play::Deaf]);
    let run = service.start_command(&session.id, command("true")).await.unwrap().intent.run_id;
    state(&service, &session.id, &run, RunState::Running).await;
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let mut watch = service.follow(&session.id, &run).await.unwrap();
    let end = watch.wait_for(settled).await.unwrap().clone();
    let waited = began.elapsed().as_secs();
    assert!((33..=36).contains(&waited), "{waited} s");
    assert_eq!(end.state, RunState::Interrupted);
}

#[tokio::test]
async fn cmd8_a_restart_adopts_the_run_under_its_ids() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.next(vec![
        Play::Supervising,
        Play::Launching,
        Play::Wait(Duration::from_millis(300)),
        Play::Exit(7),
        Play::Removed(vec![]),
    ]);
    let run = service.start_command(&session.id, keyed("k", "true")).await.unwrap().intent.run_id;
    state(&service, &session.id, &run, RunState::Running).await;
    service.shutdown(false).await.unwrap();
    let service = world.start().await;
    let live = service.run(&session.id, &run).await.unwrap();
    assert!(!live.state.is_terminal());
    assert_eq!(service.status().runs, 1);
    let busy = service.start_command(&session.id, command("x")).await.unwrap_err();
    assert_eq!(busy.code, Code::Busy);
    let end = wait(&service, &session.id, &run).await;
    assert_eq!((end.state, end.outcome.as_ref().unwrap().exit_code), (RunState::Finished, Some(7)));
    assert_eq!(end.recovery_phase, None);
    assert_eq!(world.exec.launches(&run), 1);
    service.shutdown(false).await.unwrap();
    // Any number of further recoveries changes nothing (B7).
    let events = world.ledger().events(&run).await.unwrap();
    for _ in 0..3 {
        world.start().await.shutdown(false).await.unwrap();
    }
    assert_eq!(world.ledger().events(&run).await.unwrap(), events);
}

#[tokio::test]
async fn cmd8_an_end_that_came_while_the_service_was_down_is_recorded() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.next(vec![
        Play::Supervising,
        Play::Launching,
        Play::Wait(Duration::from_millis(50)),
        Play::Exit(9),
        Play::Removed(vec![]),
    ]);
    let run = service.start_command(&session.id, command("true")).await.unwrap().intent.run_id;
    state(&service, &session.id, &run, RunState::Running).await;
    service.shutdown(false).await.unwrap();
    tokio::time::sleep(Duration::from_millis(150)).await;
    let service = world.start().await;
    let before = service.commits();
    let end = wait(&service, &session.id, &run).await;
    assert_eq!(end.outcome.unwrap().exit_code, Some(9));
    assert!(service.commits() - before <= 1, "what is found together is committed together");
    until_forgotten(&world.exec, &run).await;
}

#[tokio::test]
async fn cmd8_an_intent_without_a_launch_is_never_sent() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.next(Play::endless());
    let run = service.start_command(&session.id, keyed("k", "true")).await.unwrap().intent.run_id;
    state(&service, &session.id, &run, RunState::Running).await;
    service.shutdown(false).await.unwrap();
    // The same ledger over an executor that has never heard of the run: a kill before the launch (B2).
    let world = World { tmp: world.tmp, exec: Scripted::new() };
    let service = world.start().await;
    let end = wait(&service, &session.id, &run).await;
    assert_eq!((end.state, end.cleanup), (RunState::Interrupted, Cleanup::Confirmed));
    assert!(end.outcome.as_ref().unwrap().detail.contains("the command never ran"));
    assert_eq!(service.start_command(&session.id, keyed("k", "true")).await.unwrap(), end);
    assert_eq!(world.exec.launched(), 0);
}

#[tokio::test]
async fn cmd8_a_reboot_interrupts_what_was_live_and_keeps_what_was_seen() {
    for (script, want) in [
        (vec![Play::Supervising, Play::Launching, Play::Deaf], Cause::Interrupted),
        (vec![Play::Supervising, Play::Launching, Play::Exit(4), Play::Deaf], Cause::Exited),
    ] {
        let world = World::new();
        let service = world.start().await;
        let session = world.session(&service).await;
        world.exec.next(script);
        let run = service.start_command(&session.id, command("true")).await.unwrap().intent.run_id;
        let seen = if want == Cause::Exited { RunState::Finishing } else { RunState::Running };
        state(&service, &session.id, &run, seen).await;
        service.shutdown(false).await.unwrap();
        world.exec.lose_all();
        let service = world.start_in("boot-2").await;
        let end = service.run(&session.id, &run).await.unwrap();
        assert!(end.state.is_terminal() && end.cleanup == Cleanup::Confirmed, "{end:?}");
        assert_eq!(cause(&end), want);
        assert!(world.exec.was_swept(&run));
        if want == Cause::Interrupted {
            assert!(end.outcome.unwrap().detail.contains("the host was restarted"));
        }
        assert!(service.status().ready);
    }
}

#[tokio::test]
async fn cmd8_a_restart_during_a_cancel_finishes_it() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.next(vec![Play::Supervising, Play::Launching, Play::Deaf]);
    let run = service.start_command(&session.id, command("true")).await.unwrap().intent.run_id;
    state(&service, &session.id, &run, RunState::Running).await;
    let asker = tokio::spawn({
        let (service, session, run) = (service.clone(), session.id.clone(), run.clone());
        async move { service.cancel(&session, &run).await }
    });
    let mut watch = service.follow(&session.id, &run).await.unwrap();
    watch.wait_for(|run| run.cancel_requested).await.unwrap();
    service.shutdown(false).await.unwrap();
    assert!(asker.await.unwrap().is_err(), "a cancel is not answered before the run is settled");
    world.exec.lose_all();
    let service = world.start().await;
    let end = wait(&service, &session.id, &run).await;
    assert!(end.cancel_requested && end.state == RunState::Interrupted);
}

#[tokio::test]
async fn svc5_stop_with_cancel_leaves_no_live_run() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.next(Play::endless());
    let run = service.start_command(&session.id, command("sleep 99")).await.unwrap().intent.run_id;
    service.shutdown(true).await.unwrap();
    let refused = service.start_command(&session.id, command("true")).await.unwrap_err();
    assert_eq!(refused.code, Code::NotReady);
    let end = world.ledger().run(&run).await.unwrap();
    assert_eq!((end.state, cause(&end)), (RunState::Finished, Cause::Cancelled));
}

#[tokio::test]
async fn ft5_a_ledger_failure_latches_and_reads_go_on() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.next(Play::endless());
    let run = service.start_command(&session.id, command("true")).await.unwrap().intent.run_id;
    state(&service, &session.id, &run, RunState::Running).await;
    world.sql("ALTER TABLE events RENAME TO lost");
    let refused = service.cancel(&session.id, &run).await.unwrap_err();
    assert!(refused.message.contains("could not be recorded"), "{refused}");
    world.sql("ALTER TABLE lost RENAME TO events");
    // The table is back, the latch stays: nothing is written until the ledger is reopened.
    let other = world.session_refused(&service).await;
    assert_eq!(other.code, Code::NotReady);
    let status = service.status();
    assert!(!status.ready && status.reason.unwrap().contains("ledger"));
    assert_eq!(service.session(&session.id).await.unwrap(), session);
    let view = service.run(&session.id, &run).await.unwrap();
    assert_eq!(view.recovery_phase.as_deref(), Some("unrecorded"));
    assert!(!view.state.is_terminal());
    service.shutdown(false).await.unwrap();
    let service = world.start().await;
    assert!(service.status().ready);
    assert_eq!(cause(&service.cancel(&session.id, &run).await.unwrap().run), Cause::Cancelled);
}

impl World {
    async fn session_refused(&self, service: &Service) -> Refusal {
        let req = CreateSession { kind: SessionKind::Coding, cwd: self.path("project") };
        service.create_session(req).await.unwrap_err()
    }
}

#[tokio::test]
async fn svc3_a_newer_foreign_or_damaged_ledger_is_refused_by_name() {
    let world = World::new();
    world.start().await.shutdown(false).await.unwrap();
    let refusal = async || Opened::open(&world.path("state")).await.map(|_| ()).unwrap_err().message;
    world.sql("PRAGMA user_version = 99");
    let newer = refusal().await;
    assert!(newer.contains("format 99") && newer.contains("ledger.db"), "{newer}");
    world.sql("PRAGMA user_version = 1; PRAGMA application_id = 5");
    assert!(refusal().await.contains("not a ledger of this program"));
    let path = world.path("state/ledger.db");
    std::fs::write(
        &path,
        "no database at all, but long enough to be taken for one by its length ".repeat(99),
    )
    .unwrap();
    assert!(refusal().await.contains("is damaged"));
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(world.path("elsewhere"), &path).unwrap();
    assert!(refusal().await.contains("cannot be opened"));
    assert!(!world.path("elsewhere").exists());
}

#[tokio::test]
async fn svc3_a_second_service_is_refused_while_the_first_lives() {
    let world = World::new();
    let service = world.start().await;
    let refused = Opened::open(&world.path("state")).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.code, Code::AlreadyRunning);
    service.shutdown(false).await.unwrap();
    world.start().await;
}

#[tokio::test]
async fn ws1_a_refused_import_leaves_nothing_and_a_session_can_be_removed() {
    let world = World::new();
    let service = world.start().await;
    let empty = CreateSession { kind: SessionKind::Coding, cwd: world.path("coding") };
    assert_eq!(service.create_session(empty).await.unwrap_err().code, Code::ImportRefused);
    assert!(service.sessions().await.unwrap().is_empty());
    let plain = CreateSession { kind: SessionKind::Ordinary, cwd: PathBuf::new() };
    let plain = service.create_session(plain).await.unwrap();
    let refused = service.start_command(&plain.id, command("true")).await.unwrap_err();
    assert_eq!(refused.code, Code::Forbidden);
    let session = world.session(&service).await;
    assert_eq!(session.excluded.len(), 1);
    assert_eq!(session.workspace.as_ref().unwrap().revision, 1);
    world.exec.next(vec![
        Play::Supervising,
        Play::Launching,
        Play::Write(b"x".to_vec()),
        Play::Exit(0),
        Play::Removed(vec![]),
    ]);
    let run = service.start_command(&session.id, command("true")).await.unwrap().intent.run_id;
    wait(&service, &session.id, &run).await;
    let output = world.path("state/outputs").join(run.as_str());
    assert!(output.exists());
    service.end_session(&session.id).await.unwrap();
    let ended = service.start_command(&session.id, command("true")).await.unwrap_err();
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
async fn svc1_without_an_executor_commands_are_refused_and_saved_runs_stay() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    world.exec.next(Play::endless());
    let run = service.start_command(&session.id, command("true")).await.unwrap().intent.run_id;
    service.shutdown(false).await.unwrap();
    let opened = Opened::open(&world.path("state")).await.unwrap();
    let port = Arc::new(Plain(world.path("coding")));
    let chosen = opened.choose_in_boot(None, Some(port), "boot-1".into());
    let service = chosen.recover().await.unwrap().without_commands().unwrap().ready();
    assert_eq!(service.status().executor, "none");
    assert!(service.status().ready);
    let refused = service.start_command(&session.id, command("true")).await.unwrap_err();
    assert_eq!(refused.code, Code::Forbidden);
    assert_eq!(service.run(&session.id, &run).await.unwrap().state, RunState::Requested);
    let second = world.session(&service).await;
    assert_eq!(service.inspect_workspace(&second.id).await.unwrap().changes, vec![]);
}

#[tokio::test]
async fn cmd10_evidence_names_the_cause_and_fills_the_headroom() {
    let world = World::new();
    let service = world.start().await;
    let session = world.session(&service).await;
    let evidence = Evidence {
        oom_kills: 1,
        memory_peak: Some(5),
        stored_bytes: 2,
        total_bytes: 9,
        ..Evidence::default()
    };
    world.exec.next(vec![
        Play::Supervising,
        Play::Launching,
        Play::Tell(Record::Exited { ending: Ending::Signalled(9), evidence }),
        Play::Removed(vec![]),
    ]);
    let run = service.start_command(&session.id, command("true")).await.unwrap();
    let end = wait(&service, &session.id, &run.intent.run_id).await;
    assert_eq!((cause(&end), end.outcome.as_ref().unwrap().exit_code), (Cause::Oom, Some(137)));
    assert_eq!(end.headroom.memory_peak, Some(5));
    assert_eq!((end.output.stored_bytes, end.output.total_bytes, end.output.truncated), (2, 9, true));
}
