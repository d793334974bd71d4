//! What `salaam_files` answers. Every answer is bounded; one that was cut says how to go on.

use crate::domain::manifest::Change;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An answer, named by the `operation` that was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "operation", rename_all = "snake_case")]
#[schema(as = FilesAnswer)]
pub enum Answer {
    /// What the workspace is.
    Inspect(InspectAnswer),
    /// Which files it holds.
    List(ListAnswer),
    /// Where a text stands.
    Search(SearchAnswer),
    /// A file's lines.
    Read(ReadAnswer),
    /// A new revision.
    Patch(PatchAnswer),
}

/// The workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InspectAnswer {
    /// Stable while revisions change.
    pub workspace_id: String,
    /// The current revision; the initial import is 1.
    pub revision: u32,
    /// Digest of that revision's manifest.
    pub digest: String,
    /// How many files it holds.
    pub files: u64,
    /// How many bytes they hold together.
    pub bytes: u64,
    /// How many directories hold nothing.
    pub empty_directories: u64,
    /// What no revision may exceed.
    pub limits: FileLimits,
    /// Names of the project that were left out of the workspace; a patch may not make them either.
    pub excluded: Vec<LeftOut>,
    /// How many there are.
    pub excluded_total: u64,
    /// Goes on with them; null at the end.
    pub next_cursor: Option<String>,
}

/// What no revision may exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileLimits {
    /// Most files.
    pub files: u64,
    /// Most files and directories together.
    pub entries: u64,
    /// Most bytes in all files together.
    pub total_bytes: u64,
    /// Most bytes in one file.
    pub file_bytes: u64,
    /// Most names in a path.
    pub path_components: u64,
    /// Most revisions.
    pub revisions: u32,
    /// Most bytes in all revisions together.
    pub kept_bytes: u64,
}

/// A name of the project that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftOut {
    /// Where it lies in the project.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// A page of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListAnswer {
    /// The revision that they are of.
    pub revision: u32,
    /// The files, sorted by the bytes of their paths.
    pub files: Vec<Listed>,
    /// How many there are on all pages.
    pub total: u64,
    /// Goes on; null at the end.
    pub next_cursor: Option<String>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Listed {
    /// Where it lies.
    pub path: String,
    /// Length in bytes.
    pub length: u64,
    /// SHA-256 of its content, as a patch expects it.
    pub hash: String,
    /// Whether it may be executed.
    pub executable: bool,
}

/// A page of lines that hold the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SearchAnswer {
    /// The revision that they are of.
    pub revision: u32,
    /// The lines, by path and number.
    pub matches: Vec<Match>,
    /// Files that were passed over on the way.
    pub skipped: Vec<Skipped>,
    /// Goes on; null at the end.
    pub next_cursor: Option<String>,
}

/// A line that holds the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Match {
    /// The file.
    pub path: String,
    /// The line, counted from 1.
    pub line: u64,
    /// The character of the line at which the text first stands, counted from 1.
    pub column: u64,
    /// The line, or a part of it around the text.
    pub text: String,
    /// The character of the line at which `text` begins.
    pub text_column: u64,
    /// True when the line is longer than `text`.
    pub cut: bool,
}

/// A file that was not searched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Skipped {
    /// The file.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// Lines of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadAnswer {
    /// The revision that the file is of.
    pub revision: u32,
    /// The file.
    pub path: String,
    /// SHA-256 of its content, as a patch expects it.
    pub hash: String,
    /// Its length in bytes.
    pub length: u64,
    /// Whether it may be executed.
    pub executable: bool,
    /// How many lines it has.
    pub total_lines: u64,
    /// True when its last line ends in a line feed.
    pub final_newline: bool,
    /// The lines, without their line feeds.
    pub lines: Vec<Line>,
    /// Where to go on; null when the last line is here.
    pub next: Option<Position>,
}

/// A line, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Line {
    /// Counted from 1.
    pub line: u64,
    /// The character of the line at which `text` begins, counted from 1.
    pub column: u64,
    /// Its text.
    pub text: String,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Position {
    /// The line, counted from 1.
    pub line: u64,
    /// The character of that line, counted from 1.
    pub column: u64,
}

/// A new revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PatchAnswer {
    /// The workspace.
    pub workspace_id: String,
    /// The revision that the patch made.
    pub revision: u32,
    /// Digest of its manifest.
    pub digest: String,
    /// The files that the patch named, as they are in it; the operation list shows those that are cut.
    pub files: Vec<Patched>,
    /// How many files the patch named.
    pub files_total: u64,
}

/// A file after a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Patched {
    /// The file.
    pub path: String,
    /// What happened to it.
    pub change: Change,
    /// SHA-256 of its content; null when it was deleted.
    pub hash: Option<String>,
}
