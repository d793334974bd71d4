//! Transactions on sessions and workspaces.
//!
//! ```text
//!  importing ──publish──▶ active ──end──▶ ended
//!      │                     └──────┬───────┘
//!    drop (refused, or found       removing ── drop (directory deleted)
//!    at the next start)
//! ```

use super::applications;
use super::error::LedgerError;
use super::rows;
use super::runs;
use super::writer::Ledger;
use crate::domain::ids::{RunId, SessionId, WorkspaceId};
use crate::domain::manifest::TreeManifest;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::session::{Excluded, Session, SessionKind};
use rusqlite::{OptionalExtension, Transaction, params};
use std::collections::BTreeSet;
use std::path::Path;

/// A phase in which a session is not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its import was intended and not published.
    Importing,
    /// Its deletion was intended and not finished.
    Removing,
}

/// A session that a stop of the service left half made or half removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The session.
    pub session: SessionId,
    /// Its workspace, whose directory may exist.
    pub workspace: Option<WorkspaceId>,
    /// What was under way.
    pub phase: Phase,
}

/// The result of an import, to be published as revision 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// Absolute directory on the host.
    pub root: String,
    /// What it holds.
    pub manifest: TreeManifest,
    /// What was left out.
    pub excluded: Vec<Excluded>,
}

