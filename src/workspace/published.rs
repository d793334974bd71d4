//! Reading files of a published revision for the file tool, each by itself (FT.1): its published content, or
//! why that is not to be had.

use super::contents;
use super::observe::ObserveError;
use super::policy::printable;
use crate::domain::manifest::FileEntry;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::relpath::RelPath;
use std::path::Path;

/// Reads `files` of the revision in `root`; each by itself is its content, or why it is not to be had.
///
/// # Errors
/// [`ObserveError`] when `root` itself cannot be opened, or what it holds cannot be told.
pub fn read(root: &Path, files: &[FileEntry]) -> Result<Vec<Result<Vec<u8>, Refusal>>, ObserveError> {
    let wanted: Vec<_> = files.iter().collect();
    let read = files.iter().zip(contents::each(root, &wanted)?);
    let told = |(file, one): (&FileEntry, contents::Read)| match one {
        Ok((content, _)) => Ok(content),
        Err(why) => Err(changed(&file.path, &why)),
    };
    Ok(read.map(told).collect())
}

/// [`read`] for one file.
///
/// # Errors
/// `workspace_changed`, naming the file or the root; [`ObserveError`]'s refusal.
pub fn read_one(root: &Path, file: &FileEntry) -> Result<Vec<u8>, Refusal> {
    let mut all = read(root, std::slice::from_ref(file)).map_err(|e| Refusal::from(&e))?;
    all.pop().unwrap_or_else(|| Err(changed(&file.path, "it could not be read")))
}

pub(super) fn changed(path: &RelPath, why: &str) -> Refusal {
    Refusal::new(
        Code::WorkspaceChanged,
        format!("'{}' was changed in the workspace's directory: {why}", printable(path.as_str().as_bytes())),
        "`sal workspace inspect` shows every such change; undo it there, or adopt it with `sal workspace refresh`",
    )
}
