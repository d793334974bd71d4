//! Transactions on runs and their events.

use super::apply::{self, Facts};
use super::error::LedgerError;
use super::rows::{self, Progress};
use super::writer::Ledger;
use crate::domain::ids::{RunId, SessionId, StepKey, WorkspaceId};
use crate::domain::refusal::Refusal;
use crate::domain::run::{Cleanup, HistoryEntry, Run, RunEvent, RunIntent};
use crate::domain::session::Session;
use rusqlite::{OptionalExtension, Transaction, params};

/// A run that holds an admission place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which run.
    pub run_id: RunId,
    /// In which workspace.
    pub workspace_id: WorkspaceId,
}

/// All that a start is decided on, read in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grounds {
    /// The session with its current revision.
    pub session: Session,
    /// The run that has the step key already.
    pub existing: Option<Run>,
    /// The runs that hold places, oldest first.
    pub held: Vec<Place>,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The key's original run is the answer.
    Original,
    /// A new run is admitted.
    Admit,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Requested {
    /// The key was in use; nothing was written.
    Original(Run),
    /// The intent is committed.
    Fresh(Run),
}

impl Ledger {
    /// Reads what a start in `session` with `key` is decided on.
    ///
    /// # Errors
    /// [`LedgerError::Absent`] for an unknown session.
    pub async fn grounds(&self, session: &SessionId, key: &StepKey) -> Result<Grounds, LedgerError> {
        let (session, key) = (session.clone(), key.clone());
        self.read(move |tx| grounds(tx, &session, &key)).await
    }

    /// Commits an intent, if `decide` admits it on the state inside the same transaction.
    ///
    /// # Errors
    /// `decide`'s refusal, with nothing written; after an error of SQLite it is unknown whether the
    /// intent is there, so nothing may be launched.
    pub async fn request_run(
        &self,
        intent: RunIntent,
        decide: impl FnOnce(&Grounds) -> Result<Verdict, Refusal> + Send + 'static,
    ) -> Result<Requested, LedgerError> {
        let now = self.now();
        self.write("commit.intent", move |tx| {
            let grounds = grounds(tx, &intent.session_id, &intent.step_key)?;
            let verdict = decide(&grounds)?;
            match (verdict, grounds.existing, grounds.session.workspace) {
                (Verdict::Original, Some(run), _) => Ok(Requested::Original(run)),
                (Verdict::Admit, None, Some(workspace)) => {
                    let run = apply::requested(intent);
                    tx.prepare_cached(
                        "INSERT INTO runs (id, session_id, workspace_id, step_key, intent, progress, open,
                         uncertain) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, 0)",
                    )?
                    .execute(params![
                        run.intent.run_id.as_str(),
                        run.intent.session_id.as_str(),
                        workspace.id.as_str(),
                        run.intent.step_key.as_str(),
                        rows::to_json("run intent", &run.intent)?,
                        rows::to_json("run", &Progress::of(&run))?,
                    ])?;
                    log(tx, &run.intent.run_id, &RunEvent::Requested, &now)?;
                    Ok(Requested::Fresh(run))
                }
                _ => Err(LedgerError::Row { what: "verdict", detail: "it does not fit the run".into() }),
            }
        })
        .await
    }

    /// Appends events to a run and moves its row, all or nothing; answers the run as it is then.
    ///
    /// # Errors
    /// [`LedgerError::Illegal`] when an event may not follow, with nothing written; after an error of
    /// SQLite it is unknown whether the events are there.
    pub async fn append_events(
        &self,
        run: &RunId,
        events: Vec<RunEvent>,
        facts: Facts,
    ) -> Result<Run, LedgerError> {
        let (id, what, now) = (run.clone(), boundary(&events), self.now());
        self.write(what, move |tx| append(tx, &id, &events, &facts, &now)).await
    }

    /// [`Ledger::append_events`] for many runs, all or nothing.
    ///
    /// # Errors
    /// As [`Ledger::append_events`]'s.
    pub async fn append_to_many(
        &self,
        changes: Vec<(RunId, Vec<RunEvent>, Facts)>,
    ) -> Result<Vec<Run>, LedgerError> {
        let now = self.now();
        self.write("commit.recovery", move |tx| {
            changes.iter().map(|(id, events, facts)| append(tx, id, events, facts, &now)).collect()
        })
        .await
    }

    /// Reads one run.
    ///
    /// # Errors
    /// [`LedgerError::Absent`].
    pub async fn run(&self, run: &RunId) -> Result<Run, LedgerError> {
        let id = run.clone();
        self.read(move |tx| run_by_id(tx, &id)).await
    }

    /// Reads the runs of a session, oldest first.
    ///
    /// # Errors
    /// [`LedgerError::Absent`] for an unknown session.
    pub async fn runs(&self, session: &SessionId) -> Result<Vec<Run>, LedgerError> {
        let id = session.clone();
        self.read(move |tx| {
            if rows::session(tx, id.as_str())?.is_none() {
                return Err(LedgerError::Absent { kind: "session", id: id.to_string() });
            }
            let sql = format!("SELECT {} FROM runs WHERE session_id = ?1 ORDER BY seq", rows::RUN);
            rows::all(tx, &sql, [id.as_str()], rows::run)
        })
        .await
    }

    /// Reads the runs that are not terminal or whose cleanup is uncertain, oldest first.
    ///
    /// # Errors
    /// An error of reading.
    pub async fn unsettled_runs(&self) -> Result<Vec<Run>, LedgerError> {
        self.read(|tx| {
            let sql = format!("SELECT {} FROM runs WHERE open = 1 OR uncertain = 1 ORDER BY seq", rows::RUN);
            rows::all(tx, &sql, [], rows::run)
        })
        .await
    }

    /// Reads the history of a run, in its order.
    ///
    /// # Errors
    /// An error of reading.
    pub async fn history(&self, run: &RunId) -> Result<Vec<HistoryEntry>, LedgerError> {
        let id = run.clone();
        self.read(move |tx| {
            let sql = "SELECT seq, at, event FROM events WHERE run_id = ?1 ORDER BY seq";
            rows::all(tx, sql, [id.as_str()], |row| {
                Ok(HistoryEntry {
                    seq: row.get::<_, i64>(0)?.unsigned_abs(),
                    at: row.get(1)?,
                    event: rows::from_json("event", &row.get::<_, String>(2)?)?,
                })
            })
        })
        .await
    }

    /// Reads the events of a run in their order.
    ///
    /// # Errors
    /// An error of reading.
    pub async fn events(&self, run: &RunId) -> Result<Vec<RunEvent>, LedgerError> {
        Ok(self.history(run).await?.into_iter().map(|entry| entry.event).collect())
    }
}

