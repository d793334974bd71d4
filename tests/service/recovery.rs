//! What a start finds of the runs before it, and cleanup that stays uncertain (CMD.8, CMD.9).

use crate::world::{
    World, cause, command, keyed, launched, refusal, running, start, state, until_forgotten, wait,
};
use salaam::domain::outcome::Cause;
use salaam::domain::refusal::Code;
use salaam::domain::run::{Cleanup, RunEvent, RunState};
use salaam::exec::scripted::{Play, Scripted};
use salaam::service::Service;
use salaam::service::startup::Opened;
use std::time::Duration;

#[tokio::test]
async fn cmd9_uncertain_cleanup_blocks_grants_across_a_restart() {
    let (world, service, session) = World::ready().await;
    world.exec.next(launched([Play::Exit(0), Play::Removed(vec!["cgroup /x".into()])]));
    let run = start(&service, &session, command("true")).await;
    let end = wait(&service, &session.id, &run).await;
    assert_eq!((end.state, end.cleanup), (RunState::Finishing, Cleanup::Uncertain));
    assert_eq!(end.recovery_phase.as_deref(), Some("reconcile"));
    assert!(service.status().reason.unwrap().contains("cgroup /x"));
    let other = world.session(&service).await;
    let refused = async |s: &Service| refusal(s, &other, command("true")).await.code;
    assert_eq!(refused(&service).await, Code::NotReady);
    assert!(service.cancel(&session.id, &run).await.unwrap().already_finished);
    assert!(!world.exec.was_forgotten(&run));
    service.shutdown(false).await.unwrap();
    world.exec.sweeps_leave(&["cgroup /x"]);
    let service = world.start().await;
    assert!(service.status().reason.unwrap().contains("cgroup /x"));
    let hint = refusal(&service, &other, command("true")).await.hint;
    assert!(hint.contains("sal commands reconcile"), "{hint}");
    assert_eq!(refused(&service).await, Code::NotReady);
    assert_eq!(service.run(&session.id, &run).await.unwrap().cleanup, Cleanup::Uncertain);
    assert!(!world.exec.was_forgotten(&run));
}

#[tokio::test]
async fn cmd9_a_start_that_finds_nothing_left_settles_an_uncertain_cleanup() {
    let exited = launched([Play::Exit(5)]);
    let lost = launched([]);
    for (script, state, event) in
        [(exited, RunState::Finished, RunEvent::Removed), (lost, RunState::Interrupted, RunEvent::CleanedUp)]
    {
        let (world, service, session) = World::ready().await;
        world.exec.sweeps_leave(&["cgroup /x"]);
        world.exec.next(script);
        let run = start(&service, &session, command("true")).await;
        let before = wait(&service, &session.id, &run).await;
        assert_eq!(before.cleanup, Cleanup::Uncertain);
        service.shutdown(false).await.unwrap();
        world.exec.sweeps_leave(&[]);
        // Another executor cannot tell, and no executor does not look.
        let opened = Opened::open(&world.path("state")).await.unwrap();
        let chosen = opened.choose_in_boot(None, None, "boot-1".into());
        let service = chosen.recover().await.unwrap().without_commands().unwrap().ready();
        assert_eq!(service.run(&session.id, &run).await.unwrap().cleanup, Cleanup::Uncertain);
        service.shutdown(false).await.unwrap();
        let service = world.start().await;
        assert!(service.status().ready, "{:?}", service.status());
        let end = service.run(&session.id, &run).await.unwrap();
        assert_eq!((end.state, end.cleanup, &end.recovery_phase), (state, Cleanup::Confirmed, &None));
        assert_eq!((&end.outcome, end.output), (&before.outcome, before.output));
        assert!(world.exec.was_forgotten(&run));
        let next = start(&service, &session, command("true")).await;
        assert_eq!(cause(&wait(&service, &session.id, &next).await), Cause::Exited);
        service.shutdown(false).await.unwrap();
        world.start().await.shutdown(false).await.unwrap();
        let events = world.ledger().events(&run).await.unwrap();
        assert_eq!(events.iter().filter(|e| **e == event).count(), 1, "{events:?}");
        assert_eq!(events.last(), Some(&event));
    }
}

#[tokio::test]
async fn cmd8_a_supervisor_lost_after_the_launch_means_interrupted() {
    let (world, service, session) = World::ready().await;
    for (script, detail) in [
        (launched([]), "the exit status was not observed"),
        (vec![Play::Supervising], "the command never ran"),
    ] {
        world.exec.next(script);
        let run = start(&service, &session, command("true")).await;
        let end = wait(&service, &session.id, &run).await;
        assert_eq!((end.state, end.cleanup), (RunState::Interrupted, Cleanup::Confirmed));
        let outcome = end.outcome.unwrap();
        assert!(outcome.detail.contains(detail) && outcome.exit_code.is_none(), "{outcome:?}");
        assert!(world.exec.was_swept(&run));
        assert_eq!(world.exec.launches(&run), 1);
    }
    world.exec.sweeps_leave(&["mount /y"]);
    world.exec.next(launched([]));
    let run = start(&service, &session, command("true")).await;
    let end = wait(&service, &session.id, &run).await;
    assert_eq!((end.state, end.cleanup), (RunState::Interrupted, Cleanup::Uncertain));
    assert!(!service.status().ready);
}

#[tokio::test]
async fn cmd8_a_restart_adopts_the_run_under_its_ids() {
    let (world, service, session) = World::ready().await;
    world.exec.next(launched([Play::Wait(Duration::from_millis(300)), Play::Exit(7), Play::Removed(vec![])]));
    let run = running(&service, &session, keyed("k", "true")).await;
    service.shutdown(false).await.unwrap();
    let service = world.start().await;
    let live = service.run(&session.id, &run).await.unwrap();
    assert!(!live.state.is_terminal());
    assert_eq!(service.status().runs, 1);
    let busy = refusal(&service, &session, command("x")).await;
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
    let (world, service, session) = World::ready().await;
    world.exec.next(launched([Play::Wait(Duration::from_millis(50)), Play::Exit(9), Play::Removed(vec![])]));
    let run = running(&service, &session, command("true")).await;
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
    let (world, service, session) = World::ready().await;
    world.exec.next(Play::endless());
    let run = running(&service, &session, keyed("k", "true")).await;
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
    for (script, want) in
        [(launched([Play::Deaf]), Cause::Interrupted), (launched([Play::Exit(4), Play::Deaf]), Cause::Exited)]
    {
        let (world, service, session) = World::ready().await;
        world.exec.next(script);
        let run = start(&service, &session, command("true")).await;
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
