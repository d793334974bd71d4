//! What a person can order for an uncertain run, and what is refused (CMD.9).

use crate::world::{World, cause, command, launched, refusal, start, wait};
use salaam::domain::ids::RunId;
use salaam::domain::outcome::Cause;
use salaam::domain::refusal::Code;
use salaam::domain::run::{Cleanup, RunEvent, RunState};
use salaam::domain::session::Session;
use salaam::exec::scripted::Play;
use salaam::service::Service;

/// A run whose container could not be removed.
async fn uncertain(script: Vec<Play>) -> (World, Service, Session, RunId) {
    let (world, service, session) = World::ready().await;
    world.exec.sweeps_leave(&["cgroup /x"]);
    world.exec.next(script);
    let run = start(&service, &session, command("true")).await;
    let end = wait(&service, &session.id, &run).await;
    assert_eq!(end.cleanup, Cleanup::Uncertain);
    assert!(service.status().reason.unwrap().contains("cgroup /x"));
    (world, service, session, run)
}

#[tokio::test]
async fn cmd9_reconcile_settles_once_nothing_lives_and_nothing_is_left() {
    let exited = launched([Play::Exit(5), Play::Removed(vec!["cgroup /x".into()])]);
    for (script, state, event) in [
        (exited, RunState::Finished, RunEvent::Removed),
        (launched([]), RunState::Interrupted, RunEvent::CleanedUp),
    ] {
        let (world, service, session, run) = uncertain(script).await;
        let before = service.run(&session.id, &run).await.unwrap();
        // Something lives: nothing is swept, for a sweep kills.
        let sweeps = world.exec.swept();
        world.exec.lives(&["process 4711"]);
        let refused = service.reconcile(&session.id, &run).await.unwrap_err();
        assert_eq!(refused.code, Code::NotReady);
        assert!(refused.message.contains("process 4711") && refused.hint.contains("kill"), "{refused:?}");
        assert_eq!(world.exec.swept(), sweeps);
        // Nothing lives, but something is left.
        world.exec.lives(&[]);
        let refused = service.reconcile(&session.id, &run).await.unwrap_err();
        assert_eq!(refused.code, Code::NotReady);
        assert!(refused.message.contains("cgroup /x") && refused.hint.contains("by hand"), "{refused:?}");
        assert_eq!(service.run(&session.id, &run).await.unwrap(), before);
        assert_eq!(refusal(&service, &session, command("true")).await.code, Code::NotReady);
        // All gone: settled, once, and grants are back.
        world.exec.sweeps_leave(&[]);
        let end = service.reconcile(&session.id, &run).await.unwrap();
        assert_eq!((end.state, end.cleanup, &end.recovery_phase), (state, Cleanup::Confirmed, &None));
        assert_eq!(end.outcome, before.outcome);
        assert!(service.status().ready && world.exec.was_forgotten(&run));
        assert_eq!(service.reconcile(&session.id, &run).await.unwrap(), end);
        let history = service.history(&session.id, &run).await.unwrap();
        assert_eq!(history.iter().filter(|entry| entry.event == event).count(), 1, "{history:?}");
        let next = start(&service, &session, command("true")).await;
        assert_eq!(cause(&wait(&service, &session.id, &next).await), Cause::Exited);
    }
}

#[tokio::test]
async fn cmd9_reconcile_wants_the_original_executor_image_and_profile() {
    let other = format!("sha256:{}", "0".repeat(64));
    for (field, value, word) in [
        ("$.executor", "oci", "executor 'oci'"),
        ("$.image.manifest", other.as_str(), "with the image"),
        ("$.profile", other.as_str(), "profile"),
    ] {
        let (world, service, session, run) = uncertain(launched([Play::Exit(0)])).await;
        world.exec.sweeps_leave(&[]);
        let before = world.exec.swept();
        world.sql(&format!("UPDATE runs SET intent = json_set(intent, '{field}', '{value}')"));
        let refused = service.reconcile(&session.id, &run).await.unwrap_err();
        assert_eq!(refused.code, Code::Conflict, "{field}");
        assert!(refused.message.contains(word), "{refused:?}");
        assert!(refused.hint.contains("--image example/node@sha256:0"), "{refused:?}");
        assert_eq!(service.run(&session.id, &run).await.unwrap().cleanup, Cleanup::Uncertain);
        // Nor does a restart settle it; it keeps saying why.
        service.shutdown(false).await.unwrap();
        let service = world.start().await;
        let reason = service.status().reason.unwrap();
        assert!(reason.contains(word), "{reason}");
        assert_eq!(service.run(&session.id, &run).await.unwrap().cleanup, Cleanup::Uncertain);
        assert_eq!(world.exec.swept(), before);
    }
}

#[tokio::test]
async fn cmd9_many_reconciles_at_once_settle_once() {
    for script in [launched([Play::Exit(5), Play::Removed(vec!["cgroup /x".into()])]), launched([])] {
        let (world, service, session, run) = uncertain(script).await;
        world.exec.sweeps_leave(&[]);
        let orders = (0..8).map(|_| {
            let (service, session, run) = (service.clone(), session.id.clone(), run.clone());
            tokio::spawn(async move { service.reconcile(&session, &run).await })
        });
        let mut ends = Vec::new();
        for order in orders.collect::<Vec<_>>() {
            ends.push(order.await.unwrap().unwrap());
        }
        assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
        let history = service.history(&session.id, &run).await.unwrap();
        let settled = |e: &RunEvent| matches!(e, RunEvent::Removed | RunEvent::CleanedUp);
        assert_eq!(history.iter().filter(|entry| settled(&entry.event)).count(), 1, "{history:?}");
    }
}

/// An order that comes between the commit of an intent and its driver finds nothing to settle.
#[tokio::test]
async fn cmd9_reconcile_against_starts_kills_no_fresh_run() {
    let (world, service, session) = World::ready().await;
    for n in 0..50 {
        let key = format!("k{n}");
        let (starter, id) = (service.clone(), session.id.clone());
        let text = key.clone();
        let started = tokio::spawn(async move {
            starter.start_command(&id, crate::world::keyed(&text, "true")).await.unwrap().intent.run_id
        });
        while !started.is_finished() {
            for run in service.runs(&session.id).await.unwrap() {
                let _ = service.reconcile(&session.id, &run.intent.run_id).await;
            }
            tokio::task::yield_now().await;
        }
        let run = started.await.unwrap();
        let end = wait(&service, &session.id, &run).await;
        assert_eq!((cause(&end), world.exec.launches(&run)), (Cause::Exited, 1), "{key}");
    }
    assert!(service.status().ready);
}

#[tokio::test]
async fn cmd9_reconcile_leaves_an_observed_run_alone() {
    let (world, service, session) = World::ready().await;
    world.exec.next(Play::endless());
    let run = start(&service, &session, command("sleep 99")).await;
    assert_eq!(service.reconcile(&session.id, &run).await.unwrap_err().code, Code::Busy);
    assert_eq!(cause(&service.cancel(&session.id, &run).await.unwrap().run), Cause::Cancelled);
}
