//! The file: how it is opened and checked, its format version and its tables.

use super::error::LedgerError;
use crate::fault::{self, Side};
use rusqlite::{Connection, OpenFlags};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// File name in the state directory.
pub const LEDGER_FILE: &str = "ledger.db";
/// `PRAGMA application_id`: "SALm".
const APPLICATION: i64 = 0x5341_4c6d;
/// How long a lock of a foreign process (a person's sqlite3 shell) is waited for.
const BUSY: Duration = Duration::from_secs(2);

/// One step a format version; `user_version` counts those applied.
const MIGRATIONS: &[&str] = &[
    "
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE workspaces (
    id TEXT PRIMARY KEY,
    revision INTEGER NOT NULL
) STRICT;
CREATE TABLE revisions (
    workspace_id TEXT NOT NULL REFERENCES workspaces(id) ON DELETE CASCADE,
    revision INTEGER NOT NULL,
    digest TEXT NOT NULL,
    root TEXT NOT NULL,
    manifest TEXT NOT NULL,
    PRIMARY KEY (workspace_id, revision)
) STRICT;
CREATE TABLE exclusions (
    workspace_id TEXT NOT NULL REFERENCES workspaces(id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;
CREATE INDEX exclusions_of ON exclusions(workspace_id);
CREATE TABLE sessions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    cwd TEXT NOT NULL,
    phase TEXT NOT NULL,
    workspace_id TEXT REFERENCES workspaces(id),
    created_at TEXT NOT NULL
) STRICT;
CREATE TABLE runs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    workspace_id TEXT NOT NULL,
    step_key TEXT NOT NULL,
    intent TEXT NOT NULL,
    progress TEXT NOT NULL,
    open INTEGER NOT NULL,
    uncertain INTEGER NOT NULL,
    UNIQUE (session_id, step_key)
) STRICT;
CREATE INDEX runs_open ON runs(seq) WHERE open = 1 OR uncertain = 1;
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    event TEXT NOT NULL,
    at TEXT NOT NULL
) STRICT;
CREATE INDEX events_of ON events(run_id, seq);
CREATE TRIGGER events_are_final BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
",
    "
CREATE TABLE applications (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    workspace_id TEXT NOT NULL,
    call_id TEXT,
    intent TEXT NOT NULL,
    manifest TEXT,
    phase TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX applications_open ON applications(workspace_id) WHERE phase = 'intended';
CREATE INDEX applications_of ON applications(workspace_id, phase);
CREATE TABLE application_events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    application_id TEXT NOT NULL REFERENCES applications(id) ON DELETE CASCADE,
    event TEXT NOT NULL,
    at TEXT NOT NULL
) STRICT;
CREATE INDEX application_events_of ON application_events(application_id, seq);
CREATE TRIGGER application_events_are_final BEFORE UPDATE ON application_events
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TABLE receipts (
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    call_id TEXT NOT NULL,
    request TEXT NOT NULL,
    application_id TEXT NOT NULL REFERENCES applications(id) ON DELETE CASCADE,
    workspace TEXT NOT NULL,
    PRIMARY KEY (session_id, call_id)
) STRICT;
",
];

/// The newest format that this version reads and writes.
pub fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Opens the ledger for writing, makes it if it is missing (mode 0600), checks it and brings it to the
/// newest format.
///
/// # Errors
/// [`LedgerError::Newer`], [`LedgerError::Foreign`], [`LedgerError::Corrupt`] or an I/O error; the file
/// is then as it was.
pub fn open_writer(path: &Path) -> Result<Connection, LedgerError> {
    let io = |source| LedgerError::Io { path: path.to_owned(), source };
    let fresh = !path.try_exists().map_err(io)?;
    // O_NOFOLLOW: a symlink in its place would lead the ledger out of the private directory.
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(path)
        .map_err(io)?;
    if fresh {
        file.sync_all().map_err(io)?;
        if let Some(parent) = path.parent() {
            std::fs::File::open(parent).and_then(|dir| dir.sync_all()).map_err(io)?;
        }
    }
    let unclean = path.with_extension("db-wal").metadata().is_ok_and(|wal| wal.len() > 0);
    drop(file);
    let mut conn = checked(path, unclean)?;
    migrate(&mut conn)?;
    Ok(conn)
}