/// The name of a transaction among the points of `fault`.
fn boundary(events: &[RunEvent]) -> &'static str {
    let has = |f: fn(&RunEvent) -> bool| events.iter().any(f);
    if has(|e| matches!(e, RunEvent::Ended { .. } | RunEvent::Lost { .. })) {
        "commit.exit"
    } else if has(|e| matches!(e, RunEvent::CancelRequested)) {
        "commit.cancel"
    } else {
        "commit.removal"
    }
}

/// Appends events to a run and moves its row.
fn append(
    tx: &Transaction<'_>,
    id: &RunId,
    events: &[RunEvent],
    facts: &Facts,
    now: &str,
) -> Result<Run, LedgerError> {
    let mut run = run_by_id(tx, id)?;
    for event in events {
        apply::apply(&mut run, event)?;
        log(tx, id, event, now)?;
    }
    facts.settle(&mut run);
    tx.prepare_cached("UPDATE runs SET progress = ?2, open = ?3, uncertain = ?4 WHERE id = ?1")?.execute(
        params![
            id.as_str(),
            rows::to_json("run", &Progress::of(&run))?,
            !run.state.is_terminal(),
            run.cleanup == Cleanup::Uncertain,
        ],
    )?;
    Ok(run)
}

fn log(tx: &Transaction<'_>, id: &RunId, event: &RunEvent, now: &str) -> Result<(), LedgerError> {
    tx.prepare_cached("INSERT INTO events (run_id, event, at) VALUES (?1, ?2, ?3)")?.execute(params![
        id.as_str(),
        rows::to_json("event", event)?,
        now
    ])?;
    Ok(())
}

fn grounds(tx: &Transaction<'_>, session: &SessionId, key: &StepKey) -> Result<Grounds, LedgerError> {
    let session = rows::session(tx, session.as_str())?
        .ok_or_else(|| LedgerError::Absent { kind: "session", id: session.to_string() })?;
    let sql = format!("SELECT {} FROM runs WHERE session_id = ?1 AND step_key = ?2", rows::RUN);
    let existing = rows::all(tx, &sql, params![session.id.as_str(), key.as_str()], rows::run)?.pop();
    let held = held(tx)?;
    Ok(Grounds { session, existing, held })
}

