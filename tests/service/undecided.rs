//! Applications that a failure leaves undecided: none is decided on by what says nothing about it, each is
//! taken up again by itself and before a session ends (FT.4, FT.5); and the coding root that a ledger is
//! bound to.

use crate::publish::{Meddled, call, change, directories, disk, imported, intended, meddled, meddled_with};
use crate::publish::{next, now, of, write};
use crate::world::{Plain, Proof, World, command, start, wait};
use salaam::domain::application::{Event, Intent};
use salaam::domain::refusal::{Code, Refusal};
use salaam::domain::session::Session;
use salaam::service::ports::{RevisionPort as _, WorkspacePort};
use salaam::service::startup::Opened;
use salaam::service::{Graces, Service};
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// A pause after which nothing happens within a test.
const NEVER: Duration = Duration::from_secs(3600);

fn open(world: &World) -> i64 {
    let ledger = rusqlite::Connection::open(world.path("state/ledger.db")).unwrap();
    let sql = "SELECT count(*) FROM applications WHERE phase = 'intended'";
    ledger.query_row(sql, [], |row| row.get(0)).unwrap()
}

async fn until_decided(world: &World) {
    for _ in 0..1_000 {
        if open(world) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it stays undecided");
}

async fn events(world: &World, session: &Session) -> Vec<Event> {
    let ledger = world.ledger();
    let journal = ledger.journal(&session.id).await.unwrap();
    ledger.close();
    journal.into_iter().map(|entry| entry.event).collect()
}

/// Fails a publication in such a way that it stays undecided.
async fn fail(service: &Service, session: &Session, port: &Meddled) -> Refusal {
    for step in ["sync", "discard"] {
        port.hook(step, || Err(disk("i/o error")));
    }
    let planned = change(of(session), &imported(), &next());
    service.publish(&session.id, planned, call("c", "x")).await.unwrap_err()
}

/// The intent and the whole target that a killed service leaves.
async fn killed() -> (World, Session, Intent) {
    let (world, service, session) = World::ready().await;
    service.shutdown(false).await.unwrap();
    let target = Plain::new(world.path("coding")).room(&of(&session).id, 2, &Default::default()).unwrap();
    let intent = intended(&world, of(&session), &session, &target).await;
    write(&Plain::new(world.path("coding")).staged(&intent), &next());
    (world, session, intent)
}

#[tokio::test]
async fn ft4_what_stays_undecided_is_told_and_taken_up_by_itself() {
    let (world, service, session, port) = meddled_with(Duration::from_millis(200)).await;
    // The first two attempts fail as well.
    let refused = fail(&service, &session, &port).await;
    for _ in 0..2 {
        port.hook("discard", || Err(disk("i/o error")));
    }
    assert_eq!(refused.code, Code::NotReady);
    assert!(refused.message.contains("not known yet") && refused.message.contains("i/o error"), "{refused}");
    assert!(refused.hint.contains("repeat the call c "), "{}", refused.hint);
    assert_eq!(open(&world), 1);
    until_decided(&world).await;
    assert!(port.hooks.lock().unwrap().is_empty());
    assert_eq!(directories(&world, &session), ["1"]);
    service.shutdown(false).await.unwrap();
    assert!(matches!(events(&world, &session).await[..], [Event::Intended, Event::Failed { .. }]));
}

#[tokio::test]
async fn ft4_a_stop_waits_for_what_is_being_decided_on() {
    let (world, service, session, port) = meddled_with(Duration::from_millis(50)).await;
    let [begun, go] = [(); 2].map(|()| Arc::new(Barrier::new(2)));
    let meet = async |at: &Arc<Barrier>| {
        let at = Arc::clone(at);
        tokio::task::spawn_blocking(move || at.wait()).await.unwrap();
    };
    let hook = (Arc::clone(&begun), Arc::clone(&go));
    port.hook("survey", move || {
        hook.0.wait();
        hook.1.wait();
        Ok(())
    });
    fail(&service, &session, &port).await;
    meet(&begun).await;
    let stopping = service.clone();
    let stop = tokio::spawn(async move { stopping.shutdown(false).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!stop.is_finished());
    assert!(Opened::open(&world.path("state")).await.is_err(), "the next service would decide on it as well");
    meet(&go).await;
    stop.await.unwrap().unwrap();
    assert_eq!(open(&world), 0);
}

#[tokio::test]
async fn ft4_an_end_decides_first_on_what_is_undecided() {
    for remove in [false, true] {
        let (world, service, session, port) = meddled_with(NEVER).await;
        fail(&service, &session, &port).await;
        let close = async || match remove {
            true => service.remove_session(&session.id).await,
            false => service.end_session(&session.id).await,
        };
        port.hook("discard", || Err(disk("the disk is sick")));
        let refused = close().await.unwrap_err();
        assert_eq!(refused.code, Code::NotReady);
        assert!(refused.message.contains("not decided yet: the disk is sick"), "{refused}");
        close().await.unwrap();
        assert_eq!(open(&world), 0);
    }
}

#[tokio::test]
async fn ft4_bytes_whose_sync_failed_are_never_published_by_a_recovery() {
    let (world, service, session, port) = meddled_with(NEVER).await;
    fail(&service, &session, &port).await;
    assert_eq!(directories(&world, &session).len(), 2, "what was written is still there");
    // As after a kill: whatever is read now comes from memory, and syncs without a word.
    service.shutdown(false).await.unwrap();
    let service = world.start().await;
    assert_eq!(now(&service, &session).await, *of(&session));
    assert_eq!(directories(&world, &session), ["1"]);
    service.shutdown(false).await.unwrap();
    assert!(matches!(events(&world, &session).await[..], [Event::Intended, Event::Failed { .. }]));
}

#[tokio::test]
async fn ft4_a_directory_that_cannot_be_looked_at_is_no_evidence() {
    for step in ["survey", "observe"] {
        let (world, session, _) = killed().await;
        let port = Meddled::over(&world);
        port.hook(step, || Err(disk("too many open files")));
        let graces = Graces { reopen: Duration::from_millis(500), ..Graces::default() };
        let service = world.start_over("boot-1", graces, port.clone()).await;
        assert_eq!((open(&world), now(&service, &session).await.revision), (1, 1), "{step}");
        until_decided(&world).await;
        assert_eq!(now(&service, &session).await.revision, 2, "{step}");
    }
}

#[tokio::test]
async fn ft4_an_application_below_another_coding_root_stays_undecided_and_says_which() {
    let (world, session, intent) = killed().await;
    // Only as a ledger of before the binding could have it.
    world.sql("UPDATE applications SET intent = replace(intent, '/coding/', '/elsewhere/')");
    let elsewhere = world.path("elsewhere");
    let service = world.start().await;
    assert_eq!(open(&world), 1);
    let refused = service.end_session(&session.id).await.unwrap_err();
    assert_eq!(refused.code, Code::NotReady);
    assert!(refused.message.contains(intent.id.as_str()), "{refused}");
    assert!(refused.hint.ends_with(&format!("--coding-root {}", elsewhere.display())), "{}", refused.hint);
    service.shutdown(false).await.unwrap();
    world.sql("UPDATE applications SET intent = replace(intent, '/elsewhere/', '/coding/')");
    let opened = Opened::open(&world.path("state")).await.unwrap();
    let chosen = opened.choose_in_boot(None, None, "boot-1".into());
    let service = chosen.recover().await.unwrap().without_commands().unwrap().ready();
    let refused = service.remove_session(&session.id).await.unwrap_err();
    assert!(refused.message.contains("no coding root"), "{refused}");
    let coding = world.path("coding");
    assert!(refused.hint.ends_with(&format!("--coding-root {}", coding.display())), "{}", refused.hint);
    service.shutdown(false).await.unwrap();
    assert_eq!(now(&world.start().await, &session).await.revision, 2);
}

#[tokio::test]
async fn ws5_a_start_with_another_coding_root_is_refused_and_changes_nothing() {
    let (world, session, _) = killed().await;
    let start = async |root: &Path| {
        let port: Arc<dyn WorkspacePort> = Arc::new(Plain::new(root.to_owned()));
        let opened = Opened::open(&world.path("state")).await.unwrap();
        let chosen = opened.choose_in_boot(Some(world.backend()), Some(port), "boot-1".into());
        Ok::<_, Refusal>(chosen.recover().await?.prove(&Proof).await?.ready())
    };
    let (bound, other) = (world.path("coding"), world.path("other"));
    // A ledger of before the binding is bound by its revisions.
    world.sql("DELETE FROM meta WHERE key = 'coding_root'");
    assert_eq!(start(&other).await.err().unwrap().code, Code::Conflict);
    world.sql(&format!("INSERT INTO meta VALUES ('coding_root', '{}')", bound.display()));
    let refused = start(&other).await.err().unwrap();
    assert_eq!(refused.code, Code::Conflict);
    for named in [&bound, &other] {
        assert!(refused.message.contains(&named.display().to_string()), "{refused}");
    }
    assert!(refused.hint.contains(&format!("--coding-root {} ", bound.display())), "{}", refused.hint);
    assert_eq!(open(&world), 1, "it was decided on where it does not lie");
    let service = start(&bound).await.unwrap();
    assert_eq!(now(&service, &session).await.revision, 2);
    // What is gone binds nobody.
    service.remove_session(&session.id).await.unwrap();
    service.shutdown(false).await.unwrap();
    let service = start(&other).await.unwrap();
    let made = world.session(&service).await;
    assert!(Path::new(&of(&made).root).starts_with(&other));
    service.shutdown(false).await.unwrap();
    assert_eq!(start(&bound).await.err().unwrap().code, Code::Conflict);
}

#[tokio::test]
async fn ws6_an_inspection_that_is_refused_tells_what_is_kept_of_blocked_changes() {
    let (_world, service, session, port) = meddled().await;
    let edited = Path::new(&of(&session).root).join("src/main.js");
    port.hook("sync", move || {
        std::fs::write(&edited, "edited").unwrap();
        Ok(())
    });
    let planned = change(of(&session), &imported(), &next());
    service.publish(&session.id, planned, None).await.unwrap_err();
    let kept = service.inspect_workspace(&session.id).await.unwrap().blocked.remove(0).kept;
    let link = || Err(Refusal::new(Code::WorkspaceChanged, "'a' is a symlink", "remove it"));
    port.hook("observe", link);
    let refused = service.inspect_workspace(&session.id).await.unwrap_err();
    assert_eq!((refused.code, refused.hint.as_str()), (Code::WorkspaceChanged, "remove it"));
    assert!(refused.message.contains("'a' is a symlink") && refused.message.contains(&kept), "{refused}");
}

#[tokio::test]
async fn ws6_a_refresh_that_was_left_undecided_is_answered_when_it_is_repeated() {
    let (_world, service, session, port) = meddled_with(NEVER).await;
    std::fs::write(Path::new(&of(&session).root).join("src/main.js"), "edited").unwrap();
    let reviewed = service.inspect_workspace(&session.id).await.unwrap().observed_digest;
    // Renamed, and then nothing can be told of it.
    for step in ["published", "survey"] {
        port.hook(step, || Err(disk("i/o error")));
    }
    let refused = service.refresh(&session.id, 1, &reviewed).await.unwrap_err();
    assert_eq!(refused.code, Code::NotReady, "{refused}");
    assert!(refused.hint.contains("read the workspace again"), "{}", refused.hint);
    let adopted = service.refresh(&session.id, 1, &reviewed).await.unwrap();
    assert_eq!((adopted.revision, &adopted.digest), (2, &reviewed));
}

#[tokio::test]
async fn cmd2_a_start_without_a_revision_takes_the_one_that_is_published_meanwhile() {
    let (_world, service, session, port) = meddled().await;
    let planned = change(of(&session), &imported(), &next());
    let (publisher, id, runtime) = (service.clone(), session.id.clone(), tokio::runtime::Handle::current());
    let meanwhile = move || runtime.block_on(publisher.publish(&id, planned.clone(), None)).map(drop);
    port.hook("observe", meanwhile);
    let run = start(&service, &session, command("true")).await;
    assert_eq!(wait(&service, &session.id, &run).await.intent.revision, 2);
    // Who has named a revision has seen it.
    let planned = change(&now(&service, &session).await, &next(), &imported());
    let (publisher, id, runtime) = (service.clone(), session.id.clone(), tokio::runtime::Handle::current());
    port.hook("observe", move || runtime.block_on(publisher.publish(&id, planned.clone(), None)).map(drop));
    let mut named = command("true");
    named.revision = Some(2);
    let stale = service.start_command(&session.id, named).await.unwrap_err();
    assert_eq!(stale.code, Code::StaleRevision);
}

#[tokio::test]
async fn ft5_a_ledger_that_another_program_locks_delays_a_publication() {
    let (world, service, session, port) = meddled_with(Duration::from_millis(50)).await;
    let path = world.path("state/ledger.db");
    port.hook("published", move || {
        let foreign = rusqlite::Connection::open(&path).unwrap();
        foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
        std::thread::spawn(move || {
            // Longer than the ledger waits for it.
            std::thread::sleep(Duration::from_millis(2_500));
            drop(foreign);
        });
        Ok(())
    });
    let planned = change(of(&session), &imported(), &next());
    let refused = service.publish(&session.id, planned.clone(), call("c", "x")).await.unwrap_err();
    assert_eq!(refused.code, Code::NotReady);
    assert!(refused.message.contains("not known yet") && refused.message.contains("locked"), "{refused}");
    assert!(service.status().ready, "nothing was written, so nothing latches");
    until_decided(&world).await;
    let done = service.publish(&session.id, planned, call("c", "x")).await.unwrap();
    assert_eq!((done.workspace.revision, done.workspace), (2, now(&service, &session).await));
}