impl Ledger {
    /// Commits the intent to make a session. An ordinary one is active at once; one with a workspace, below
    /// the given coding root, becomes so with [`Ledger::publish_import`]. The first workspace binds the
    /// ledger to its coding root ([`Ledger::coding_root`]).
    ///
    /// # Errors
    /// An error of writing.
    pub async fn begin_session(
        &self,
        id: &SessionId,
        kind: SessionKind,
        cwd: String,
        workspace: Option<(WorkspaceId, String)>,
    ) -> Result<(), LedgerError> {
        let id = id.clone();
        let now = self.now();
        self.write("commit.session", move |tx| {
            if let Some((workspace, coding_root)) = &workspace {
                let bound = bound(tx)?.unwrap_or_else(|| coding_root.clone());
                tx.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('coding_root', ?1)", [bound])?;
                tx.execute("INSERT INTO workspaces (id, revision) VALUES (?1, 0)", [workspace.as_str()])?;
            }
            tx.execute(
                "INSERT INTO sessions (id, kind, cwd, phase, workspace_id, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    id.as_str(),
                    rows::name("session kind", &kind)?,
                    cwd,
                    if workspace.is_some() { "importing" } else { "active" },
                    workspace.as_ref().map(|(id, _)| id.as_str()),
                    now,
                ],
            )?;
            Ok(())
        })
        .await
    }

    /// Reads the coding root below which the workspaces of this ledger lie; `None` while there are none.
    ///
    /// # Errors
    /// An error of reading.
    pub async fn coding_root(&self) -> Result<Option<String>, LedgerError> {
        self.read(bound).await
    }

    /// Publishes an import as revision 1 and makes the session active, in one transaction.
    ///
    /// # Errors
    /// [`LedgerError::Absent`] when no import of that session is under way.
    pub async fn publish_import(&self, id: &SessionId, import: Import) -> Result<Session, LedgerError> {
        let id = id.clone();
        self.write("commit.import", move |tx| {
            let workspace: String = tx
                .query_row(
                    "SELECT workspace_id FROM sessions WHERE id = ?1 AND phase = 'importing'",
                    [id.as_str()],
                    |row| row.get(0),
                )
                .optional()?
                .ok_or_else(|| absent(&id))?;
            tx.execute(
                "INSERT INTO revisions (workspace_id, revision, digest, root, manifest)
                 VALUES (?1, 1, ?2, ?3, ?4)",
                params![
                    workspace,
                    import.manifest.digest().as_str(),
                    import.root,
                    rows::to_json("manifest", &import.manifest)?
                ],
            )?;
            for Excluded { path, reason } in &import.excluded {
                tx.prepare_cached("INSERT INTO exclusions (workspace_id, path, reason) VALUES (?1, ?2, ?3)")?
                    .execute(params![workspace, path, reason])?;
            }
            tx.execute("UPDATE workspaces SET revision = 1 WHERE id = ?1", [&workspace])?;
            tx.execute("UPDATE sessions SET phase = 'active' WHERE id = ?1", [id.as_str()])?;
            rows::session(tx, id.as_str())?.ok_or_else(|| absent(&id))
        })
        .await
    }

    /// Reads one session.
    ///
    /// # Errors
    /// [`LedgerError::Absent`].
    pub async fn session(&self, id: &SessionId) -> Result<Session, LedgerError> {
        let id = id.clone();
        self.read(move |tx| rows::session(tx, id.as_str())?.ok_or_else(|| absent(&id))).await
    }

    /// Reads all sessions, oldest first.
    ///
    /// # Errors
    /// An error of reading.
    pub async fn sessions(&self) -> Result<Vec<Session>, LedgerError> {
        self.read(|tx| {
            let ids =
                rows::all(
                    tx,
                    "SELECT id FROM sessions ORDER BY seq",
                    [],
                    |row| Ok(row.get::<_, String>(0)?),
                )?;
            let mut out = Vec::with_capacity(ids.len());
            for id in ids {
                out.extend(rows::session(tx, &id)?);
            }
            Ok(out)
        })
        .await
    }

    /// Reads the manifest of a published revision.
    ///
    /// # Errors
    /// [`LedgerError::Absent`].
    pub async fn manifest(
        &self,
        workspace: &WorkspaceId,
        revision: u32,
    ) -> Result<TreeManifest, LedgerError> {
        let id = workspace.clone();
        self.read(move |tx| {
            let text: Option<String> = tx
                .prepare_cached("SELECT manifest FROM revisions WHERE workspace_id = ?1 AND revision = ?2")?
                .query_row(params![id.as_str(), revision], |row| row.get(0))
                .optional()?;
            let text = text
                .ok_or_else(|| LedgerError::Absent { kind: "revision", id: format!("{revision} of {id}") })?;
            rows::from_json("manifest", &text)
        })
        .await
    }

    /// Reads the directory of a published revision.
    ///
    /// # Errors
    /// [`LedgerError::Absent`].
    pub async fn root(&self, workspace: &WorkspaceId, revision: u32) -> Result<String, LedgerError> {
        let id = workspace.clone();
        self.read(move |tx| {
            tx.prepare_cached("SELECT root FROM revisions WHERE workspace_id = ?1 AND revision = ?2")?
                .query_row(params![id.as_str(), revision], |row| row.get(0))
                .optional()?
                .ok_or_else(|| LedgerError::Absent { kind: "revision", id: format!("{revision} of {id}") })
        })
        .await
    }

    /// Ends a session; its workspace and runs stay. Ending twice is no error.
    ///
    /// # Errors
    /// [`LedgerError::Absent`]; a `busy` refusal while a run is live.
    pub async fn end_session(&self, id: &SessionId) -> Result<(), LedgerError> {
        let id = id.clone();
        self.write("commit.session", move |tx| set_phase(tx, &id, "ended")).await
    }

    /// Commits the intent to remove a session, which hides it; answers its workspace.
    ///
    /// # Errors
    /// [`LedgerError::Absent`]; a `busy` refusal while a run is live.
    pub async fn begin_removal(&self, id: &SessionId) -> Result<Unfinished, LedgerError> {
        let id = id.clone();
        self.write("commit.removing", move |tx| {
            let workspace = rows::session(tx, id.as_str())?.and_then(|session| session.workspace);
            set_phase(tx, &id, "removing")?;
            Ok(Unfinished { session: id, workspace: workspace.map(|w| w.id), phase: Phase::Removing })
        })
        .await
    }

    /// Deletes every row of a session that is importing or removing; an absent one is no error.
    ///
    /// # Errors
    /// An error of writing.
    pub async fn drop_session(&self, id: &SessionId) -> Result<(), LedgerError> {
        let id = id.clone();
        self.write("commit.dropped", move |tx| {
            let workspace: Option<Option<String>> = tx
                .query_row(
                    "SELECT workspace_id FROM sessions WHERE id = ?1 AND phase IN ('importing', 'removing')",
                    [id.as_str()],
                    |row| row.get(0),
                )
                .optional()?;
            let Some(workspace) = workspace else { return Ok(()) };
            tx.execute("DELETE FROM sessions WHERE id = ?1", [id.as_str()])?;
            tx.execute("DELETE FROM workspaces WHERE id = ?1", params![workspace])?;
            Ok(())
        })
        .await
    }

    /// Reads the ids of all runs of a session, listed or not.
    ///
    /// # Errors
    /// An error of reading.
    pub async fn run_ids(&self, id: &SessionId) -> Result<Vec<RunId>, LedgerError> {
        let id = id.clone();
        self.read(move |tx| {
            rows::all(tx, "SELECT id FROM runs WHERE session_id = ?1", [id.as_str()], |row| {
                rows::text("run id", &row.get::<_, String>(0)?)
            })
        })
        .await
    }

    /// Reads the ids of all runs of all sessions, listed or not.
    ///
    /// # Errors
    /// An error of reading.
    pub async fn all_run_ids(&self) -> Result<BTreeSet<RunId>, LedgerError> {
        self.read(|tx| {
            let ids = rows::all(tx, "SELECT id FROM runs", [], |row| {
                rows::text("run id", &row.get::<_, String>(0)?)
            })?;
            Ok(ids.into_iter().collect())
        })
        .await
    }

    /// Reads the sessions that a stop left half made or half removed.
    ///
    /// # Errors
    /// An error of reading.
    pub async fn unfinished_sessions(&self) -> Result<Vec<Unfinished>, LedgerError> {
        self.read(|tx| {
            let sql = "SELECT id, workspace_id, phase FROM sessions
                       WHERE phase IN ('importing', 'removing') ORDER BY seq";
            rows::all(tx, sql, [], |row| {
                let workspace: Option<String> = row.get(1)?;
                Ok(Unfinished {
                    session: rows::text("session id", &row.get::<_, String>(0)?)?,
                    workspace: workspace.map(|id| rows::text("workspace id", &id)).transpose()?,
                    phase: if row.get::<_, String>(2)? == "importing" {
                        Phase::Importing
                    } else {
                        Phase::Removing
                    },
                })
            })
        })
        .await
    }
}

