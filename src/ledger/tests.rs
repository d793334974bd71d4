//! The file and its transactions as a whole: what each one leaves, and which files are refused.

use super::apply::tests::intent;
use super::schema::LEDGER_FILE;
use super::*;
use crate::domain::digest::Digest;
use crate::domain::ids::{RunId, SessionId, StepKey, WorkspaceId};
use crate::domain::manifest::{FileEntry, TreeManifest};
use crate::domain::outcome::Outcome;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::relpath::RelPath;
use crate::domain::run::{Cleanup, Run, RunEvent, RunIntent};
use crate::domain::session::{Excluded, SessionKind};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn file(dir: &TempDir) -> PathBuf {
    dir.path().join(LEDGER_FILE)
}

fn sql(path: &Path, text: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(text).unwrap();
}

fn open(dir: &TempDir) -> Ledger {
    Ledger::open(&file(dir)).unwrap()
}

fn tree() -> TreeManifest {
    let path = RelPath::parse("a.js").unwrap();
    TreeManifest::new(
        vec![FileEntry { path, executable: true, length: 1, content: Digest::of(b"a") }],
        vec![],
    )
}

async fn coding(ledger: &Ledger) -> (SessionId, WorkspaceId) {
    let (id, workspace) = (SessionId::fresh(), WorkspaceId::fresh());
    ledger
        .begin_session(&id, SessionKind::Coding, "/p".into(), Some((workspace.clone(), "/r".into())))
        .await
        .unwrap();
    let excluded = vec![Excluded { path: ".git".into(), reason: "metadata".into() }];
    let import = Import { root: "/r".into(), manifest: tree(), excluded };
    ledger.publish_import(&id, import).await.unwrap();
    (id, workspace)
}

async fn run_in(ledger: &Ledger, session: &SessionId, key: &str) -> Run {
    let intent =
        RunIntent { session_id: session.clone(), step_key: StepKey::parse(key).unwrap(), ..intent() };
    match ledger.request_run(intent, |_| Ok(Verdict::Admit)).await.unwrap() {
        Requested::Fresh(run) => run,
        Requested::Original(run) => panic!("{run:?}"),
    }
}

async fn settle(ledger: &Ledger, run: &RunId) {
    let ended = RunEvent::Ended { outcome: Outcome::start_failed("x") };
    ledger.append_events(run, vec![ended, RunEvent::Removed], Facts::default()).await.unwrap();
}

#[tokio::test]
async fn svc3_a_ledger_is_opened_again_with_what_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir);
    let (id, workspace) = coding(&ledger).await;
    let session = ledger.session(&id).await.unwrap();
    ledger.close();
    let ledger = open(&dir);
    assert_eq!(ledger.sessions().await.unwrap(), vec![session.clone()]);
    assert_eq!((session.kind, session.cwd.as_str(), session.ended), (SessionKind::Coding, "/p", false));
    assert_eq!(session.excluded[0].path, ".git");
    let found = session.workspace.unwrap();
    assert_eq!((&found.id, found.revision, &found.digest), (&workspace, 1, &tree().digest()));
    assert_eq!(ledger.manifest(&workspace, 1).await.unwrap(), tree());
    assert!(matches!(ledger.manifest(&workspace, 2).await, Err(LedgerError::Absent { .. })));
}

#[test]
fn svc3_files_that_are_not_ours_are_refused_by_kind_and_left_alone() {
    let refused = |spoil: &dyn Fn(&Path)| {
        let dir = tempfile::tempdir().unwrap();
        open(&dir).close();
        spoil(&file(&dir));
        let before = std::fs::read(file(&dir)).unwrap();
        let error = Ledger::open(&file(&dir)).map(drop).unwrap_err();
        assert_eq!(std::fs::read(file(&dir)).unwrap(), before);
        error
    };
    let next = schema::newest() + 1;
    let newer = refused(&|path| sql(path, &format!("PRAGMA user_version = {next}")));
    assert!(matches!(newer, LedgerError::Newer { found, .. } if found == next), "{newer}");
    let foreign = refused(&|path| sql(path, "PRAGMA application_id = 5"));
    assert!(matches!(foreign, LedgerError::Foreign { found: 5, .. }), "{foreign}");
    let text = "no database, but long enough to be taken for one ".repeat(99);
    let corrupt = refused(&|path| std::fs::write(path, &text).unwrap());
    assert!(matches!(corrupt, LedgerError::Corrupt { .. }), "{corrupt}");
    // A file of format `newest` itself is not newer, and an empty one is nobody's yet.
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(file(&dir), "").unwrap();
    open(&dir).close();
    open(&dir).close();
}

