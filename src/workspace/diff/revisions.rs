//! Two published revisions on disk into a diff: only the files that differ are read.

use super::compare::{Tree, TreeFile, diff};
use crate::domain::diff::Diff;
use crate::domain::manifest::{FileEntry, TreeManifest};
use crate::domain::refusal::{Code, Refusal};
use crate::workspace::contents::{ContentsError, contents};
use crate::workspace::policy::printable;
use std::collections::HashMap;
use std::path::Path;

/// Most paths that a refusal names.
const NAMED: usize = 8;

/// Why two revisions could not be compared.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DiffError(#[from] ContentsError);

impl From<&DiffError> for Refusal {
    fn from(DiffError(error): &DiffError) -> Self {
        match error {
            ContentsError::Root { .. } => Self::new(
                Code::WorkspaceChanged,
                error.to_string(),
                "restore the directory, or end the session and import the project again",
            ),
            ContentsError::Changed { path, files } => {
                let mut names: Vec<String> =
                    files.iter().take(NAMED).map(|file| printable(file.as_str().as_bytes())).collect();
                if files.len() > NAMED {
                    names.push(format!("and {} more", files.len() - NAMED));
                }
                Self::new(
                    Code::WorkspaceChanged,
                    format!(
                        "{} differs from its published revision, whose bytes the diff needs: {}",
                        path.display(),
                        names.join(", ")
                    ),
                    "undo the edits in that directory, then repeat",
                )
            }
        }
    }
}

/// Compares two published revisions, each given by its root and its manifest. What an editor has done to
/// files that are the same in both does not matter.
///
/// # Errors
/// [`DiffError`] when a root cannot be opened or a file that differs is not there as published.
pub fn revisions(old: (&Path, &TreeManifest), new: (&Path, &TreeManifest)) -> Result<Diff, DiffError> {
    Ok(diff(&tree(old, new.1)?, &tree(new, old.1)?))
}

/// The files of a revision that the other does not have alike.
fn tree((root, manifest): (&Path, &TreeManifest), other: &TreeManifest) -> Result<Tree, ContentsError> {
    let known: HashMap<_, _> = other.files().iter().map(|file| (&file.path, file)).collect();
    let wanted: Vec<&FileEntry> =
        manifest.files().iter().filter(|file| known.get(&file.path) != Some(file)).collect();
    let bytes = if wanted.is_empty() { Vec::new() } else { contents(root, &wanted)? };
    let files = wanted.into_iter().zip(bytes);
    Ok(files
        .map(|(file, bytes)| (file.path.clone(), TreeFile { executable: file.executable, bytes }))
        .collect())
}
