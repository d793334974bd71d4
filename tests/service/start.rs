//! Starting a command: its plain path, places, readiness and what an end is told as (CMD.3, CMD.4, PRF.4).

use crate::world::{Plain, World, cause, command, keyed, launched, refusal, start, until_forgotten, wait};
use salaam::domain::outcome::{Cause, Ending, Evidence};
use salaam::domain::record::Record;
use salaam::domain::refusal::Code;
use salaam::domain::run::{Cleanup, RunState};
use salaam::exec::scripted::Play;
use salaam::service::startup::Opened;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn cmd4_the_plain_path_costs_three_commits_and_is_told_in_order() {
    let (world, service, session) = World::ready().await;
    world.exec.next(launched([
        Play::Write(b"hello\n".to_vec()),
        Play::Exit(3),
        Play::Wait(Duration::from_millis(30)),
        Play::Removed(vec![]),
    ]));
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
    assert_eq!(names, ["requested", "create_asked", "launched", "ended", "removed"]);
}

#[tokio::test]
async fn cmd3_two_places_per_service_and_one_per_workspace() {
    let world = World::new();
    let service = world.start().await;
    let (a, b, c) =
        (world.session(&service).await, world.session(&service).await, world.session(&service).await);
    world.exec.next(Play::endless());
    world.exec.next(Play::endless());
    let first = start(&service, &a, keyed("k", "x")).await;
    let own = refusal(&service, &a, command("y")).await;
    assert!(own.code == Code::Busy && own.message.contains(first.as_str()), "{own}");
    let second = start(&service, &b, command("x")).await;
    let full = refusal(&service, &c, command("x")).await;
    assert!(full.message.contains(first.as_str()) && full.message.contains(second.as_str()), "{full}");
    // An existing key is no new run.
    assert_eq!(start(&service, &a, keyed("k", "x")).await, first);
    assert_eq!(service.end_session(&a.id).await.unwrap_err().code, Code::Busy);
    assert_eq!(service.remove_session(&a.id).await.unwrap_err().code, Code::Busy);
    assert_eq!(service.status().runs, 2);
    service.cancel(&a.id, &first).await.unwrap();
    let third = start(&service, &c, command("x")).await;
    assert_eq!(cause(&wait(&service, &c.id, &third).await), Cause::Exited);
}

#[tokio::test]
async fn prf4_a_mismatch_fails_the_run_and_withdraws_readiness() {
    let (world, service, session) = World::ready().await;
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
    let run = start(&service, &session, command("true")).await;
    let end = wait(&service, &session.id, &run).await;
    assert_eq!((end.state, cause(&end)), (RunState::Finished, Cause::StartFailed));
    assert!(service.status().ready);
    world.exec.next(failed(true));
    let run = start(&service, &session, command("true")).await;
    assert_eq!(cause(&wait(&service, &session.id, &run).await), Cause::StartFailed);
    let status = service.status();
    assert!(!status.ready && status.reason.unwrap().contains("pids.max is 64"));
    let refused = refusal(&service, &session, command("true")).await;
    assert_eq!(refused.code, Code::NotReady);
}

#[tokio::test]
async fn prf4_another_engine_than_the_proved_one_gets_no_command() {
    let (world, service, session) = World::ready().await;
    world.exec.becomes("scripted, upgraded");
    let refused = refusal(&service, &session, command("true")).await;
    assert!(refused.code == Code::NotReady && refused.message.contains("upgraded"), "{refused}");
    assert!(!service.status().ready);
    assert_eq!(world.exec.launched(), 0);
}

#[tokio::test]
async fn cmd4_a_failed_launch_is_start_failed_and_swept() {
    let (world, service, session) = World::ready().await;
    world.exec.fail_next("no memory");
    let run = start(&service, &session, command("true")).await;
    let end = wait(&service, &session.id, &run).await;
    assert_eq!((end.state, cause(&end)), (RunState::Finished, Cause::StartFailed));
    assert!(end.outcome.unwrap().detail.contains("no memory"));
    assert!(world.exec.was_swept(&run));
}

#[tokio::test]
async fn svc1_without_an_executor_commands_are_refused_and_saved_runs_stay() {
    let (world, service, session) = World::ready().await;
    world.exec.next(Play::endless());
    let run = start(&service, &session, command("true")).await;
    service.shutdown(false).await.unwrap();
    let opened = Opened::open(&world.path("state")).await.unwrap();
    let port = Arc::new(Plain::new(world.path("coding")));
    let chosen = opened.choose_in_boot(None, Some(port), "boot-1".into());
    let service = chosen.recover().await.unwrap().without_commands().unwrap().ready();
    assert_eq!(service.status().executor, "none");
    assert!(service.status().ready);
    let refused = refusal(&service, &session, command("true")).await;
    assert_eq!(refused.code, Code::Forbidden);
    assert_eq!(service.run(&session.id, &run).await.unwrap().state, RunState::Requested);
    let second = world.session(&service).await;
    assert_eq!(service.inspect_workspace(&second.id).await.unwrap().changes, vec![]);
}

#[tokio::test]
async fn cmd10_evidence_names_the_cause_and_fills_the_headroom() {
    let (world, service, session) = World::ready().await;
    let evidence = Evidence {
        oom_kills: 1,
        memory_peak: Some(5),
        stored_bytes: 2,
        total_bytes: 9,
        ..Evidence::default()
    };
    world.exec.next(launched([
        Play::Tell(Record::Exited { ending: Ending::Signalled(9), evidence }),
        Play::Removed(vec![]),
    ]));
    let run = start(&service, &session, command("true")).await;
    let end = wait(&service, &session.id, &run).await;
    assert_eq!((cause(&end), end.outcome.as_ref().unwrap().exit_code), (Cause::Oom, Some(137)));
    assert_eq!(end.headroom.memory_peak, Some(5));
    assert_eq!((end.output.stored_bytes, end.output.total_bytes, end.output.truncated), (2, 9, true));
}
