//! Transactions on applications: the journal of publications (FT.3, FT.4).
//!
//! An intent is committed only on the workspace's current revision, and only one at a time for each
//! workspace. New root, revision, digest, completion event and receipt are one transaction.

use super::error::LedgerError;
use super::rows;
use super::writer::Ledger;
use crate::domain::application::{Application, Blocked, Call, Event, Intent, Phase};
use crate::domain::digest::Digest;
use crate::domain::ids::{ApplicationId, CallId, SessionId, WorkspaceId};
use crate::domain::refusal::Refusal;
use crate::domain::session::{Session, Workspace};
use rusqlite::{OptionalExtension, Row, Transaction, params};

/// The saved answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The call.
    pub call: Call,
    /// What it published.
    pub workspace: Workspace,
}

/// All that an application is decided on, read in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyGrounds {
    /// The session with its current revision.
    pub session: Session,
    /// The receipt of the call's id, if there is one.
    pub receipt: Option<Receipt>,
    /// The application of the workspace that is not decided yet.
    pub open: Option<ApplicationId>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Begun {
    /// The call has been answered before; nothing was written.
    Receipt(Workspace),
    /// The intent is committed.
    Fresh,
}

/// A row of the journal, for its readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Position in the order of all events of applications.
    pub seq: u64,
    /// Whose event.
    pub application: ApplicationId,
    /// Wall-clock time of the commit, RFC 3339.
    pub at: String,
    /// What happened.
    pub event: Event,
}

impl Ledger {
    /// Commits the intent of an application, if `decide` admits it on the state inside the same
    /// transaction.
    ///
    /// # Errors
    /// `decide`'s refusal, with nothing written; after an error of SQLite it is unknown whether the
    /// intent is there, so nothing may be staged.
    pub async fn begin_application(
        &self,
        application: Application,
        decide: impl FnOnce(&ApplyGrounds) -> Result<Option<Workspace>, Refusal> + Send + 'static,
    ) -> Result<Begun, LedgerError> {
        let now = self.now();
        self.write("commit.application", move |tx| {
            let intent = &application.intent;
            let session = rows::session(tx, intent.session_id.as_str())?
                .ok_or_else(|| absent("session", &intent.session_id))?;
            let receipt = match &intent.call {
                Some(call) => receipt(tx, &intent.session_id, &call.id)?,
                None => None,
            };
            let open = open(tx, &intent.workspace_id)?;
            if let Some(saved) = decide(&ApplyGrounds { session, receipt, open })? {
                return Ok(Begun::Receipt(saved));
            }
            tx.execute(
                "INSERT INTO applications (id, session_id, workspace_id, call_id, intent, manifest, phase)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'intended')",
                params![
                    intent.id.as_str(),
                    intent.session_id.as_str(),
                    intent.workspace_id.as_str(),
                    intent.call.as_ref().map(|call| call.id.as_str()),
                    rows::to_json("application intent", intent)?,
                    rows::to_json("manifest", &application.manifest)?,
                ],
            )?;
            log(tx, &intent.id, &Event::Intended, &now)?;
            Ok(Begun::Fresh)
        })
        .await
    }

