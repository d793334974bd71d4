//! The service: one object that owns the ledger and the executor, and admits, drives, recovers and
//! reports runs. The HTTP layer above it only validates and translates.
//!
//! Start-up is a chain of values, each made from the one before ([`startup`]); a run's life is owned by
//! one task (`driver`), whose decisions are pure ([`tracker`]).

pub mod admission;
pub mod clock;
mod core;
mod diff;
mod driver;
pub mod facade;
mod files;
pub mod journal;
mod leftovers;
mod mend;
mod output;
pub mod plan;
pub mod ports;
pub mod prove;
pub mod publish;
pub mod readiness;
mod reconcile;
mod recovery;
mod refresh;
pub mod rules;
mod sessions;
mod settle;
mod start;
pub mod startup;
pub mod state_dir;
mod sweep;
pub mod tracker;
pub mod types;

pub use self::core::Backend;
pub use facade::Service;
pub use publish::{Call, Published};
pub use types::{
    CancelReply, CreateSession, Graces, LogPart, MAX_LOG_PART, StartCommand, Status, WorkspaceDiff,
    WorkspaceView, settled,
};
