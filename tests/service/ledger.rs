//! A ledger that fails, is not ours, or is in use (FT.5, SVC.3).

use crate::world::{Plain, Proof, World, cause, command, keyed, launched, refusal, running, start, wait};
use salaam::domain::ids::RunId;
use salaam::domain::outcome::Cause;
use salaam::domain::refusal::Code;
use salaam::domain::run::{RunEvent, RunState};
use salaam::domain::session::Session;
use salaam::exec::scripted::Play;
use salaam::service::startup::Opened;
use salaam::service::{Graces, Service, settled};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

fn reopening_after(pause: Duration) -> Graces {
    Graces { reopen: pause, ..Graces::default() }
}

async fn until_ready(service: &Service) {
    for _ in 0..500 {
        if service.status().ready {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not ready: {:?}", service.status());
}

/// A ledger whose table of events is away, so that every commit on a run fails, until `mend`.
async fn broken() -> (World, Service, Session, RunId) {
    let world = World::new();
    let service = world.start_with("boot-1", reopening_after(Duration::from_millis(400))).await;
    let session = world.session(&service).await;
    world.exec.next(Play::endless());
    let run = running(&service, &session, keyed("k", "true")).await;
    world.sql("ALTER TABLE events RENAME TO lost");
    let refused = service.cancel(&session.id, &run).await.unwrap_err();
    assert!(refused.message.contains("could not be recorded"), "{refused}");
    (world, service, session, run)
}

fn mend(world: &World) {
    world.sql("ALTER TABLE lost RENAME TO events");
}

#[tokio::test]
async fn ft5_a_ledger_failure_latches_and_reads_go_on() {
    let (world, service, session, run) = broken().await;
    mend(&world);
    // The table is back, the latch stays: nothing is written until the ledger is reopened.
    let other = world.try_session(&service).await.unwrap_err();
    assert_eq!(other.code, Code::NotReady);
    let status = service.status();
    assert!(!status.ready && status.reason.unwrap().contains("ledger"));
    assert_eq!(service.session(&session.id).await.unwrap(), session);
    let view = service.run(&session.id, &run).await.unwrap();
    assert_eq!(view.recovery_phase.as_deref(), Some("unrecorded"));
    assert!(!view.state.is_terminal());
    let again = service.cancel(&session.id, &run).await.unwrap_err();
    assert!(again.message.contains("could not be recorded"), "{again}");
    assert_eq!(service.start_command(&session.id, keyed("k", "true")).await.unwrap().intent.run_id, run);
    service.shutdown(false).await.unwrap();
    let service = world.start().await;
    assert!(service.status().ready);
    assert_eq!(cause(&service.cancel(&session.id, &run).await.unwrap().run), Cause::Cancelled);
}

#[tokio::test]
async fn ft5_the_ledger_is_opened_again_by_itself_and_its_runs_go_on() {
    let (world, service, session, run) = broken().await;
    mend(&world);
    until_ready(&service).await;
    let view = service.run(&session.id, &run).await.unwrap();
    assert!(view.recovery_phase.as_deref() != Some("unrecorded"), "{view:?}");
    // The cancel whose commit failed was not assumed: it is ordered anew.
    assert!(!view.cancel_requested);
    assert_eq!(cause(&service.cancel(&session.id, &run).await.unwrap().run), Cause::Cancelled);
    assert_eq!(world.exec.launches(&run), 1);
    let next = start(&service, &session, command("true")).await;
    assert_eq!(cause(&wait(&service, &session.id, &next).await), Cause::Exited);
    let ends = service.history(&session.id, &run).await.unwrap();
    assert_eq!(ends.iter().filter(|e| matches!(e.event, RunEvent::Ended { .. })).count(), 1, "{ends:?}");
}

#[tokio::test]
async fn ft5_what_ends_while_the_ledger_is_latched_is_recorded_afterwards() {
    let world = World::new();
    let service = world.start_with("boot-1", reopening_after(Duration::from_millis(50))).await;
    let session = world.session(&service).await;
    let wait_then = |status| {
        launched([Play::Wait(Duration::from_millis(100)), Play::Exit(status), Play::Removed(vec![])])
    };
    world.exec.next(wait_then(7));
    let run = running(&service, &session, command("exit 7")).await;
    // The disk comes and goes: the file cannot be written for a while, then for good.
    world.sql("ALTER TABLE events RENAME TO lost");
    let view = service.follow(&session.id, &run).await.unwrap();
    for _ in 0..200 {
        if view.borrow().recovery_phase.as_deref() == Some("unrecorded") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // What is not recorded is told to nobody as the end.
    let told = view.borrow().clone();
    assert!(!settled(&told) && told.outcome.is_none(), "{told:?}");
    assert_eq!(refusal(&service, &session, command("true")).await.code, Code::NotReady);
    tokio::time::sleep(Duration::from_millis(150)).await;
    mend(&world);
    let end = wait(&service, &session.id, &run).await;
    assert_eq!((end.state, cause(&end)), (RunState::Finished, Cause::Exited));
    assert_eq!((end.outcome.as_ref().unwrap().exit_code, world.exec.launches(&run)), (Some(7), 1));
    until_ready(&service).await;
    service.shutdown(false).await.unwrap();
    let ledger = world.ledger();
    assert_eq!(ledger.run(&run).await.unwrap(), end);
    let ends = ledger.events(&run).await.unwrap();
    assert_eq!(ends.iter().filter(|e| matches!(e, RunEvent::Ended { .. })).count(), 1, "{ends:?}");
}

/// A row that was open when the ledger was read and is settled by its driver since must not spoil the rest.
#[tokio::test]
async fn ft5_an_intent_that_came_through_a_failed_commit_is_settled_and_gives_its_place_back() {
    let world = World::new();
    let service = world.start_with("boot-1", reopening_after(Duration::from_millis(50))).await;
    let session = world.session(&service).await;
    world.exec.next(Play::endless());
    let run = running(&service, &session, keyed("k", "true")).await;
    // The trigger lets the row in and fails the statement after it: as for the service, so for us it is
    // not known what the commit left.
    let other = world.session(&service).await;
    world.sql("CREATE TRIGGER spoil AFTER INSERT ON events BEGIN SELECT RAISE(ROLLBACK, 'spoilt'); END");
    let refused = refusal(&service, &other, keyed("o", "true")).await;
    assert_eq!(refused.code, Code::NotReady, "{refused:?}");
    world.sql("DROP TRIGGER spoil");
    until_ready(&service).await;
    let again = start(&service, &other, keyed("o", "true")).await;
    assert_eq!(cause(&wait(&service, &other.id, &again).await), Cause::Exited);
    assert_eq!(cause(&service.cancel(&session.id, &run).await.unwrap().run), Cause::Cancelled);
}

#[tokio::test]
async fn b17_a_wall_clock_that_jumps_moves_no_deadline_and_no_order() {
    let tmp = World::new();
    let opened = Opened::open(&tmp.path("state")).await.unwrap();
    let hours = Arc::new(AtomicI64::new(0));
    let wall = {
        let hours = Arc::clone(&hours);
        let zero: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        move || zero + jiff::SignedDuration::from_hours(hours.load(Ordering::SeqCst))
    };
    let port = Arc::new(Plain::new(tmp.path("coding")));
    let chosen =
        opened.with_clock(Arc::new(wall)).choose_in_boot(Some(tmp.backend()), Some(port), "b".into());
    let service = chosen.recover().await.unwrap().prove(&Proof).await.unwrap().ready();
    let session = tmp.session(&service).await;
    for jump in [1, -1, 10 * 365 * 24, -10 * 365 * 24] {
        tmp.exec.next(launched([
            Play::Wait(Duration::from_millis(60)),
            Play::Exit(0),
            Play::Removed(vec![]),
        ]));
        let run = running(&service, &session, command("true")).await;
        hours.store(jump, Ordering::SeqCst);
        let end = wait(&service, &session.id, &run).await;
        assert_eq!((end.state, cause(&end)), (RunState::Finished, Cause::Exited), "{jump} h");
        hours.store(0, Ordering::SeqCst);
        let history = service.history(&session.id, &run).await.unwrap();
        assert!(history.is_sorted_by(|a, b| a.seq < b.seq), "{history:?}");
        assert!(history.first().unwrap().at.starts_with("2026-01-01T00:00:00"), "{history:?}");
        // The jump was seen, so the order is not the clock's.
        assert!(history.iter().any(|e| !e.at.starts_with("2026-01-01T00")), "{history:?}");
        let ms = end.headroom.cpu_ms;
        assert!(ms.is_none_or(|ms| ms < 60_000), "{ms:?}");
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
