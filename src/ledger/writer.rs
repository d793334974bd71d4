//! The two threads that own the connections, and the handle that the service holds.

use super::error::LedgerError;
use super::schema;
use crate::fault::{self, Side};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use tokio::sync::{oneshot, watch};

/// Tells the wall-clock time, for people only: order is by sequence number, deadlines are counted in boot time.
pub type WallClock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

type Task = Box<dyn FnOnce(&mut Connection) + Send>;

/// The open ledger; cheap to clone. A connection is never carried across a fork: each lives on a thread
/// of its own, and only requests travel.
#[derive(Clone)]
pub struct Ledger {
    shared: Arc<Shared>,
    clock: WallClock,
}

struct Shared {
    path: PathBuf,
    writer: Mutex<Option<Worker>>,
    reader: Mutex<Option<Worker>>,
    /// Why no write is taken, if so.
    latch: watch::Sender<Option<String>>,
    commits: AtomicU64,
    #[cfg(test)]
    fail_commits: std::sync::atomic::AtomicBool,
}

struct Worker {
    tasks: mpsc::Sender<Task>,
    thread: JoinHandle<()>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these locks guard is replaced whole, so a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker {
    fn start(
        name: &str,
        mut conn: Connection,
        last: impl FnOnce(&Connection) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (tasks, inbox) = mpsc::channel::<Task>();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            for task in inbox {
                task(&mut conn);
            }
            last(&conn);
            if let Err((_, error)) = conn.close() {
                tracing::warn!(%error, "the ledger did not close cleanly");
            }
        })?;
        Ok(Self { tasks, thread })
    }
}

impl Ledger {
    /// Opens, checks and migrates the ledger at `path`, and starts its threads. Blocks.
    ///
    /// # Errors
    /// See [`schema::open_writer`].
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let io = |source| LedgerError::Io { path: path.to_owned(), source };
        let writer = schema::open_writer(path)?;
        let reader = schema::open_reader(path)?;
        let latch = watch::channel(None::<String>).0;
        let latched = latch.subscribe();
        // A checkpoint at the end leaves no write-ahead log: the sign of a clean stop. After a failed write
        // the log stays, so that the next start checks the whole file.
        let checkpoint = move |conn: &Connection| {
            let _ = if latched.borrow().is_some() {
                conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map(drop)
            } else {
                conn.pragma_query_value(None, "wal_checkpoint(TRUNCATE)", |_| Ok(()))
            };
        };
        let shared = Shared {
            path: path.to_owned(),
            writer: Mutex::new(Some(Worker::start("ledger-write", writer, checkpoint).map_err(io)?)),
            reader: Mutex::new(Some(Worker::start("ledger-read", reader, |_| ()).map_err(io)?)),
            latch,
            commits: AtomicU64::new(0),
            #[cfg(test)]
            fail_commits: std::sync::atomic::AtomicBool::new(false),
        };
        Ok(Self { shared: Arc::new(shared), clock: Arc::new(jiff::Timestamp::now) })
    }

    /// Takes the time of its events from `clock`, for tests of clocks that jump.
    #[must_use]
    pub fn with_clock(self, clock: WallClock) -> Self {
        Self { clock, ..self }
    }

    /// Wall-clock time now, RFC 3339.
    pub(super) fn now(&self) -> String {
        (self.clock)().to_string()
    }

    /// Why no write is taken any more, if so.
    pub fn latched(&self) -> Option<String> {
        self.shared.latch.borrow().clone()
    }

    /// Waits until a failed write has latched the ledger.
    pub async fn until_latched(&self) {
        // The sender lives as long as this handle.
        let _ = self.shared.latch.subscribe().wait_for(Option::is_some).await;
    }

    /// Waits until writes are taken (again).
    pub async fn until_open(&self) {
        let _ = self.shared.latch.subscribe().wait_for(Option::is_none).await;
    }

    /// Closes the connection whose commit failed, opens and checks the file anew, and lets writes through
    /// again once a write has been committed in it. What a failed commit left is then plain to read.
    ///
    /// # Errors
    /// Why it cannot be opened or written; the latch stays.
    pub async fn reopen(&self) -> Result<(), LedgerError> {
        let shared = Arc::downgrade(&self.shared);
        self.ask(&self.shared.writer, move |conn| {
            let shared = shared.upgrade().ok_or(LedgerError::Closed)?;
            // The old one goes first: it is never used again, and its locks are in the way of nothing.
            drop(std::mem::replace(conn, Connection::open_in_memory()?));
            *conn = schema::reopen_writer(&shared.path)?;
            shared.latch.send_replace(None);
            Ok(())
        })
        .await
    }

    /// Number of transactions that were committed with a change since the ledger was opened.
    pub fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::SeqCst)
    }

    /// Stops taking requests, finishes those under way, checkpoints and closes. Blocks. Idempotent.
    pub fn close(&self) {
        for slot in [&self.shared.reader, &self.shared.writer] {
            let worker = held(slot).take();
            if let Some(Worker { tasks, thread }) = worker {
                drop(tasks);
                let _ = thread.join();
            }
        }
    }

    /// Runs `work` in one immediate transaction and commits it; `what` names it among the points of
    /// [`fault`].
    ///
    /// # Errors
    /// Whatever `work` answers, with nothing written; or, after an error of SQLite, an error that
    /// leaves it unknown whether the change is there, and latches.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let shared = Arc::downgrade(&self.shared);
        self.ask(&self.shared.writer, move |conn| {
            let shared = shared.upgrade().ok_or(LedgerError::Closed)?;
            if let Some(reason) = shared.latch.borrow().clone() {
                return Err(LedgerError::Latched(reason));
            }
            let result = transact(conn, &shared, what, work);
            if let Err(LedgerError::Sql(error)) = &result {
                tracing::error!(%error, "the ledger latches");
                shared.latch.send_replace(Some(error.to_string()));
            }
            result
        })
        .await
    }

    /// Runs `work` on the reading connection.
    ///
    /// # Errors
    /// Whatever `work` answers; a failed read does not latch.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        // A transaction, so that several statements see one state.
        self.ask(&self.shared.reader, move |conn| work(&conn.transaction()?)).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        slot: &Mutex<Option<Worker>>,
        work: impl FnOnce(&mut Connection) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let (reply, answer) = oneshot::channel();
        let task: Task = Box::new(move |conn| {
            // The asker may have gone away; what it asked for is done all the same.
            let _ = reply.send(work(conn));
        });
        held(slot).as_ref().ok_or(LedgerError::Closed)?.tasks.send(task).map_err(|_| LedgerError::Closed)?;
        answer.await.map_err(|_| LedgerError::Closed)?
    }

    /// Makes every later commit fail, or succeed again, as if the disk reported EIO.
    #[cfg(test)]
    pub(crate) fn fail_commits(&self, fail: bool) {
        self.shared.fail_commits.store(fail, Ordering::SeqCst);
    }
}

