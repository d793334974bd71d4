//! The canonical manifest of a workspace tree, and its digest (WS.5).

use super::digest::Digest;
use super::relpath::RelPath;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// One regular file of a tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileEntry {
    /// Where it lies.
    pub path: RelPath,
    /// Whether its owner may execute it.
    pub executable: bool,
    /// Length in bytes.
    pub length: u64,
    /// SHA-256 of its content.
    pub content: Digest,
}

/// A tree as its files (sorted by path bytes) and its directories without files below them.
///
/// Empty directories are kept for the copy in `/work` but are not part of the digest: WS.5 defines
/// it over path, executable bit, length and content hash of files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeManifest {
    files: Vec<FileEntry>,
    empty_dirs: Vec<RelPath>,
}

impl TreeManifest {
    /// Sorts the entries into canonical order.
    pub fn new(mut files: Vec<FileEntry>, mut empty_dirs: Vec<RelPath>) -> Self {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        empty_dirs.sort();
        Self { files, empty_dirs }
    }

    /// The files, sorted by path bytes.
    pub fn files(&self) -> &[FileEntry] {
        &self.files
    }

    /// The file at `path`.
    pub fn file(&self, path: &RelPath) -> Option<&FileEntry> {
        let found = self.files.binary_search_by(|file| file.path.cmp(path));
        found.ok().and_then(|index| self.files.get(index))
    }

    /// Directories that hold nothing, sorted.
    pub fn empty_dirs(&self) -> &[RelPath] {
        &self.empty_dirs
    }

    /// Sum of the file lengths, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.files.iter().map(|f| f.length).sum()
    }

    /// SHA-256 over the canonical form: a version line, then for each file, in order,
    /// `x|-`, length, content digest and path, each ended by NUL (a path holds none).
    pub fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        hash.update(b"salaam tree manifest v1\0");
        for file in &self.files {
            hash.update(if file.executable { b"x\0" } else { b"-\0" });
            hash.update(file.length.to_string());
            hash.update(b"\0");
            hash.update(file.content.as_str());
            hash.update(b"\0");
            hash.update(file.path.as_str());
            hash.update(b"\0");
        }
        Digest::from_sha256(&hash.finalize())
    }

    /// Paths that differ between this tree and `other`, with what happened to each.
    pub fn changes(&self, other: &Self) -> Vec<(RelPath, Change)> {
        let mut out = Vec::new();
        let (mut a, mut b) = (self.files.iter().peekable(), other.files.iter().peekable());
        loop {
            match (a.peek(), b.peek()) {
                (None, None) => return out,
                (Some(x), Some(y)) if x.path == y.path => {
                    if x != y {
                        out.push((x.path.clone(), Change::Modified));
                    }
                    a.next();
                    b.next();
                }
                (Some(x), y) if y.is_none_or(|y| x.path < y.path) => {
                    out.push((x.path.clone(), Change::Deleted));
                    a.next();
                }
                (_, Some(y)) => {
                    out.push((y.path.clone(), Change::Added));
                    b.next();
                }
                (Some(_), None) => return out,
            }
        }
    }
}

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Not in the first tree.
    Added,
    /// Content or executable bit differs.
    Modified,
    /// Not in the second tree.
    Deleted,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: &[u8], executable: bool) -> FileEntry {
        FileEntry {
            path: RelPath::parse(path).unwrap(),
            executable,
            length: content.len() as u64,
            content: Digest::of(content),
        }
    }

    #[test]
    fn digest_depends_on_each_field_and_not_on_order() {
        let base = TreeManifest::new(vec![file("a", b"1", false), file("b", b"2", true)], vec![]);
        let swapped = TreeManifest::new(vec![file("b", b"2", true), file("a", b"1", false)], vec![]);
        assert_eq!(base.digest(), swapped.digest());
        for other in [
            TreeManifest::new(vec![file("a", b"1", true), file("b", b"2", true)], vec![]),
            TreeManifest::new(vec![file("c", b"1", false), file("b", b"2", true)], vec![]),
            TreeManifest::new(vec![file("a", b"3", false), file("b", b"2", true)], vec![]),
            TreeManifest::new(vec![file("a", b"1", false)], vec![]),
        ] {
            assert_ne!(base.digest(), other.digest());
        }
    }

    #[test]
    fn changes_name_every_differing_path() {
        let old = TreeManifest::new(
            vec![file("a", b"1", false), file("b", b"2", false), file("d", b"4", false)],
            vec![],
        );
        let new = TreeManifest::new(
            vec![
                file("b", b"2", true),
                file("c", b"3", false),
                file("d", b"4", false),
                file("e", b"", false),
            ],
            vec![],
        );
        let got: Vec<_> = old.changes(&new).into_iter().map(|(p, c)| (p.to_string(), c)).collect();
        let want =
            [("a", Change::Deleted), ("b", Change::Modified), ("c", Change::Added), ("e", Change::Added)];
        assert_eq!(got, want.map(|(p, c)| (p.to_owned(), c)));
    }
}