/// Only the thorough check compares an index with its table; it is due while a write-ahead log is left.
#[tokio::test]
async fn svc3_the_thorough_check_is_due_after_an_unclean_stop_alone() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir);
    let (id, _) = coding(&ledger).await;
    let run = run_in(&ledger, &id, "k").await.intent.run_id;
    settle(&ledger, &run).await;
    ledger.close();
    // Now the index lacks the row of the run that ended.
    sql(
        &file(&dir),
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = 'CREATE INDEX runs_open ON runs(seq) WHERE open = 0'
         WHERE name = 'runs_open'",
    );
    open(&dir).close();
    let log = dir.path().join("ledger.db-wal");
    std::fs::write(&log, "").unwrap();
    open(&dir).close();
    let other = rusqlite::Connection::open(file(&dir)).unwrap();
    other.execute_batch("UPDATE sessions SET cwd = '/q'").unwrap();
    assert!(log.metadata().unwrap().len() > 0);
    let error = Ledger::open(&file(&dir)).map(drop).unwrap_err();
    assert!(matches!(error, LedgerError::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn ft5_a_stop_while_latched_keeps_the_log_for_the_thorough_check() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("ledger.db-wal");
    let ledger = open(&dir);
    coding(&ledger).await;
    ledger.fail_commits(true);
    let failed = ledger.begin_session(&SessionId::fresh(), SessionKind::Ordinary, "/".into(), None).await;
    assert!(matches!(failed, Err(LedgerError::Sql(_))), "{failed:?}");
    ledger.close();
    assert!(log.metadata().unwrap().len() > 0);
    open(&dir).close();
    assert!(!log.exists());
}

#[tokio::test]
async fn ws5_the_first_workspace_binds_the_coding_root_until_the_last_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir);
    let make = async |root: &str| {
        let id = SessionId::fresh();
        let workspace = Some((WorkspaceId::fresh(), root.to_owned()));
        ledger.begin_session(&id, SessionKind::Coding, "/p".into(), workspace).await.unwrap();
        id
    };
    let bound = async || ledger.coding_root().await.unwrap();
    ledger.begin_session(&SessionId::fresh(), SessionKind::Ordinary, "/p".into(), None).await.unwrap();
    assert_eq!(bound().await, None);
    let (one, two) = (make("/a").await, make("/b").await);
    for gone in [&one, &two] {
        assert_eq!(bound().await.as_deref(), Some("/a"));
        ledger.drop_session(gone).await.unwrap();
    }
    assert_eq!(bound().await, None);
    make("/b").await;
    assert_eq!(bound().await.as_deref(), Some("/b"));
}

#[tokio::test]
async fn ses1_a_session_goes_through_its_phases_once() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir);
    let half = (SessionId::fresh(), WorkspaceId::fresh());
    ledger
        .begin_session(&half.0, SessionKind::Coding, "/h".into(), Some((half.1.clone(), "/r".into())))
        .await
        .unwrap();
    let ordinary = SessionId::fresh();
    ledger.begin_session(&ordinary, SessionKind::Ordinary, "/o".into(), None).await.unwrap();
    let (id, workspace) = coding(&ledger).await;
    let listed = |sessions: Vec<crate::domain::session::Session>| {
        sessions.into_iter().map(|session| (session.id, session.ended)).collect::<Vec<_>>()
    };
    let both = vec![(ordinary.clone(), false), (id.clone(), false)];
    assert_eq!(listed(ledger.sessions().await.unwrap()), both);
    let unfinished =
        Unfinished { session: half.0.clone(), workspace: Some(half.1.clone()), phase: Phase::Importing };
    assert_eq!(ledger.unfinished_sessions().await.unwrap(), vec![unfinished]);
    // An active one is not dropped, an unfinished one is, with its workspace; twice is no error.
    for drop in [&id, &half.0, &half.0] {
        ledger.drop_session(drop).await.unwrap();
    }
    assert_eq!(listed(ledger.sessions().await.unwrap()), both);
    assert!(ledger.unfinished_sessions().await.unwrap().is_empty());

    let run = run_in(&ledger, &id, "k").await.intent.run_id;
    for refused in [ledger.end_session(&id).await, ledger.begin_removal(&id).await.map(drop)] {
        let Err(LedgerError::Refused(refusal)) = refused else { panic!("{refused:?}") };
        assert!(refusal.code == Code::Busy && refusal.message.contains(run.as_str()), "{refusal}");
    }
    assert_eq!(ledger.run_ids(&id).await.unwrap(), vec![run.clone()]);
    assert_eq!(ledger.all_run_ids().await.unwrap().into_iter().collect::<Vec<_>>(), vec![run.clone()]);
    assert!(ledger.run_ids(&ordinary).await.unwrap().is_empty());
    settle(&ledger, &run).await;
    ledger.end_session(&id).await.unwrap();
    assert!(ledger.session(&id).await.unwrap().ended);
    let removing = ledger.begin_removal(&id).await.unwrap();
    let want = Unfinished { session: id.clone(), workspace: Some(workspace), phase: Phase::Removing };
    assert_eq!((&removing, ledger.unfinished_sessions().await.unwrap()), (&want, vec![want.clone()]));
    assert!(matches!(ledger.session(&id).await, Err(LedgerError::Absent { kind: "session", .. })));
    ledger.drop_session(&id).await.unwrap();
    assert!(ledger.all_run_ids().await.unwrap().is_empty());
    assert!(ledger.events(&run).await.unwrap().is_empty());
    assert!(matches!(ledger.end_session(&id).await, Err(LedgerError::Absent { .. })));
}