    /// Publishes an intended application: new root, revision, digest, completion event and receipt.
    ///
    /// # Errors
    /// [`LedgerError::Absent`] when it is not intended (any more) or its base is not the current
    /// revision, with nothing written; after an error of SQLite it is unknown whether it is published.
    pub async fn publish_application(&self, id: &ApplicationId) -> Result<Workspace, LedgerError> {
        let (id, now) = (id.clone(), self.now());
        self.write("commit.publish", move |tx| {
            let Intent { session_id, workspace_id, call, base, target, .. } = intended(tx, &id)?;
            let moved = tx.execute(
                "UPDATE workspaces SET revision = ?3 WHERE id = ?1 AND revision = ?2",
                params![workspace_id.as_str(), base.revision, target.revision],
            )?;
            if moved != 1 {
                return Err(LedgerError::Absent { kind: "current base of application", id: id.to_string() });
            }
            tx.execute(
                "INSERT INTO revisions (workspace_id, revision, digest, root, manifest)
                 SELECT workspace_id, ?2, ?3, ?4, manifest FROM applications WHERE id = ?1",
                params![id.as_str(), target.revision, target.digest.as_str(), target.root],
            )?;
            let workspace = Workspace {
                id: workspace_id,
                revision: target.revision,
                digest: target.digest,
                root: target.root,
            };
            if let Some(call) = call {
                tx.execute(
                    "INSERT INTO receipts (session_id, call_id, request, application_id, workspace)
                     VALUES (?1, ?2, ?3, ?4, ?5)",
                    params![
                        session_id.as_str(),
                        call.id.as_str(),
                        call.request.as_str(),
                        id.as_str(),
                        rows::to_json("receipt", &workspace)?,
                    ],
                )?;
            }
            close(tx, &id, Phase::Published, &Event::Published, &now)?;
            Ok(workspace)
        })
        .await
    }

    /// Ends an intended application of which nothing is left; its call id is free again. One that is
    /// decided already stays as it is.
    ///
    /// # Errors
    /// An error of writing.
    pub async fn fail_application(&self, id: &ApplicationId, detail: String) -> Result<(), LedgerError> {
        self.end_application(id, Phase::Failed, Event::Failed { detail }).await
    }

    /// Ends an intended application whose base changed; `kept` is the directory that is kept for it.
    ///
    /// # Errors
    /// An error of writing.
    pub async fn block_application(
        &self,
        id: &ApplicationId,
        detail: String,
        kept: String,
    ) -> Result<(), LedgerError> {
        self.end_application(id, Phase::Blocked, Event::Blocked { detail, kept }).await
    }

    async fn end_application(
        &self,
        id: &ApplicationId,
        phase: Phase,
        event: Event,
    ) -> Result<(), LedgerError> {
        let (id, now) = (id.clone(), self.now());
        self.write("commit.unpublished", move |tx| match intended(tx, &id) {
            Ok(_) => close(tx, &id, phase, &event, &now),
            Err(LedgerError::Absent { .. }) => Ok(()),
            Err(other) => Err(other),
        })
        .await
    }

    /// Reads the applications that are not decided, oldest first.
    ///
    /// # Errors
    /// An error of reading.
    pub async fn intended_applications(&self) -> Result<Vec<Application>, LedgerError> {
        self.read(|tx| {
            let sql = "SELECT intent, manifest FROM applications WHERE phase = 'intended' ORDER BY seq";
            rows::all(tx, sql, [], |row| {
                Ok(Application {
                    intent: intent(row)?,
                    manifest: rows::from_json("manifest", &row.get::<_, String>(1)?)?,
                })
            })
        })
        .await
    }

    /// Reads the blocked applications of a workspace, oldest first.
    ///
    /// # Errors
    /// An error of reading.
    pub async fn blocked_applications(&self, workspace: &WorkspaceId) -> Result<Vec<Blocked>, LedgerError> {
        let id = workspace.clone();
        self.read(move |tx| {
            let sql = "SELECT a.intent, e.event FROM applications a
                       JOIN application_events e ON e.application_id = a.id
                       WHERE a.workspace_id = ?1 AND a.phase = 'blocked' ORDER BY e.seq";
            let found = rows::all(tx, sql, [id.as_str()], |row| {
                let event: Event = rows::from_json("application event", &row.get::<_, String>(1)?)?;
                Ok((intent(row)?, event))
            })?;
            Ok(found
                .into_iter()
                .filter_map(|(intent, event)| match event {
                    Event::Blocked { detail, kept } => Some(Blocked { intent, detail, kept }),
                    _ => None,
                })
                .collect())
        })
        .await
    }

    /// Reads the receipt of a call.
    ///
    /// # Errors
    /// An error of reading.
    pub async fn receipt(&self, session: &SessionId, call: &CallId) -> Result<Option<Receipt>, LedgerError> {
        let (session, call) = (session.clone(), call.clone());
        self.read(move |tx| receipt(tx, &session, &call)).await
    }

