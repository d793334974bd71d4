//! The service over a scripted executor: the rules of CMD, PRF.4 and the ledger, without a container.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod cancel;
mod files;
mod keys;
mod ledger;
mod proof;
mod publish;
mod publish_model;
mod reconcile;
mod recovery;
mod sessions;
mod start;
mod undecided;
mod world;
