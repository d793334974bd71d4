//! Private copies of projects: what may enter one, the walk that copies or re-reads it, and where
//! its revisions lie.
//!
//! `policy`, `refused`, `exclusion`, `admission`, `edit` and `patch` decide over values; `walk` and the
//! modules that use it (`import`, `observe`), and `contents`, read a tree through directory descriptors;
//! `store` and `coding_root` own the directories below the coding root.

pub mod admission;
mod beneath;
pub mod coding_root;
pub mod contents;
mod durable;
mod edit;
pub mod exclusion;
mod hashing;
pub mod import;
pub mod observe;
pub mod patch;
pub mod policy;
mod problem;
pub mod refused;
pub mod store;
mod walk;
