//! The ledger: the one durable record of sessions, workspaces, runs and events (design rule 1).
//!
//! SQLite in WAL mode with `synchronous=FULL`. One thread owns the writing connection ([`writer`]), so
//! commits are in one order and nothing blocks a runtime thread; a second one reads. The first error of
//! a write latches: SQLite cannot say whether a failed commit is there once reopened, so nothing is
//! written until the file has been opened anew, checked and written to ([`Ledger::reopen`]).

pub mod applications;
pub mod apply;
pub mod error;
mod rows;
pub mod runs;
pub mod schema;
pub mod sessions;
#[cfg(test)]
mod tests;
pub mod writer;

pub use applications::{ApplyGrounds, Begun, JournalEntry, Receipt};
pub use apply::{Facts, apply};
pub use error::LedgerError;
pub use runs::{Grounds, Place, Requested, Verdict};
pub use sessions::{Import, Phase, Unfinished};
pub use writer::{Ledger, WallClock};
