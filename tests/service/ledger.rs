//! A ledger that fails, is not ours, or is in use (FT.5, SVC.3).

use crate::world::{World, cause, command, running};
use salaam::domain::outcome::Cause;
use salaam::domain::refusal::Code;
use salaam::exec::scripted::Play;
use salaam::service::startup::Opened;

#[tokio::test]
async fn ft5_a_ledger_failure_latches_and_reads_go_on() {
    let (world, service, session) = World::ready().await;
    world.exec.next(Play::endless());
    let run = running(&service, &session, command("true")).await;
    world.sql("ALTER TABLE events RENAME TO lost");
    let refused = service.cancel(&session.id, &run).await.unwrap_err();
    assert!(refused.message.contains("could not be recorded"), "{refused}");
    world.sql("ALTER TABLE lost RENAME TO events");
    // The table is back, the latch stays: nothing is written until the ledger is reopened.
    let other = world.try_session(&service).await.unwrap_err();
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
