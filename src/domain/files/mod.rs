//! The tool `salaam_files` as values: what is asked, what is answered, and how a page is cut (FT.1–3).
//!
//! [`request`] and [`answer`] are the only form of the tool: routes, the command line and the schema that
//! a model is given are made from them. [`list`], [`search`] and [`read`] decide over a manifest and the
//! bytes of files; reading those bytes, planning a patch and publishing it happen elsewhere.

pub mod answer;
pub mod list;
pub mod page;
pub mod read;
pub mod request;
pub mod schema;
pub mod search;

pub use answer::Answer;
pub use request::Request;

use super::manifest::{FileEntry, TreeManifest};
use super::refusal::{Code, Refusal};
use super::relpath::RelPath;
use std::sync::Arc;

/// The tool's name.
pub const NAME: &str = "salaam_files";

/// A file's published content, or why it is not to be had.
pub type FileContent = Result<Arc<[u8]>, Refusal>;

/// A published revision: what reading operations answer from.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Its number.
    pub revision: u32,
    /// What it holds.
    pub tree: &'a TreeManifest,
}

impl<'a> View<'a> {
    /// The file at `path`.
    ///
    /// # Errors
    /// `not_found`.
    pub fn file(&self, path: &RelPath) -> Result<&'a FileEntry, Refusal> {
        self.tree.file(path).ok_or_else(|| match self.below(path) {
            Err(absent) => absent,
            Ok(_) => Refusal::new(
                Code::NotFound,
                format!("'{}' is a directory in revision {}", shown(&path.to_string()), self.revision),
                "the operation list names the files below it",
            ),
        })
    }

    /// The files at and below `path`, sorted by path bytes.
    ///
    /// # Errors
    /// `not_found` when nothing has that name.
    pub fn below(&self, path: &RelPath) -> Result<Vec<&'a FileEntry>, Refusal> {
        let found: Vec<_> = self.tree.files().iter().filter(|file| file.path.is_within(path)).collect();
        let known = path.is_root() || self.tree.empty_dirs().iter().any(|dir| dir.is_within(path));
        if found.is_empty() && !known { Err(self.absent(path)) } else { Ok(found) }
    }

    fn absent(&self, path: &RelPath) -> Refusal {
        Refusal::new(
            Code::NotFound,
            format!("there is no '{}' in revision {}", shown(path.as_str()), self.revision),
            "the operation list names every file",
        )
    }
}

/// Parses a path as the tool takes it; `""` and `"."` are the root.
///
/// # Errors
/// `invalid`, naming the path and what is wrong with it.
pub fn path(text: &str) -> Result<RelPath, Refusal> {
    RelPath::parse(text).map_err(|bad| {
        Refusal::new(
            Code::Invalid,
            format!("'{}': {bad}", shown(text)),
            "give a path of the workspace, such as src/main.js",
        )
    })
}

/// A path or a piece of text in a message: short, and without characters that steer a terminal.
pub fn shown(text: &str) -> String {
    const MOST: usize = 200;
    let mut out: String = text
        .chars()
        .take(MOST)
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect();
    if text.chars().nth(MOST).is_some() {
        out.push('…');
    }
    out
}