    /// Reads everything that was committed about the applications of a session, in that order.
    ///
    /// # Errors
    /// An error of reading.
    pub async fn journal(&self, session: &SessionId) -> Result<Vec<JournalEntry>, LedgerError> {
        let session = session.clone();
        self.read(move |tx| {
            let sql = "SELECT e.seq, e.application_id, e.at, e.event FROM application_events e
                       JOIN applications a ON a.id = e.application_id
                       WHERE a.session_id = ?1 ORDER BY e.seq";
            rows::all(tx, sql, [session.as_str()], |row| {
                Ok(JournalEntry {
                    seq: row.get::<_, i64>(0)?.unsigned_abs(),
                    application: rows::text("application id", &row.get::<_, String>(1)?)?,
                    at: row.get(2)?,
                    event: rows::from_json("application event", &row.get::<_, String>(3)?)?,
                })
            })
        })
        .await
    }
}

fn absent(kind: &'static str, id: &impl std::fmt::Display) -> LedgerError {
    LedgerError::Absent { kind, id: id.to_string() }
}

/// Reads an intent from the first column.
fn intent(row: &Row<'_>) -> Result<Intent, LedgerError> {
    rows::from_json("application intent", &row.get::<_, String>(0)?)
}

fn intended(tx: &Transaction<'_>, id: &ApplicationId) -> Result<Intent, LedgerError> {
    let sql = "SELECT intent FROM applications WHERE id = ?1 AND phase = 'intended'";
    rows::all(tx, sql, [id.as_str()], intent)?.pop().ok_or_else(|| absent("intended application", id))
}

/// The undecided application of a workspace.
pub(super) fn open(
    tx: &Transaction<'_>,
    workspace: &WorkspaceId,
) -> Result<Option<ApplicationId>, LedgerError> {
    let sql = "SELECT id FROM applications WHERE workspace_id = ?1 AND phase = 'intended'";
    let found = rows::all(tx, sql, [workspace.as_str()], |row| {
        rows::text("application id", &row.get::<_, String>(0)?)
    })?;
    Ok(found.into_iter().next())
}

/// Ends an application. The manifest of a published one is its revision's; that of another is not needed.
fn close(
    tx: &Transaction<'_>,
    id: &ApplicationId,
    phase: Phase,
    event: &Event,
    now: &str,
) -> Result<(), LedgerError> {
    tx.execute(
        "UPDATE applications SET phase = ?2, manifest = NULL WHERE id = ?1",
        params![id.as_str(), rows::name("application phase", &phase)?],
    )?;
    log(tx, id, event, now)
}

fn log(tx: &Transaction<'_>, id: &ApplicationId, event: &Event, now: &str) -> Result<(), LedgerError> {
    tx.execute(
        "INSERT INTO application_events (application_id, event, at) VALUES (?1, ?2, ?3)",
        params![id.as_str(), rows::to_json("application event", event)?, now],
    )?;
    Ok(())
}