/// The runs that hold places: not terminal, or with something left behind.
pub(super) fn held(tx: &Transaction<'_>) -> Result<Vec<Place>, LedgerError> {
    let sql = "SELECT id, workspace_id FROM runs WHERE open = 1 OR uncertain = 1 ORDER BY seq";
    rows::all(tx, sql, [], |row| {
        Ok(Place {
            run_id: rows::text("run id", &row.get::<_, String>(0)?)?,
            workspace_id: rows::text("workspace id", &row.get::<_, String>(1)?)?,
        })
    })
}

fn run_by_id(tx: &Transaction<'_>, id: &RunId) -> Result<Run, LedgerError> {
    let sql = format!("SELECT {} FROM runs WHERE id = ?1", rows::RUN);
    tx.prepare_cached(&sql)?
        .query_row([id.as_str()], |row| Ok(rows::run(row)))
        .optional()?
        .ok_or_else(|| LedgerError::Absent { kind: "run", id: id.to_string() })?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::manifest::TreeManifest;
    use crate::domain::outcome::Outcome;
    use crate::domain::run::RunState;
    use crate::domain::session::SessionKind;
    use crate::ledger::Import;
    use crate::ledger::apply::tests::intent;
    use std::os::unix::fs::MetadataExt;

    async fn with_run(dir: &std::path::Path) -> (Ledger, Run) {
        let ledger = Ledger::open(&dir.join("ledger.db")).unwrap();
        let intent = intent();
        let session = &intent.session_id;
        let workspace = Some((WorkspaceId::fresh(), "/".into()));
        ledger.begin_session(session, SessionKind::Coding, "/p".into(), workspace).await.unwrap();
        let import = Import { root: "/r".into(), manifest: TreeManifest::default(), excluded: vec![] };
        ledger.publish_import(session, import).await.unwrap();
        match ledger.request_run(intent, |_| Ok(Verdict::Admit)).await.unwrap() {
            Requested::Fresh(run) => (ledger, run),
            Requested::Original(run) => panic!("{run:?}"),
        }
    }

    #[tokio::test]
    async fn cmd4_an_illegal_event_writes_nothing_and_does_not_latch() {
        let tmp = tempfile::tempdir().unwrap();
        let (ledger, run) = with_run(tmp.path()).await;
        let id = &run.intent.run_id;
        let events = vec![RunEvent::CreateAsked, RunEvent::Removed];
        let error = ledger.append_events(id, events, Facts::default()).await.unwrap_err();
        assert!(matches!(error, LedgerError::Illegal(_)), "{error}");
        assert_eq!(ledger.run(id).await.unwrap(), run);
        assert_eq!(ledger.events(id).await.unwrap(), [RunEvent::Requested]);
        assert!(ledger.latched().is_none());
        let events = vec![RunEvent::Ended { outcome: Outcome::start_failed("x") }, RunEvent::Removed];
        let end = ledger.append_events(id, events.clone(), Facts::default()).await.unwrap();
        assert_eq!(end.state, RunState::Finished);
        let history = ledger.history(id).await.unwrap();
        assert!(history.is_sorted_by(|a, b| a.seq < b.seq), "{history:?}");
        assert_eq!(ledger.events(id).await.unwrap()[1..], events);
        assert!(ledger.unsettled_runs().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn cmd2_a_refusal_inside_the_transaction_stores_nothing() {
        let tmp = tempfile::tempdir().unwrap();
        let (ledger, run) = with_run(tmp.path()).await;
        let before = ledger.commits();
        let other = RunIntent { step_key: StepKey::parse("k2").unwrap(), ..run.intent.clone() };
        let no = crate::domain::refusal::Code::Busy;
        let held = run.intent.run_id.clone();
        let refused = ledger
            .request_run(other, move |grounds| {
                assert_eq!(grounds.held[0].run_id, held);
                Err(Refusal::new(no, "full", "wait"))
            })
            .await;
        assert!(matches!(refused, Err(LedgerError::Refused(r)) if r.code == no));
        assert_eq!((ledger.commits(), ledger.latched()), (before, None));
        assert_eq!(ledger.runs(&run.intent.session_id).await.unwrap(), vec![run]);
    }

    #[tokio::test]
    async fn ft5_a_failed_commit_latches_until_the_ledger_is_opened_again() {
        let tmp = tempfile::tempdir().unwrap();
        let (ledger, run) = with_run(tmp.path()).await;
        let id = &run.intent.run_id;
        ledger.fail_commits(true);
        let cancel = || vec![RunEvent::CancelRequested];
        let first = ledger.append_events(id, cancel(), Facts::default()).await.unwrap_err();
        assert!(matches!(first, LedgerError::Sql(_)), "{first}");
        ledger.until_latched().await;
        ledger.fail_commits(false);
        let second = ledger.append_events(id, cancel(), Facts::default()).await.unwrap_err();
        assert!(matches!(second, LedgerError::Latched(_)), "{second}");
        assert_eq!(ledger.run(id).await.unwrap(), run);
        ledger.reopen().await.unwrap();
        ledger.until_open().await;
        assert!(ledger.append_events(id, cancel(), Facts::default()).await.unwrap().cancel_requested);
        assert!(ledger.run(id).await.unwrap().cancel_requested, "the reader sees the new connection's rows");
        ledger.close();
        assert!(matches!(ledger.run(id).await, Err(LedgerError::Closed)));
    }

    #[tokio::test]
    async fn ft5_a_ledger_that_cannot_be_checked_stays_latched() {
        let tmp = tempfile::tempdir().unwrap();
        let (ledger, run) = with_run(tmp.path()).await;
        let id = &run.intent.run_id;
        ledger.fail_commits(true);
        let cancel = vec![RunEvent::CancelRequested];
        ledger.append_events(id, cancel.clone(), Facts::default()).await.unwrap_err();
        ledger.fail_commits(false);
        // Out of reach, as on a file system that is gone.
        let (path, aside) = (tmp.path().join("ledger.db"), tmp.path().join("aside"));
        std::fs::rename(&path, &aside).unwrap();
        for _ in 0..2 {
            ledger.reopen().await.unwrap_err();
            assert!(ledger.latched().is_some());
            let refused = ledger.append_events(id, cancel.clone(), Facts::default()).await.unwrap_err();
            assert!(matches!(refused, LedgerError::Latched(_)), "{refused}");
        }
        std::fs::rename(&aside, &path).unwrap();
        ledger.reopen().await.unwrap();
        assert!(ledger.append_events(id, cancel, Facts::default()).await.unwrap().cancel_requested);
    }

    #[test]
    fn cmd8_a_transaction_is_named_by_the_most_that_it_says() {
        let ended = RunEvent::Ended { outcome: Outcome::start_failed("x") };
        let lost = RunEvent::Lost { detail: "x".into() };
        for (events, name) in [
            (vec![RunEvent::Launched, ended, RunEvent::Removed], "commit.exit"),
            (vec![RunEvent::CancelRequested, lost], "commit.exit"),
            (vec![RunEvent::CreateAsked, RunEvent::CancelRequested], "commit.cancel"),
            (vec![RunEvent::Removed], "commit.removal"),
        ] {
            assert_eq!(boundary(&events), name, "{events:?}");
        }
    }

    #[tokio::test]
    async fn cmd8_many_runs_are_settled_in_one_transaction_or_none() {
        let tmp = tempfile::tempdir().unwrap();
        let (ledger, run) = with_run(tmp.path()).await;
        let id = &run.intent.run_id;
        let (legal, illegal) = (vec![RunEvent::CancelRequested], vec![RunEvent::Removed]);
        let change = |events: &Vec<RunEvent>| (id.clone(), events.clone(), Facts::default());
        let before = ledger.commits();
        let refused = ledger.append_to_many(vec![change(&legal), change(&illegal)]).await.unwrap_err();
        assert!(matches!(refused, LedgerError::Illegal(_)), "{refused}");
        assert_eq!((ledger.run(id).await.unwrap(), ledger.commits()), (run.clone(), before));
        let runs = ledger.append_to_many(vec![change(&legal), change(&legal)]).await.unwrap();
        assert!(runs.iter().all(|run| run.cancel_requested));
        assert_eq!(ledger.commits(), before + 1);
    }

    #[tokio::test]
    async fn svc2_the_files_are_private_and_a_clean_stop_leaves_no_log() {
        let tmp = tempfile::tempdir().unwrap();
        let (ledger, _) = with_run(tmp.path()).await;
        let mode = |name: &str| tmp.path().join(name).metadata().map(|meta| meta.mode() & 0o7777);
        for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
            assert_eq!(mode(name).unwrap(), 0o600, "{name}");
        }
        ledger.close();
        assert!(mode("ledger.db-wal").is_err());
    }
}
