//! Two trees into a value: which files differ, and the section of each.

use super::content::classify;
use super::patch;
use crate::domain::diff::{Content, Diff, FileChange, FileDiff, Side};
use crate::domain::relpath::RelPath;
use std::collections::{BTreeMap, BTreeSet};

/// The files of a tree, as far as they may differ from another's.
pub type Tree = BTreeMap<RelPath, TreeFile>;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Whether its owner may execute it.
    pub executable: bool,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl TreeFile {
    pub(super) fn side(&self) -> Side {
        Side { executable: self.executable, bytes: self.bytes.len() as u64 }
    }
}

/// A file that differs, on the way into the patch.
pub(super) struct Pair<'a> {
    pub path: &'a RelPath,
    pub old: Option<&'a TreeFile>,
    pub new: Option<&'a TreeFile>,
    pub change: FileChange,
    pub content: Content,
}

impl<'a> Pair<'a> {
    fn of(path: &'a RelPath, old: Option<&'a TreeFile>, new: Option<&'a TreeFile>) -> Option<Self> {
        let change = match (old, new) {
            (None, None) => return None,
            (None, Some(_)) => FileChange::Added,
            (Some(_), None) => FileChange::Deleted,
            (Some(old), Some(new)) if old.bytes != new.bytes => FileChange::Modified,
            (Some(old), Some(new)) if old.executable != new.executable => FileChange::Mode,
            (Some(_), Some(_)) => return None,
        };
        let kind = |file: Option<&TreeFile>| file.map_or(Content::Text, |file| classify(&file.bytes).0);
        let content = match (kind(old), kind(new)) {
            (Content::Binary, _) | (_, Content::Binary) => Content::Binary,
            (Content::Control, _) | (_, Content::Control) => Content::Control,
            (Content::Text, Content::Text) => Content::Text,
        };
        Some(Self { path, old, new, change, content })
    }
}

/// Compares two trees. Empty directories are no part of a tree here: git knows none.
pub fn diff(old: &Tree, new: &Tree) -> Diff {
    let paths: BTreeSet<&RelPath> = old.keys().chain(new.keys()).collect();
    let pairs: Vec<Pair<'_>> =
        paths.into_iter().filter_map(|path| Pair::of(path, old.get(path), new.get(path))).collect();
    let added: BTreeSet<&str> = pairs
        .iter()
        .filter(|pair| pair.change == FileChange::Added && pair.content != Content::Binary)
        .map(|pair| pair.path.as_str())
        .collect();
    let sections = patch::sections(&pairs, |pair| stands_in_the_way(pair, &added));
    let mut found = Diff::default();
    found.patch.reserve_exact(sections.iter().map(|section| section.text.len()).sum());
    for (pair, section) in pairs.iter().zip(sections) {
        let start = found.patch.len();
        found.patch.push_str(&section.text);
        found.files.push(FileDiff {
            path: pair.path.clone(),
            change: pair.change,
            content: pair.content,
            old: pair.old.map(TreeFile::side),
            new: pair.new.map(TreeFile::side),
            added_lines: section.counts.added,
            deleted_lines: section.counts.deleted,
            in_patch: section.applies,
            section: start..found.patch.len(),
        });
    }
    found
}

/// True for a deleted binary file whose name a text file needs for a directory, or that lies where a
/// text file is to be: without its deletion git could not apply the text.
fn stands_in_the_way(pair: &Pair<'_>, added: &BTreeSet<&str>) -> bool {
    if pair.change != FileChange::Deleted {
        return false;
    }
    let path = pair.path.as_str();
    let below = format!("{path}/");
    let mut above = path.match_indices('/').map(|(at, _)| path.get(..at).unwrap_or_default());
    added.range(below.as_str()..).next().is_some_and(|name| name.starts_with(&below))
        || above.any(|directory| added.contains(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, bool, &[u8])]) -> Tree {
        files
            .iter()
            .map(|(path, executable, bytes)| {
                let file = TreeFile { executable: *executable, bytes: bytes.to_vec() };
                (RelPath::parse(path).unwrap(), file)
            })
            .collect()
    }

    #[test]
    fn ws7_equal_trees_have_an_empty_patch() {
        let same = tree(&[("a", false, b"1\n"), ("b/c", true, b"\0")]);
        assert_eq!(diff(&same, &same), Diff::default());
    }

    #[test]
    fn d6_a_deleted_executable_keeps_its_mode() {
        let got = diff(&tree(&[("run.sh", true, b"#!/bin/sh\n")]), &tree(&[]));
        assert_eq!(
            got.patch,
            "diff --git a/run.sh b/run.sh\ndeleted file mode 100755\n\
             index 1a2485251c33a70432394c93fb89330ef214bfc9..0000000000000000000000000000000000000000\n\
             --- a/run.sh\n+++ /dev/null\n@@ -1 +0,0 @@\n-#!/bin/sh\n"
        );
        let file = &got.files[0];
        assert_eq!((file.change, file.added_lines, file.deleted_lines), (FileChange::Deleted, 0, 1));
    }

    #[test]
    fn ws7_sections_cover_the_patch_and_modes_stand_alone() {
        let old =
            tree(&[("m", false, b"\0"), ("t", false, b"1\n"), ("b", false, b"\xff"), ("e", false, b"")]);
        let new = tree(&[("m", true, b"\0"), ("t", true, b"2\n"), ("b", true, b"\xfe"), ("n", false, b"")]);
        let got = diff(&old, &new);
        let parts: Vec<_> = got.files.iter().map(|file| &got.patch[file.section.clone()]).collect();
        assert_eq!(parts.concat(), got.patch);
        assert_eq!(parts[0], "# Binary files a/b and b/b differ, mode 100644 to 100755; not in this patch\n");
        let empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        let null = "0000000000000000000000000000000000000000";
        assert_eq!(
            parts[1],
            format!("diff --git a/e b/e\ndeleted file mode 100644\nindex {empty}..{null}\n")
        );
        assert_eq!(parts[2], "diff --git a/m b/m\nold mode 100644\nnew mode 100755\n");
        assert_eq!(parts[3], format!("diff --git a/n b/n\nnew file mode 100644\nindex {null}..{empty}\n"));
        assert!(parts[4].starts_with("diff --git a/t b/t\nold mode 100644\nnew mode 100755\nindex "));
        let whether: Vec<_> = got.files.iter().map(|file| (file.change, file.in_patch)).collect();
        let want = [
            (FileChange::Modified, false),
            (FileChange::Deleted, true),
            (FileChange::Mode, true),
            (FileChange::Added, true),
            (FileChange::Modified, true),
        ];
        assert_eq!(whether, want);
    }

    #[test]
    fn ws7_a_binary_file_is_deleted_where_text_needs_its_place() {
        let old =
            tree(&[("a", false, b"\0"), ("d/x", false, b"\0"), ("d/e/y", true, b"\0"), ("z", false, b"\0")]);
        let new = tree(&[("a/b", false, b"t"), ("d", false, b"t"), ("z/bin", false, b"\0")]);
        let got = diff(&old, &new);
        let carried: Vec<_> = got.files.iter().map(|f| (f.path.as_str(), f.in_patch)).collect();
        let want = [
            ("a", true),
            ("a/b", true),
            ("d", true),
            ("d/e/y", true),
            ("d/x", true),
            ("z", false),
            ("z/bin", false),
        ];
        assert_eq!(carried, want);
        let section = &got.patch[got.files[0].section.clone()];
        assert!(section.ends_with("\nBinary files a/a and /dev/null differ\n"), "{section}");
    }
}