fn transact<T>(
    conn: &mut Connection,
    shared: &Shared,
    what: &str,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, LedgerError>,
) -> Result<T, LedgerError> {
    let before = conn.total_changes();
    let tx = match conn.transaction_with_behavior(TransactionBehavior::Immediate) {
        Ok(tx) => tx,
        // Nothing was written, so nothing is unknown.
        Err(e) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
            return Err(LedgerError::Locked);
        }
        Err(e) => return Err(e.into()),
    };
    let value = work(&tx)?;
    let changed = tx.total_changes() != before;
    #[cfg(test)]
    if shared.fail_commits.load(Ordering::SeqCst) {
        return Err(as_sqlite(&std::io::Error::from_raw_os_error(nix::libc::EIO)).into());
    }
    let path = shared.path.to_string_lossy();
    fault::reach(what, Side::Before, &path).map_err(|e| as_sqlite(&e))?;
    tx.commit()?;
    fault::reach(what, Side::After, &path).map_err(|e| as_sqlite(&e))?;
    if changed {
        shared.commits.fetch_add(1, Ordering::SeqCst);
    }
    Ok(value)
}

/// The error that SQLite reports when the system answers `error` to it.
fn as_sqlite(error: &std::io::Error) -> rusqlite::Error {
    use rusqlite::ffi;
    let code = match error.raw_os_error() {
        Some(nix::libc::ENOSPC) => ffi::SQLITE_FULL,
        Some(nix::libc::EROFS) => ffi::SQLITE_READONLY,
        _ => ffi::SQLITE_IOERR_FSYNC,
    };
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ErrorCode;

    #[test]
    fn b12_errors_of_the_system_are_told_as_sqlite_tells_them() {
        for (errno, code) in [
            (nix::libc::ENOSPC, ErrorCode::DiskFull),
            (nix::libc::EROFS, ErrorCode::ReadOnly),
            (nix::libc::EIO, ErrorCode::SystemIoFailure),
        ] {
            let error = as_sqlite(&std::io::Error::from_raw_os_error(errno));
            assert_eq!(error.sqlite_error_code(), Some(code), "{error}");
        }
    }
}