#[tokio::test]
async fn cmd2_a_key_in_use_answers_its_run_and_places_are_held_until_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir);
    let (id, workspace) = coding(&ledger).await;
    let run = run_in(&ledger, &id, "k").await;
    let other = RunIntent {
        session_id: id.clone(),
        step_key: run.intent.step_key.clone(),
        run_id: RunId::fresh(),
        ..run.intent.clone()
    };
    let commits = ledger.commits();
    let answer = ledger.request_run(other, |g| {
        assert_eq!(g.held.len(), 1);
        Ok(if g.existing.is_some() { Verdict::Original } else { Verdict::Admit })
    });
    assert_eq!(answer.await.unwrap(), Requested::Original(run.clone()));
    assert_eq!(ledger.commits(), commits);
    let grounds = ledger.grounds(&id, &run.intent.step_key).await.unwrap();
    assert_eq!(grounds.existing.as_ref(), Some(&run));
    let place = Place { run_id: run.intent.run_id.clone(), workspace_id: workspace };
    assert_eq!(grounds.held, vec![place]);
    assert_eq!(ledger.unsettled_runs().await.unwrap(), vec![run.clone()]);
    assert_eq!(ledger.runs(&id).await.unwrap(), vec![run.clone()]);
    settle(&ledger, &run.intent.run_id).await;
    assert!(ledger.unsettled_runs().await.unwrap().is_empty());
    assert!(ledger.grounds(&id, &run.intent.step_key).await.unwrap().held.is_empty());
    assert!(matches!(ledger.runs(&SessionId::fresh()).await, Err(LedgerError::Absent { .. })));
}

#[tokio::test]
async fn cmd9_an_uncertain_run_keeps_its_place_until_it_is_cleaned_up_once() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir);
    let (id, _) = coding(&ledger).await;
    let run = run_in(&ledger, &id, "k").await.intent.run_id;
    let append = async |event: RunEvent, cleanup: Option<Cleanup>| {
        ledger.append_events(&run, vec![event], Facts { cleanup, ..Facts::default() }).await
    };
    let lost = append(RunEvent::Lost { detail: "x".into() }, Some(Cleanup::Uncertain)).await.unwrap();
    assert_eq!((lost.cleanup, lost.recovery_phase.as_deref()), (Cleanup::Uncertain, Some("reconcile")));
    assert_eq!(ledger.unsettled_runs().await.unwrap(), vec![lost.clone()]);
    let clean = append(RunEvent::CleanedUp, None).await.unwrap();
    assert_eq!((clean.cleanup, &clean.recovery_phase), (Cleanup::Confirmed, &None));
    assert_eq!(clean.outcome, lost.outcome);
    assert!(ledger.unsettled_runs().await.unwrap().is_empty());
    let again = append(RunEvent::CleanedUp, None).await.unwrap_err();
    assert!(matches!(again, LedgerError::Illegal(_)), "{again}");
    // A lost run that left nothing needs no cleaning.
    let other = run_in(&ledger, &id, "k2").await.intent.run_id;
    let facts = Facts { cleanup: Some(Cleanup::Confirmed), ..Facts::default() };
    let lost =
        ledger.append_events(&other, vec![RunEvent::Lost { detail: "x".into() }], facts).await.unwrap();
    assert_eq!((lost.cleanup, &lost.recovery_phase), (Cleanup::Confirmed, &None));
}

