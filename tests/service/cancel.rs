//! Cancels and deadlines, and a stop that cancels (CMD.5, CMD.6).

use crate::world::{World, cause, command, launched, refusal, running, start, wait};
use salaam::domain::outcome::Cause;
use salaam::domain::refusal::Code;
use salaam::domain::run::{Cleanup, RunEvent, RunState};
use salaam::exec::scripted::Play;
use salaam::service::{Graces, clock};
use std::time::{Duration, Instant};

#[tokio::test]
async fn cmd5_a_cancel_is_committed_first_and_answers_when_settled() {
    let (world, service, session) = World::ready().await;
    world.exec.next(Play::endless());
    let run = running(&service, &session, command("sleep 99")).await;
    let reply = service.cancel(&session.id, &run).await.unwrap();
    assert!(!reply.already_finished && reply.run.cancel_requested);
    assert_eq!((reply.run.state, cause(&reply.run)), (RunState::Finished, Cause::Cancelled));
    let again = service.cancel(&session.id, &run).await.unwrap();
    assert!(again.already_finished);
    assert_eq!(again.run, reply.run);
    service.shutdown(false).await.unwrap();
    let events = world.ledger().events(&run).await.unwrap();
    assert_eq!(events[1..4], [RunEvent::CreateAsked, RunEvent::Launched, RunEvent::CancelRequested]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cmd5_cancel_against_exit_has_one_end_in_200_rounds() {
    let (world, service, session) = World::ready().await;
    let (mut runs, mut won, mut late) = (Vec::new(), 0, 0);
    for round in 0..200u64 {
        let wait = Play::Wait(Duration::from_micros(round % 10 * 300));
        world.exec.next(launched([wait, Play::Exit(0), Play::Removed(vec![])]));
        let run = start(&service, &session, command("true")).await;
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
async fn cmd4_a_cancel_before_the_launch_tells_no_launch() {
    let (world, service, session) = World::ready().await;
    world.exec.next(vec![Play::Supervising, Play::Hold]);
    let run = start(&service, &session, command("true")).await;
    let reply = service.cancel(&session.id, &run).await.unwrap();
    assert_eq!((reply.run.state, cause(&reply.run)), (RunState::Finished, Cause::Cancelled));
    assert!(reply.run.outcome.unwrap().detail.contains("before the command started"));
    service.shutdown(false).await.unwrap();
    let events = world.ledger().events(&run).await.unwrap();
    assert!(!events.contains(&RunEvent::Launched), "{events:?}");
}

#[tokio::test]
async fn cmd5_a_deaf_supervisor_is_swept_after_the_grace() {
    let world = World::new();
    let graces = Graces { removal: Duration::from_millis(300), ..Graces::default() };
    let service = world.start_with("boot-1", graces).await;
    let session = world.session(&service).await;
    world.exec.next(launched([Play::Deaf]));
    let run = running(&service, &session, command("true")).await;
    let began = Instant::now();
    let reply = service.cancel(&session.id, &run).await.unwrap();
    assert_eq!(reply.run.state, RunState::Interrupted);
    assert!(reply.run.cancel_requested && !reply.already_finished);
    assert!(world.exec.was_swept(&run));
    assert!((300..5_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}

#[tokio::test]
async fn cmd6_a_deadline_that_the_supervisor_misses_is_kept_by_the_service() {
    let (world, service, session) = World::ready().await;
    world.exec.next(launched([Play::Deaf]));
    let run = running(&service, &session, command("true")).await;
    service.shutdown(false).await.unwrap();
    // The deadline is brought near, and the run observed again.
    let deadline = clock::boottime_ns().unwrap() + 500_000_000;
    world.sql(&format!("UPDATE runs SET intent = json_set(intent, '$.deadline_ns', {deadline})"));
    let graces = Graces { deadline: Duration::from_millis(400), ..Graces::default() };
    let service = world.start_with("boot-1", graces).await;
    let end = wait(&service, &session.id, &run).await;
    let over = clock::boottime_ns().unwrap().checked_sub(deadline).expect("not before the deadline");
    assert!((400_000_000..5_000_000_000).contains(&over), "{over} ns");
    assert_eq!(end.state, RunState::Interrupted);
    assert!(world.exec.was_swept(&run));
}

#[tokio::test]
async fn cmd8_a_restart_during_a_cancel_finishes_it() {
    let (world, service, session) = World::ready().await;
    world.exec.next(launched([Play::Deaf]));
    let run = running(&service, &session, command("true")).await;
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
    let (world, service, session) = World::ready().await;
    world.exec.next(Play::endless());
    let run = start(&service, &session, command("sleep 99")).await;
    service.shutdown(true).await.unwrap();
    let refused = refusal(&service, &session, command("true")).await;
    assert_eq!(refused.code, Code::NotReady);
    let end = world.ledger().run(&run).await.unwrap();
    assert_eq!((end.state, cause(&end)), (RunState::Finished, Cause::Cancelled));
}
