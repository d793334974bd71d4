//! The service: one object that owns the ledger and the executor, and admits, drives, recovers and
//! reports runs. The HTTP layer above it only validates and translates.
//!
//! Start-up is a chain of values, each made from the one before; a run's life is owned by
//! one task, whose decisions are pure.

pub mod facade;
pub mod ports;
pub mod types;

pub use facade::Service;
pub use types::{
    CancelReply, CreateSession, LogPart, MAX_LOG_PART, StartCommand, Status, WorkspaceView, settled,
};
