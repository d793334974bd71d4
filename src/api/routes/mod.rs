//! The routes of `/v1`: each validates, calls the service once and translates the answer.

pub(crate) mod commands;
pub(crate) mod diff;
pub(crate) mod logs;
mod router;
pub(crate) mod service;
pub(crate) mod sessions;
pub(crate) mod tools;

pub use router::{Api, router};
