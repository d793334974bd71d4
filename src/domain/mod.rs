//! Values and pure decisions: no I/O, no process, no clock but for fresh ids. Every other module may
//! import this one.

pub mod application;
pub mod change;
pub mod diff;
pub mod digest;
pub mod files;
pub mod ids;
pub mod job;
pub mod manifest;
pub mod outcome;
pub mod profile;
pub mod record;
pub mod refusal;
pub mod relpath;
pub mod run;
pub mod session;
