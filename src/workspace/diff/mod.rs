//! The difference of two published trees, as git would write it (WS.7).
//!
//! ```text
//!  two manifests ─▶ changed files ─▶ their bytes, checked ─▶ text? ─▶ lines ─▶ one hunk ─┐
//!                                                              └─ no ──▶ a comment ──────┴─▶ patch
//! ```
//! `revisions` reads; the rest is pure. The form is that of `git diff --no-renames --full-index` with
//! all context, but for binary files: a line that `git apply` takes for a patch it cannot apply would
//! make it refuse the text as well, so they stand in comments; so do files whose published bytes are lost.

mod compare;
mod content;
mod lines;
mod names;
mod patch;
mod revisions;

pub use compare::{Held, Tree, TreeFile, diff};
pub use names::quoted;
pub use revisions::{DiffError, Revision, revisions};
