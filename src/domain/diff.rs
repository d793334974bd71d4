//! The difference of two trees as a value (WS.7): what happened to each file, and the patch.

use super::relpath::RelPath;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What happened to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// Not in the first tree.
    Added,
    /// Not in the second tree.
    Deleted,
    /// The content differs, and perhaps the executable bit.
    Modified,
    /// Only the executable bit differs.
    Mode,
}

/// What a changed content is made of, both sides taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// UTF-8 whose only control characters are line feed, tab and carriage return.
    Text,
    /// UTF-8 without NUL but with other control characters: part of the patch, never shown on a terminal.
    Control,
    /// Anything else: named, never part of the patch.
    Binary,
    /// Published bytes that the change needs are no longer there: named, never part of the patch.
    Lost,
}

/// A file in one of the two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Whether its owner may execute it.
    pub executable: bool,
    /// Its length.
    pub bytes: u64,
}

impl Side {
    /// The mode that git knows it by.
    pub fn git_mode(&self) -> &'static str {
        if self.executable { "100755" } else { "100644" }
    }
}

/// One file that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiff {
    /// Where it lies.
    pub path: RelPath,
    /// What happened to it.
    pub change: FileChange,
    /// What its content is.
    pub content: Content,
    /// The file in the first tree.
    pub old: Option<Side>,
    /// The file in the second tree.
    pub new: Option<Side>,
    /// Lines that the patch adds.
    pub added_lines: u64,
    /// Lines that the patch deletes.
    pub deleted_lines: u64,
    /// False when the change is only named: applying the patch does not make it.
    pub in_patch: bool,
    /// Which bytes of the patch belong to it.
    pub section: Range<usize>,
}

/// Every difference of two trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// The files that differ, by path.
    pub files: Vec<FileDiff>,
    /// A patch for `git apply`, made of the sections of `files` in their order.
    pub patch: String,
}
