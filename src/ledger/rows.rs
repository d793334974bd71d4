//! Rows as values: the text forms in the tables, and reading them back.

use super::error::LedgerError;
use crate::domain::outcome::Outcome;
use crate::domain::run::{Cleanup, Headroom, OutputSize, Run, RunState};
use crate::domain::session::{Excluded, Session, Workspace};
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What changes of a run; its intent is written once and kept apart.
#[derive(Serialize, Deserialize)]
pub(super) struct Progress {
    state: RunState,
    cancel_requested: bool,
    outcome: Option<Outcome>,
    output: OutputSize,
    headroom: Headroom,
    cleanup: Cleanup,
    recovery_phase: Option<String>,
}

impl Progress {
    pub(super) fn of(run: &Run) -> Self {
        Self {
            state: run.state,
            cancel_requested: run.cancel_requested,
            outcome: run.outcome.clone(),
            output: run.output,
            headroom: run.headroom,
            cleanup: run.cleanup,
            recovery_phase: run.recovery_phase.clone(),
        }
    }
}

pub(super) fn to_json<T: Serialize>(what: &'static str, value: &T) -> Result<String, LedgerError> {
    serde_json::to_string(value).map_err(|e| LedgerError::Row { what, detail: e.to_string() })
}

pub(super) fn from_json<T: DeserializeOwned>(what: &'static str, text: &str) -> Result<T, LedgerError> {
    serde_json::from_str(text).map_err(|e| LedgerError::Row { what, detail: e.to_string() })
}

/// Columns that [`run`] reads, in its order.
pub(super) const RUN: &str = "intent, progress";

/// Reads a run from the columns [`RUN`].
pub(super) fn run(row: &Row<'_>) -> Result<Run, LedgerError> {
    let p: Progress = from_json("run", &row.get::<_, String>(1)?)?;
    Ok(Run {
        intent: from_json("run intent", &row.get::<_, String>(0)?)?,
        state: p.state,
        cancel_requested: p.cancel_requested,
        outcome: p.outcome,
        output: p.output,
        headroom: p.headroom,
        cleanup: p.cleanup,
        recovery_phase: p.recovery_phase,
    })
}

/// Collects the rows of a query with `read`.
pub(super) fn all<T>(
    tx: &Transaction<'_>,
    sql: &str,
    args: impl rusqlite::Params,
    mut read: impl FnMut(&Row<'_>) -> Result<T, LedgerError>,
) -> Result<Vec<T>, LedgerError> {
    let mut statement = tx.prepare_cached(sql)?;
    let mut rows = statement.query(args)?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        out.push(read(row)?);
    }
    Ok(out)
}

/// Reads a session with its current revision; `None` for one that is not listed (yet, or any more).
pub(super) fn session(tx: &Transaction<'_>, id: &str) -> Result<Option<Session>, LedgerError> {
    let found = tx
        .prepare_cached(
            "SELECT s.kind, s.cwd, s.phase, s.workspace_id, r.revision, r.digest, r.root
             FROM sessions s
             LEFT JOIN workspaces w ON w.id = s.workspace_id
             LEFT JOIN revisions r ON r.workspace_id = w.id AND r.revision = w.revision
             WHERE s.id = ?1 AND s.phase IN ('active', 'ended')",
        )?
        .query_row([id], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, Option<String>>(3)?,
                row.get::<_, Option<u32>>(4)?,
                row.get::<_, Option<String>>(5)?,
                row.get::<_, Option<String>>(6)?,
            ))
        })
        .optional()?;
    let Some((kind, cwd, phase, workspace, revision, digest, root)) = found else { return Ok(None) };
    let workspace = match (workspace, revision, digest, root) {
        (Some(id), Some(revision), Some(digest), Some(root)) => Some(Workspace {
            id: text("workspace id", &id)?,
            revision,
            digest: text("digest", &digest)?,
            root,
        }),
        _ => None,
    };
    let excluded = match &workspace {
        None => Vec::new(),
        Some(w) => all(
            tx,
            "SELECT path, reason FROM exclusions WHERE workspace_id = ?1 ORDER BY rowid",
            params![w.id.as_str()],
            |row| Ok(Excluded { path: row.get(0)?, reason: row.get(1)? }),
        )?,
    };
    Ok(Some(Session {
        id: text("session id", id)?,
        kind: text("session kind", &kind)?,
        cwd,
        workspace,
        excluded,
        ended: phase == "ended",
    }))
}

/// Reads a value whose JSON form is a bare string.
pub(super) fn text<T: DeserializeOwned>(what: &'static str, text: &str) -> Result<T, LedgerError> {
    serde_json::from_value(serde_json::Value::String(text.to_owned()))
        .map_err(|e| LedgerError::Row { what, detail: e.to_string() })
}

/// Writes a value whose JSON form is a bare string.
pub(super) fn name<T: Serialize>(what: &'static str, value: &T) -> Result<String, LedgerError> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => Ok(text),
        _ => Err(LedgerError::Row { what, detail: "not a plain name".into() }),
    }
}
