//! Salaam's coding executor: private copies of projects, commands in hardened containers, and a
//! durable record of both. `ARCHITECTURE.md` draws the whole.

pub mod api;
pub mod cli;
pub mod domain;
pub mod exec;
pub mod fault;
pub mod image;
pub mod ledger;
pub mod proof;
pub mod service;
pub mod supervisor;
pub mod workspace;
