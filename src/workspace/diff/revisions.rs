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
            ContentsError::Root(error) => error.into(),
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

/// A published revision.
#[derive(Clone, Copy, Debug)]
pub struct Revision<'a> {
    /// Its directory.
    pub root: &'a Path,
    /// Where the bytes may lie that an editor has overwritten there: the project, for the import.
    pub elsewhere: Option<&'a Path>,
    /// What it held when it was published.
    pub manifest: &'a TreeManifest,
}

/// Compares two published revisions. What an editor has done to files that are the same in both does not
/// matter.
///
/// # Errors
/// [`DiffError`] when a root cannot be opened or a file that differs is not there as published.
pub fn revisions(old: Revision<'_>, new: Revision<'_>) -> Result<Diff, DiffError> {
    Ok(diff(&tree(old, new.manifest)?, &tree(new, old.manifest)?))
}

/// The files of a revision that the other does not have alike.
fn tree(revision: Revision<'_>, other: &TreeManifest) -> Result<Tree, ContentsError> {
    let known: HashMap<_, _> = other.files().iter().map(|file| (&file.path, file)).collect();
    let wanted: Vec<&FileEntry> =
        revision.manifest.files().iter().filter(|file| known.get(&file.path) != Some(file)).collect();
    if wanted.is_empty() {
        return Ok(Tree::new());
    }
    let mut tree = Tree::new();
    let mut take = |files: Vec<&FileEntry>, bytes: Vec<Vec<u8>>| {
        let files = files.into_iter().zip(bytes);
        tree.extend(files.map(|(f, bytes)| (f.path.clone(), TreeFile { executable: f.executable, bytes })));
    };
    match (contents(revision.root, &wanted), revision.elsewhere) {
        (Ok(bytes), _) => take(wanted, bytes),
        (Err(ContentsError::Changed { path, files }), Some(elsewhere)) => {
            let (lost, kept): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|f| files.contains(&f.path));
            let bytes = contents(revision.root, &kept)?;
            take(kept, bytes);
            // By their digest they are the published bytes, wherever they lie.
            let found = elsewhere.canonicalize().map(|elsewhere| contents(&elsewhere, &lost));
            match found {
                Ok(Ok(bytes)) => take(lost, bytes),
                Ok(Err(ContentsError::Changed { files, .. })) => {
                    return Err(ContentsError::Changed { path, files });
                }
                _ => return Err(ContentsError::Changed { path, files }),
            }
        }
        (Err(error), _) => return Err(error),
    }
    Ok(tree)
}