fn receipt(tx: &Transaction<'_>, session: &SessionId, call: &CallId) -> Result<Option<Receipt>, LedgerError> {
    let found = tx
        .prepare_cached("SELECT request, workspace FROM receipts WHERE session_id = ?1 AND call_id = ?2")?
        .query_row([session.as_str(), call.as_str()], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })
        .optional()?;
    let Some((request, workspace)) = found else { return Ok(None) };
    let request: Digest = rows::text("digest", &request)?;
    Ok(Some(Receipt {
        call: Call { id: call.clone(), request },
        workspace: rows::from_json("receipt", &workspace)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::application::Root;
    use crate::domain::manifest::TreeManifest;
    use crate::domain::refusal::Code;
    use crate::domain::session::SessionKind;
    use crate::ledger::Import;

    async fn ready(dir: &std::path::Path) -> (Ledger, Session) {
        let ledger = Ledger::open(&dir.join("ledger.db")).unwrap();
        let (session, workspace) = (SessionId::fresh(), WorkspaceId::fresh());
        ledger
            .begin_session(&session, SessionKind::Coding, "/p".into(), Some((workspace, "/r".into())))
            .await
            .unwrap();
        let import = Import { root: "/r1".into(), manifest: TreeManifest::default(), excluded: vec![] };
        let session = ledger.publish_import(&session, import).await.unwrap();
        (ledger, session)
    }

    fn application(session: &Session, call: Option<&str>) -> Application {
        let workspace = session.workspace.clone().unwrap();
        let manifest = TreeManifest::default();
        let revision = workspace.revision + 1;
        let intent = Intent {
            id: ApplicationId::fresh(),
            session_id: session.id.clone(),
            workspace_id: workspace.id,
            call: call.map(|id| Call { id: CallId::parse(id).unwrap(), request: Digest::of(b"x") }),
            base: Root {
                revision: workspace.revision,
                digest: workspace.digest.clone(),
                root: workspace.root,
            },
            source: workspace.digest,
            target: Root { revision, digest: manifest.digest(), root: format!("/r{revision}") },
        };
        Application { intent, manifest }
    }

    async fn begin(ledger: &Ledger, application: &Application) -> Result<Begun, LedgerError> {
        ledger.begin_application(application.clone(), |_| Ok(None)).await
    }

    async fn events(ledger: &Ledger, session: &Session) -> Vec<Event> {
        ledger.journal(&session.id).await.unwrap().into_iter().map(|entry| entry.event).collect()
    }

    #[tokio::test]
    async fn ft4_root_revision_event_and_receipt_are_one_transaction() {
        let tmp = tempfile::tempdir().unwrap();
        let (ledger, session) = ready(tmp.path()).await;
        let one = application(&session, Some("c"));
        assert_eq!(begin(&ledger, &one).await.unwrap(), Begun::Fresh);
        assert_eq!(ledger.intended_applications().await.unwrap(), std::slice::from_ref(&one));
        let before = ledger.commits();
        let workspace = ledger.publish_application(&one.intent.id).await.unwrap();
        assert_eq!(ledger.commits(), before + 1);
        let now = ledger.session(&session.id).await.unwrap().workspace.unwrap();
        assert_eq!((&now, now.revision, now.root.as_str()), (&workspace, 2, "/r2"));
        assert_eq!(ledger.manifest(&now.id, 2).await.unwrap(), one.manifest);
        let receipt = ledger.receipt(&session.id, &CallId::parse("c").unwrap()).await.unwrap().unwrap();
        assert_eq!(receipt, Receipt { call: one.intent.call.clone().unwrap(), workspace });
        assert_eq!(events(&ledger, &session).await, [Event::Intended, Event::Published]);
        assert!(ledger.intended_applications().await.unwrap().is_empty());
        // It is decided: neither again nor otherwise.
        ledger.publish_application(&one.intent.id).await.unwrap_err();
        ledger.fail_application(&one.intent.id, "late".into()).await.unwrap();
        assert_eq!(events(&ledger, &session).await.len(), 2);
        assert!(ledger.latched().is_none());
    }

    #[tokio::test]
    async fn ft4_an_application_whose_base_is_not_current_writes_nothing() {
        let tmp = tempfile::tempdir().unwrap();
        let (ledger, session) = ready(tmp.path()).await;
        let one = application(&session, Some("c"));
        let _ = begin(&ledger, &one).await.unwrap();
        let sql = "UPDATE workspaces SET revision = 7";
        rusqlite::Connection::open(tmp.path().join("ledger.db")).unwrap().execute_batch(sql).unwrap();
        let before = ledger.commits();
        ledger.publish_application(&one.intent.id).await.unwrap_err();
        assert_eq!((ledger.commits(), ledger.latched()), (before, None));
        assert!(ledger.receipt(&session.id, &CallId::parse("c").unwrap()).await.unwrap().is_none());
        assert_eq!(ledger.intended_applications().await.unwrap(), [one]);
    }

    #[tokio::test]
    async fn ft4_the_decision_is_made_inside_the_transaction_and_a_refusal_stores_nothing() {
        let tmp = tempfile::tempdir().unwrap();
        let (ledger, session) = ready(tmp.path()).await;
        let (one, want) = (application(&session, Some("c")), session.clone());
        let refused = ledger
            .begin_application(one.clone(), move |grounds| {
                assert_eq!((&grounds.session, &grounds.receipt, &grounds.open), (&want, &None, &None));
                Err(Refusal::new(Code::StaleRevision, "stale", "read"))
            })
            .await;
        assert!(matches!(refused, Err(LedgerError::Refused(r)) if r.code == Code::StaleRevision));
        assert!(ledger.intended_applications().await.unwrap().is_empty());
        let _ = begin(&ledger, &one).await.unwrap();
        let open = one.intent.id.clone();
        let _ = ledger
            .begin_application(application(&session, None), move |grounds| {
                assert_eq!(grounds.open, Some(open));
                Err(Refusal::new(Code::Busy, "busy", "wait"))
            })
            .await
            .unwrap_err();
        let busy = ledger.end_session(&session.id).await.unwrap_err();
        assert!(matches!(busy, LedgerError::Refused(r) if r.code == Code::Busy));
        let saved = ledger.publish_application(&one.intent.id).await.unwrap();
        let answer = ledger
            .begin_application(application(&session, Some("c")), |grounds| {
                Ok(grounds.receipt.clone().map(|receipt| receipt.workspace))
            })
            .await
            .unwrap();
        assert_eq!(answer, Begun::Receipt(saved));
    }

    #[tokio::test]
    async fn ft4_a_failed_or_blocked_one_frees_its_call_and_goes_with_its_session() {
        let tmp = tempfile::tempdir().unwrap();
        let (ledger, session) = ready(tmp.path()).await;
        let workspace = session.workspace.clone().unwrap().id;
        let (one, two) = (application(&session, Some("c")), application(&session, Some("c")));
        let _ = begin(&ledger, &one).await.unwrap();
        ledger.fail_application(&one.intent.id, "no space".into()).await.unwrap();
        let _ = begin(&ledger, &two).await.unwrap();
        ledger.block_application(&two.intent.id, "edited".into(), "/kept".into()).await.unwrap();
        let blocked = ledger.blocked_applications(&workspace).await.unwrap();
        assert_eq!(blocked, [Blocked { intent: two.intent, detail: "edited".into(), kept: "/kept".into() }]);
        assert_eq!(ledger.session(&session.id).await.unwrap(), session);
        assert_eq!(events(&ledger, &session).await.len(), 4);
        ledger.begin_removal(&session.id).await.unwrap();
        ledger.drop_session(&session.id).await.unwrap();
        assert!(events(&ledger, &session).await.is_empty());
        assert!(ledger.blocked_applications(&workspace).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn b12_a_failed_publish_commit_latches_and_is_all_or_none() {
        let tmp = tempfile::tempdir().unwrap();
        let (ledger, session) = ready(tmp.path()).await;
        let one = application(&session, Some("c"));
        let _ = begin(&ledger, &one).await.unwrap();
        ledger.fail_commits(true);
        let failed = ledger.publish_application(&one.intent.id).await.unwrap_err();
        assert!(matches!(failed, LedgerError::Sql(_)), "{failed}");
        ledger.fail_commits(false);
        let latched = ledger.fail_application(&one.intent.id, "late".into()).await.unwrap_err();
        assert!(matches!(latched, LedgerError::Latched(_)), "{latched}");
        assert_eq!(ledger.session(&session.id).await.unwrap(), session);
        ledger.reopen().await.unwrap();
        assert_eq!(ledger.intended_applications().await.unwrap(), std::slice::from_ref(&one));
        assert_eq!(ledger.publish_application(&one.intent.id).await.unwrap().revision, 2);
    }
}