#[tokio::test]
async fn ft5_events_are_append_only() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir);
    let (id, _) = coding(&ledger).await;
    run_in(&ledger, &id, "k").await;
    ledger.close();
    let db = rusqlite::Connection::open(file(&dir)).unwrap();
    let error = db.execute("UPDATE events SET event = '{}'", []).unwrap_err();
    assert!(error.to_string().contains("append-only"), "{error}");
}

#[test]
fn ft5_what_a_client_is_told_of_each_error() {
    let path = PathBuf::from("/x/ledger.db");
    let told = |error: LedgerError| Refusal::from(error);
    let latched = told(LedgerError::Latched("disk I/O error".into()));
    assert_eq!(latched.code, Code::NotReady);
    assert!(latched.hint.contains("by itself"), "{latched:?}");
    for (error, code) in [
        (LedgerError::Locked, Code::NotReady),
        (LedgerError::Closed, Code::NotReady),
        (LedgerError::Sql(rusqlite::Error::InvalidQuery), Code::NotReady),
        (LedgerError::Newer { path: path.clone(), found: 9, known: 1 }, Code::Internal),
        (LedgerError::Foreign { path: path.clone(), found: 9 }, Code::Internal),
        (LedgerError::Corrupt { path, detail: "x".into() }, Code::Internal),
        (LedgerError::Row { what: "run", detail: "x".into() }, Code::Internal),
        (LedgerError::Absent { kind: "session", id: "x".into() }, Code::NotFound),
        (LedgerError::Absent { kind: "run", id: "x".into() }, Code::NotFound),
    ] {
        let text = error.to_string();
        let refusal = told(error);
        assert_eq!((refusal.code, &refusal.message), (code, &text));
        assert!(!refusal.hint.is_empty(), "{text}");
    }
    let own = Refusal::new(Code::Busy, "m", "h");
    assert_eq!(told(own.clone().into()), own);
    assert!(told(LedgerError::Absent { kind: "session", id: String::new() }).hint.contains("session list"));
    assert!(told(LedgerError::Absent { kind: "run", id: String::new() }).hint.contains("commands list"));
}

#[tokio::test]
async fn b17_the_times_of_events_are_the_clocks() {
    let dir = tempfile::tempdir().unwrap();
    let then: jiff::Timestamp = "2001-02-03T04:05:06Z".parse().unwrap();
    let ledger = open(&dir).with_clock(std::sync::Arc::new(move || then));
    let (id, _) = coding(&ledger).await;
    let run = run_in(&ledger, &id, "k").await.intent.run_id;
    let at: Vec<_> = ledger.history(&run).await.unwrap().into_iter().map(|entry| entry.at).collect();
    assert_eq!(at, ["2001-02-03T04:05:06Z"]);
}

#[tokio::test]
async fn ft5_waiting_for_a_failure_and_for_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir);
    let soon = std::time::Duration::from_millis(30);
    assert!(tokio::time::timeout(soon, ledger.until_latched()).await.is_err());
    ledger.until_open().await;
    ledger.fail_commits(true);
    let id = SessionId::fresh();
    assert!(ledger.begin_session(&id, SessionKind::Ordinary, "/".into(), None).await.is_err());
    ledger.until_latched().await;
    assert!(tokio::time::timeout(soon, ledger.until_open()).await.is_err());
    ledger.fail_commits(false);
    ledger.reopen().await.unwrap();
    ledger.until_open().await;
    assert_eq!(ledger.latched(), None);
}

/// A person's shell that holds the database is waited for; then nothing is written and nothing latches.
#[tokio::test]
async fn ft5_a_lock_of_another_program_is_no_failure_of_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir);
    let shell = rusqlite::Connection::open(file(&dir)).unwrap();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begin =
        async || ledger.begin_session(&SessionId::fresh(), SessionKind::Ordinary, "/".into(), None).await;
    let error = begin().await.unwrap_err();
    assert!(matches!(error, LedgerError::Locked), "{error}");
    assert_eq!(ledger.latched(), None);
    shell.execute_batch("ROLLBACK").unwrap();
    begin().await.unwrap();
    // Any other failure to begin is one of the disk.
    drop(shell);
    sql(&file(&dir), "DROP TABLE sessions");
    let error = begin().await.unwrap_err();
    assert!(matches!(error, LedgerError::Sql(_)) && ledger.latched().is_some(), "{error}");
}
