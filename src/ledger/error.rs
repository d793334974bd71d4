//! Why the ledger could not do what was asked, and what a client is told of it.

use crate::domain::refusal::{Code, Refusal};
use crate::domain::run::IllegalStep;
use std::path::PathBuf;

/// A fault or refusal of the ledger.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file could not be made or opened.
    #[error("the ledger {path} cannot be opened: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A newer version of the program wrote it.
    #[error("the ledger {path} has format {found}; this version knows formats up to {known}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// It is a database of some other program.
    #[error("{path} is not a ledger of this program (application id {found:#x})")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The application id found.
        found: i64,
    },
    /// Its check failed.
    #[error("the ledger {path} is damaged: {detail}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What the check says.
        detail: String,
    },
    /// SQLite reported an error.
    #[error("the ledger failed: {0}")]
    Sql(#[from] rusqlite::Error),
    /// Another process holds the database's own lock; nothing was written.
    #[error("another process keeps the ledger locked")]
    Locked,
    /// An earlier write failed, so none is taken until the ledger is reopened.
    #[error("the ledger takes no writes since an error: {0}")]
    Latched(String),
    /// The ledger is closed.
    #[error("the ledger is closed: the service is stopping")]
    Closed,
    /// A row holds what this version cannot read.
    #[error("the ledger holds a {what} that cannot be read: {detail}")]
    Row {
        /// What it should be.
        what: &'static str,
        /// Why it is not.
        detail: String,
    },
    /// An event that may not happen.
    #[error("{0}")]
    Illegal(#[from] IllegalStep),
    /// Nothing of that kind has the id.
    #[error("there is no {kind} {id}")]
    Absent {
        /// `session`, `revision`, `run` and the like.
        kind: &'static str,
        /// The id.
        id: String,
    },
    /// The caller's own decision inside the transaction; nothing was written.
    #[error("{0}")]
    Refused(Refusal),
}

impl From<Refusal> for LedgerError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<LedgerError> for Refusal {
    fn from(error: LedgerError) -> Self {
        let (code, hint) = match &error {
            LedgerError::Refused(refusal) => return refusal.clone(),
            LedgerError::Absent { kind: "session", .. } => {
                (Code::NotFound, "`sal session list` names the sessions")
            }
            LedgerError::Absent { kind: "revision", .. } => (
                Code::NotFound,
                "they begin with 1; `sal workspace inspect SESSION_ID` names the current one",
            ),
            LedgerError::Absent { .. } => (Code::NotFound, "`sal commands list SESSION_ID` names the runs"),
            LedgerError::Newer { .. } => {
                (Code::Internal, "use the newer version of sal, or another state directory")
            }
            LedgerError::Foreign { .. } => (Code::Internal, "use another state directory"),
            LedgerError::Corrupt { .. } => {
                (Code::Internal, "restore ledger.db from a copy, or use another state directory")
            }
            LedgerError::Latched(_) | LedgerError::Sql(_) => (
                Code::NotReady,
                "check the disk of the state directory; the service opens the ledger again by itself, and saved \
                 data stays readable",
            ),
            LedgerError::Locked => (Code::NotReady, "close the program that has ledger.db open, then repeat"),
            LedgerError::Closed => (Code::NotReady, "start the service again"),
            LedgerError::Io { .. } => (Code::Internal, "check the owner and mode of the state directory"),
            LedgerError::Row { .. } | LedgerError::Illegal(_) => {
                (Code::Internal, "this is a fault of the program; please report it with the service's log")
            }
        };
        Self::new(code, error.to_string(), hint)
    }
}
