//! Two published revisions on disk into a diff: only the files that differ are read.

use super::compare::{Held, Tree, TreeFile, diff};
use crate::domain::diff::Diff;
use crate::domain::manifest::{FileEntry, TreeManifest};
use crate::domain::refusal::Refusal;
use crate::workspace::contents::contents;
use crate::workspace::observe::ObserveError;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Why two revisions could not be compared.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DiffError(#[from] ObserveError);

impl From<&DiffError> for Refusal {
    fn from(DiffError(error): &DiffError) -> Self {
        error.into()
    }
}

/// A published revision.
#[derive(Clone, Copy, Debug)]
pub struct Revision<'a> {
    /// Its directory.
    pub root: &'a Path,
    /// Where the bytes may lie that an editor has overwritten there, in the order to look.
    pub elsewhere: &'a [PathBuf],
    /// What it held when it was published.
    pub manifest: &'a TreeManifest,
}

/// Compares two published revisions. What an editor has done to files that are the same in both does not
/// matter; a file that differs and is not there as published is named as lost.
///
/// # Errors
/// [`DiffError`] when a root cannot be opened.
pub fn revisions(old: Revision<'_>, new: Revision<'_>) -> Result<Diff, DiffError> {
    Ok(diff(&tree(old, new.manifest)?, &tree(new, old.manifest)?))
}

/// The files of a revision that the other does not have alike.
fn tree(revision: Revision<'_>, other: &TreeManifest) -> Result<Tree, ObserveError> {
    let known: HashMap<_, _> = other.files().iter().map(|file| (&file.path, file)).collect();
    let wanted: Vec<&FileEntry> =
        revision.manifest.files().iter().filter(|file| known.get(&file.path) != Some(file)).collect();
    if wanted.is_empty() {
        return Ok(Tree::new());
    }
    let mut found = contents(revision.root, &wanted)?;
    for elsewhere in revision.elsewhere.iter().filter_map(|path| path.canonicalize().ok()) {
        let lost = wanted.iter().zip(&found).filter(|(_, bytes)| bytes.is_none());
        let lost: Vec<&FileEntry> = lost.map(|(file, _)| *file).collect();
        if lost.is_empty() {
            break;
        }
        let there = contents(&elsewhere, &lost).unwrap_or_default();
        // By their digest they are the published bytes, wherever they lie.
        found.iter_mut().filter(|bytes| bytes.is_none()).zip(there).for_each(|(place, bytes)| *place = bytes);
    }
    let files = wanted.into_iter().zip(found).map(|(file, bytes)| {
        let lost = || Held::Lost { digest: file.content.clone(), length: file.length };
        let held = bytes.map_or_else(lost, Held::Bytes);
        (file.path.clone(), TreeFile { executable: file.executable, held })
    });
    Ok(files.collect())
}
