//! Private copies of projects: what may enter one, the walk that copies or re-reads it, and where
//! its revisions lie.
//!
//! `policy`, `refused`, `exclusion`, `admission`, `edit` and `patch` decide over values; `walk` and the
//! modules that use it (`import`, `observe`) read a tree through directory descriptors, `contents` and
//! `published` single files, which `remembered` keeps in memory; `aside` writes the next revision from one; `store`, `revise` and
//! `coding_root` own the directories below the coding root; `diff` compares revisions.

pub mod admission;
pub mod aside;
mod beneath;
pub mod coding_root;
pub mod contents;
pub mod diff;
mod durable;
mod edit;
pub mod exclusion;
mod hashing;
pub mod import;
pub mod observe;
pub mod patch;
pub mod policy;
mod problem;
pub mod published;
pub mod refused;
pub mod remembered;
mod revise;
pub mod store;
mod walk;