/// Opens the ledger again after a failed write: checks it thoroughly, and commits a write to see that one
/// can be.
///
/// # Errors
/// As [`open_writer`]'s; [`LedgerError::Sql`] when the disk still takes nothing.
pub fn reopen_writer(path: &Path) -> Result<Connection, LedgerError> {
    let mut conn = checked(path, true)?;
    fault::reach("reopen", Side::Before, &path.to_string_lossy())
        .map_err(|source| LedgerError::Io { path: path.to_owned(), source })?;
    // As large as the largest commit of a run: a disk that is nearly full may take a smaller one.
    let write = |conn: &mut Connection, sql: &str| -> Result<(), LedgerError> {
        let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        tx.execute_batch(sql)?;
        Ok(tx.commit()?)
    };
    write(&mut conn, "INSERT OR REPLACE INTO meta (key, value) VALUES ('probe', hex(zeroblob(65536)))")?;
    write(
        &mut conn,
        "DELETE FROM meta WHERE key = 'probe';
         INSERT INTO meta (key, value) VALUES ('reopened', '1')
         ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1",
    )?;
    Ok(conn)
}

/// Connects for writing and checks the file, thoroughly or quickly.
fn checked(path: &Path, thoroughly: bool) -> Result<Connection, LedgerError> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(|e| damaged(path, e))?;
    check(&conn, path, thoroughly).map_err(|e| match e {
        LedgerError::Sql(e) => damaged(path, e),
        other => other,
    })?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    Ok(conn)
}

/// Opens a checked ledger for reading alone.
///
/// # Errors
/// [`LedgerError::Sql`].
pub fn open_reader(path: &Path) -> Result<Connection, LedgerError> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.pragma_update(None, "query_only", true)?;
    Ok(conn)
}

fn connect(path: &Path, mode: OpenFlags) -> Result<Connection, rusqlite::Error> {
    let conn = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(BUSY)?;
    conn.pragma_update(None, "foreign_keys", true)?;
    // An idle service should stay small: half a MiB of cache holds every row a command touches.
    conn.pragma_update(None, "cache_size", -512)?;
    Ok(conn)
}

fn damaged(path: &Path, error: rusqlite::Error) -> LedgerError {
    use rusqlite::ErrorCode as E;
    match error.sqlite_error_code() {
        Some(E::NotADatabase | E::DatabaseCorrupt) => {
            LedgerError::Corrupt { path: path.to_owned(), detail: error.to_string() }
        }
        _ => LedgerError::Sql(error),
    }
}

fn check(conn: &Connection, path: &Path, unclean: bool) -> Result<(), LedgerError> {
    let found: i64 = conn.pragma_query_value(None, "user_version", |r| r.get(0))?;
    let application: i64 = conn.pragma_query_value(None, "application_id", |r| r.get(0))?;
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
    if tables > 0 && application != APPLICATION {
        return Err(LedgerError::Foreign { path: path.to_owned(), found: application });
    }
    if found > newest() {
        return Err(LedgerError::Newer { path: path.to_owned(), found, known: newest() });
    }
    // After a clean stop no write-ahead log is left; after any other the thorough check is due.
    let pragma = if unclean { "integrity_check" } else { "quick_check" };
    let verdict: String = conn.pragma_query_value(None, pragma, |r| r.get(0))?;
    if verdict == "ok" {
        Ok(())
    } else {
        Err(LedgerError::Corrupt { path: path.to_owned(), detail: verdict })
    }
}

fn migrate(conn: &mut Connection) -> Result<(), LedgerError> {
    let from: i64 = conn.pragma_query_value(None, "user_version", |r| r.get(0))?;
    for (version, sql) in (1i64..).zip(MIGRATIONS) {
        if version > from {
            let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            tx.execute_batch(sql)?;
            tx.pragma_update(None, "application_id", APPLICATION)?;
            tx.pragma_update(None, "user_version", version)?;
            tx.commit()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ft4_a_ledger_of_format_1_is_brought_to_the_newest_with_its_rows() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join(LEDGER_FILE);
        let old = Connection::open(&path).unwrap();
        old.execute_batch(MIGRATIONS[0]).unwrap();
        old.pragma_update(None, "application_id", APPLICATION).unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        old.execute_batch(
            "INSERT INTO workspaces VALUES ('ws-1', 1);
             INSERT INTO revisions VALUES ('ws-1', 1, 'd', '/r', '{}');
             INSERT INTO sessions VALUES (1, 'ses-1', 'coding', '/p', 'active', 'ws-1', 'now');",
        )
        .unwrap();
        old.close().unwrap();
        for _ in 0..2 {
            let conn = open_writer(&path).unwrap();
            let version: i64 = conn.pragma_query_value(None, "user_version", |r| r.get(0)).unwrap();
            assert_eq!((version, newest()), (2, 2));
            let count = |table: &str| -> i64 {
                conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |r| r.get(0)).unwrap()
            };
            assert_eq!((count("revisions"), count("sessions")), (1, 1));
            assert_eq!((count("applications"), count("application_events"), count("receipts")), (0, 0, 0));
        }
    }
}
