//! Two trees into a value: which files differ, and the section of each.

use super::content::classify;
use super::patch;
use crate::domain::diff::{Content, Diff, FileChange, FileDiff, Side};
use crate::domain::digest::Digest;
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
    pub held: Held,
}

/// A published content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// The bytes.
    Bytes(Vec<u8>),
    /// An editor has overwritten or deleted them.
    Lost {
        /// Their digest.
        digest: Digest,
        /// Their length.
        length: u64,
    },
}

impl Held {
    /// True when both are the same bytes.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bytes(one), Self::Bytes(other)) => one == other,
            (Self::Lost { digest: one, .. }, Self::Lost { digest: other, .. }) => one == other,
            (Self::Lost { digest, .. }, Self::Bytes(bytes))
            | (Self::Bytes(bytes), Self::Lost { digest, .. }) => *digest == Digest::of(bytes),
        }
    }
}

impl TreeFile {
    pub(super) fn side(&self) -> Side {
        let bytes = match &self.held {
            Held::Bytes(bytes) => bytes.len() as u64,
            Held::Lost { length, .. } => *length,
        };
        Side { executable: self.executable, bytes }
    }

    /// The content; nothing of one that is lost.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.held {
            Held::Bytes(bytes) => bytes,
            Held::Lost { .. } => &[],
        }
    }

    fn content(&self) -> Content {
        match &self.held {
            Held::Bytes(bytes) => classify(bytes).0,
            Held::Lost { .. } => Content::Lost,
        }
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
            (Some(old), Some(new)) if !old.held.is(&new.held) => FileChange::Modified,
            (Some(old), Some(new)) if old.executable != new.executable => FileChange::Mode,
            (Some(_), Some(_)) => return None,
        };
        let kind = |file: Option<&TreeFile>| file.map_or(Content::Text, TreeFile::content);
        let content = match (kind(old), kind(new)) {
            // One content, of which one copy is enough to tell what it is.
            (Content::Lost, kind) | (kind, Content::Lost) if change == FileChange::Mode => kind,
            (Content::Lost, _) | (_, Content::Lost) => Content::Lost,
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
    let mut pairs: Vec<Pair<'_>> =
        paths.into_iter().filter_map(|path| Pair::of(path, old.get(path), new.get(path))).collect();
    // A lost file cannot be deleted by the patch, so nothing can be put in its place either.
    let stays = named(&pairs, |pair| pair.change == FileChange::Deleted && pair.content == Content::Lost);
    for pair in pairs.iter_mut().filter(|pair| pair.change == FileChange::Added) {
        if pair.content != Content::Binary && meets(pair.path, &stays) {
            pair.content = Content::Lost;
        }
    }
    let added = named(&pairs, |pair| {
        pair.change == FileChange::Added && matches!(pair.content, Content::Text | Content::Control)
    });
    // Without the deletion of a binary file whose place a text file needs, git could not apply the text.
    let carried = |pair: &Pair<'_>| {
        pair.change == FileChange::Deleted && pair.content == Content::Binary && meets(pair.path, &added)
    };
    let sections = patch::sections(&pairs, carried);
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

/// The paths of some files.
fn named<'a>(pairs: &[Pair<'a>], which: impl Fn(&Pair<'a>) -> bool) -> BTreeSet<&'a str> {
    pairs.iter().filter(|pair| which(pair)).map(|pair| pair.path.as_str()).collect()
}

/// True when one of `others` lies below `path`, or is a directory on the way to it.
fn meets(path: &RelPath, others: &BTreeSet<&str>) -> bool {
    let path = path.as_str();
    let below = format!("{path}/");
    let mut above = path.match_indices('/').map(|(at, _)| path.get(..at).unwrap_or_default());
    others.range(below.as_str()..).next().is_some_and(|name| name.starts_with(&below))
        || above.any(|directory| others.contains(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, bool, &[u8])]) -> Tree {
        files
            .iter()
            .map(|(path, executable, bytes)| {
                let file = TreeFile { executable: *executable, held: Held::Bytes(bytes.to_vec()) };
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
    /// Takes the bytes of some files away.
    fn lose(mut tree: Tree, paths: &[&str]) -> Tree {
        for path in paths {
            let file = tree.get_mut(&RelPath::parse(path).unwrap()).unwrap();
            let (digest, length) = (Digest::of(file.bytes()), file.bytes().len() as u64);
            file.held = Held::Lost { digest, length };
        }
        tree
    }

    #[test]
    fn ws7_lost_bytes_are_named_with_what_is_known_of_them_and_the_rest_is_the_same() {
        let old =
            tree(&[("gone", true, b"g"), ("mode", false, b"m"), ("other", false, b"1"), ("x", false, b"12")]);
        let new = tree(&[("mode", true, b"m"), ("other", false, b"2"), ("x", true, b"3")]);
        let whole = diff(&old, &new);
        let section = |got: &Diff, at: usize| got.patch[got.files[at].section.clone()].to_owned();
        for (old, new) in [
            (lose(old.clone(), &["gone", "mode", "x"]), new.clone()),
            (lose(old.clone(), &["gone", "x"]), lose(new.clone(), &["mode"])),
            (lose(old.clone(), &["gone"]), lose(new.clone(), &["x"])),
        ] {
            let got = diff(&old, &new);
            let seen: Vec<_> = got.files.iter().map(|f| (f.path.as_str(), f.content, f.in_patch)).collect();
            let want = [
                ("gone", Content::Lost, false),
                ("mode", Content::Text, true),
                ("other", Content::Text, true),
                ("x", Content::Lost, false),
            ];
            assert_eq!(seen, want);
            for (a, b) in got.files.iter().zip(&whole.files) {
                assert_eq!((a.change, a.old, a.new), (b.change, b.old, b.new));
            }
            for at in [1, 2] {
                assert_eq!(section(&got, at), section(&whole, at));
            }
            assert_eq!(
                section(&got, 0),
                "# Files a/gone and /dev/null differ; not in this patch, since published bytes are lost\n"
            );
            assert_eq!(
                section(&got, 3),
                "# Files a/x and b/x differ, mode 100644 to 100755; not in this patch, since published bytes are lost\n"
            );
        }
        // A mode alone needs no bytes at all.
        let got = diff(&lose(old.clone(), &["mode"]), &lose(new, &["mode"]));
        assert_eq!((got.files[1].content, got.files[1].in_patch), (Content::Lost, true));
        assert_eq!(section(&got, 1), section(&whole, 1));
        assert_eq!(diff(&old, &lose(old.clone(), &["x"])), Diff::default());
    }

    #[test]
    fn ws7_nothing_is_put_in_the_place_of_a_lost_file() {
        let old = tree(&[("a", false, b"1"), ("d/x", false, b"1"), ("k", false, b"\0")]);
        let new =
            tree(&[("a/b", false, b"t"), ("a-b", false, b"t"), ("d", false, b"t"), ("k/n", false, b"t")]);
        let got = diff(&lose(old, &["a", "d/x"]), &new);
        let carried: Vec<_> = got.files.iter().filter(|f| f.in_patch).map(|f| f.path.as_str()).collect();
        assert_eq!(carried, ["a-b", "k", "k/n"]);
        assert_eq!(got.files.iter().filter(|f| f.content == Content::Lost).count(), 4);
    }
}