/// The coding root of the workspaces that there are; those that are gone bind nobody.
fn bound(tx: &Transaction<'_>) -> Result<Option<String>, LedgerError> {
    let sql = "SELECT value FROM meta WHERE key = 'coding_root' AND EXISTS (SELECT 1 FROM workspaces)";
    if let Some(bound) = tx.query_row(sql, [], |row| row.get(0)).optional()? {
        return Ok(Some(bound));
    }
    // A ledger of before that row tells by a revision: <coding root>/<workspace>/<revision>.
    let root = tx.query_row("SELECT root FROM revisions LIMIT 1", [], |row| row.get::<_, String>(0));
    let above = |root: String| Some(Path::new(&root).ancestors().nth(2)?.to_str()?.to_owned());
    Ok(root.optional()?.and_then(above))
}

fn absent(id: &SessionId) -> LedgerError {
    LedgerError::Absent { kind: "session", id: id.to_string() }
}

fn set_phase(tx: &Transaction<'_>, id: &SessionId, phase: &str) -> Result<(), LedgerError> {
    let session = rows::session(tx, id.as_str())?.ok_or_else(|| absent(id))?;
    let live = runs::held(tx)?
        .into_iter()
        .find(|place| session.workspace.as_ref().is_some_and(|w| w.id == place.workspace_id));
    if let Some(place) = live {
        return Err(LedgerError::Refused(Refusal::new(
            Code::Busy,
            format!("session {id} still has the run {}", place.run_id),
            format!(
                "cancel it with `sal commands cancel {id} --run-id {}`, or wait for its end",
                place.run_id
            ),
        )));
    }
    if let Some(workspace) = &session.workspace
        && let Some(open) = applications::open(tx, &workspace.id)?
    {
        return Err(LedgerError::Refused(Refusal::new(
            Code::Busy,
            format!("session {id} is being changed: the application {open} is not decided yet"),
            "repeat in a moment",
        )));
    }
    tx.execute("UPDATE sessions SET phase = ?2 WHERE id = ?1", params![id.as_str(), phase])?;
    Ok(())
}
