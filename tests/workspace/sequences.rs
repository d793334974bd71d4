//! Sequences of patches against a plain model (FT.2): what is taken, what is refused, and that a refusal
//! leaves the tree as it was.

use crate::patches::{Tree, file};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use salaam::domain::digest::Digest;
use salaam::domain::files::request::{Edit, FilePatch, Patch};
use salaam::domain::refusal::Code;
use salaam::workspace::policy::Limits;
use std::cell::Cell;
use std::collections::BTreeSet;

/// Small limits, so that all of them are met.
fn small() -> Limits {
    Limits { files: 5, entries: 9, total_bytes: 40, file_bytes: 16, components: 3, ..Limits::fixed() }
}

const EXCLUDED: [&str; 4] = [".git/x", "d/.ENV", "Node_modules/y", "OUT"];
const MALFORMED: [&str; 5] = ["../x", "/x", "a//b", "", "a\u{1b}"];
const PATHS: [&str; 8] = ["a", "b", "c", "d/x", "d/y", "e/f/g", "\u{e9}", "k/new"];
/// Twins, files in the place of directories, and one that is too deep.
const AWKWARD: [&str; 6] = ["A", "D/z", "d", "e\u{301}", "k", "a/b/c/d"];

#[derive(Clone, Debug)]
struct Asked {
    path: &'static str,
    /// Right in most cases, else null, that of another content, or no hash.
    hash: u8,
    change: Change,
    executable: Option<bool>,
}

#[derive(Clone, Debug)]
enum Change {
    Write(String),
    Delete,
    Edits(Vec<(String, String)>),
    Nothing,
}

fn asked() -> impl Strategy<Value = Asked> {
    let path = prop_oneof![
        40 => proptest::sample::select(&PATHS[..]),
        3 => proptest::sample::select(&AWKWARD[..]),
        1 => proptest::sample::select(&EXCLUDED[..]),
        1 => proptest::sample::select(&MALFORMED[..]),
    ];
    let text = "[ab\r\n]{0,9}|[ab]{16,17}";
    let edit = ("[ab\r\n]{1,2}|[ab]{0,1}", "[abc\n]{0,4}");
    let change = prop_oneof![
        5 => text.prop_map(Change::Write),
        3 => Just(Change::Delete),
        4 => proptest::collection::vec(edit, 1..3).prop_map(Change::Edits),
        1 => Just(Change::Nothing),
    ];
    let bit = prop_oneof![6 => Just(None), 1 => any::<bool>().prop_map(Some)];
    (path, 0..40u8, change, bit).prop_map(|(path, hash, change, executable)| Asked {
        path,
        hash,
        change,
        executable,
    })
}

impl Asked {
    fn made(&self, tree: &Tree) -> FilePatch {
        let expected = match self.hash {
            0 => None,
            1 => Some(Digest::of(b"another").to_string()),
            2 => Some("nonsense".to_owned()),
            _ => tree.hash(self.path),
        };
        let asked = FilePatch { executable: self.executable, ..file(self.path, expected) };
        // Most of what is not there is created.
        let create = Change::Write("ab".to_owned());
        match if asked.expected_hash.is_none() && self.hash > 3 { &create } else { &self.change } {
            Change::Write(text) if self.hash > 3 => {
                FilePatch { content: Some(Some(text.chars().take(8).collect())), ..asked }
            }
            Change::Write(text) => FilePatch { content: Some(Some(text.clone())), ..asked },
            Change::Delete => FilePatch { content: Some(None), ..asked },
            Change::Edits(list) => {
                let edit = |(old, new): &(String, String)| Edit { old: old.clone(), new: new.clone() };
                FilePatch { edits: Some(list.iter().map(edit).collect()), ..asked }
            }
            Change::Nothing => asked,
        }
    }
}

/// The plainest statement of what a patch does: the next tree, or nothing.
fn model(tree: &Tree, revision: u32, patch: &Patch) -> Option<Tree> {
    let mut next = tree.clone();
    let mut named = BTreeSet::new();
    for asked in &patch.files {
        let path = asked.path.as_str();
        let known = tree.files.get(path);
        if patch.revision != revision
            || MALFORMED.contains(&path)
            || EXCLUDED.contains(&path)
            || !named.insert(path)
            || tree.hash(path) != asked.expected_hash
        {
            return None;
        }
        let bit = asked.executable.unwrap_or(known.is_some_and(|(_, bit)| *bit));
        match (&asked.content, asked.edits.as_deref(), known) {
            (Some(Some(content)), None, _) => {
                next.files.insert(path.to_owned(), (content.clone().into_bytes(), bit));
            }
            (Some(None), None, Some(_)) if asked.executable.is_none() => {
                next.files.remove(path);
            }
            (None, Some([]) | None, Some((content, _))) if asked.executable.is_some() => {
                next.files.insert(path.to_owned(), (content.clone(), bit));
            }
            (None, Some(edits @ [_, ..]), Some((content, _))) => {
                let mut text = String::from_utf8(content.clone()).unwrap();
                for Edit { old, new } in edits {
                    let places: Vec<usize> =
                        (0..text.len()).filter(|i| text[*i..].starts_with(old)).collect();
                    if old.is_empty() || old == new || places.len() != 1 {
                        return None;
                    }
                    text = format!("{}{new}{}", &text[..places[0]], &text[places[0] + old.len()..]);
                    if text.len() > 16 {
                        return None;
                    }
                }
                next.files.insert(path.to_owned(), (text.into_bytes(), bit));
            }
            _ => return None,
        }
    }
    next.empty.retain(|dir| !next.files.keys().any(|path| path.starts_with(&format!("{dir}/"))));
    (next.files != tree.files && admitted(&next)).then_some(next)
}

fn admitted(tree: &Tree) -> bool {
    let key = |path: &str| path.to_lowercase().replace("e\u{301}", "\u{e9}");
    let mut directories: BTreeSet<&str> = tree.empty.iter().map(String::as_str).collect();
    for path in tree.files.keys() {
        directories.extend(path.match_indices('/').map(|(end, _)| &path[..end]));
    }
    let all: Vec<&str> = tree.files.keys().map(String::as_str).chain(directories.iter().copied()).collect();
    let keys: BTreeSet<String> = all.iter().map(|path| key(path)).collect();
    let lengths = || tree.files.values().map(|(content, _)| content.len());
    keys.len() == all.len()
        && all.len() <= 9
        && tree.files.len() <= 5
        && tree.files.keys().all(|path| path.split('/').count() <= 3)
        && lengths().all(|length| length <= 16)
        && lengths().sum::<usize>() <= 40
}

#[test]
fn ft2_sequences_of_patches_do_what_a_plain_model_does() {
    let config = Config { cases: 3_000, failure_persistence: None, ..Config::default() };
    let sequence = proptest::collection::vec((proptest::collection::vec(asked(), 1..4), 0..24u8), 1..12);
    let (taken, refused) = (Cell::new(0), Cell::new(0));
    let tested = TestRunner::new(config).run(&sequence, |patches| {
        let mut tree = Tree::of(&[("a", b"aab\r\nb"), ("d/x", b"")]);
        tree.empty.insert("k".to_owned());
        let mut revision = 1;
        for (files, odd) in patches {
            let files = files.iter().map(|asked| asked.made(&tree)).collect();
            let asked = Patch { revision: if odd == 0 { revision + 1 } else { revision }, files };
            match (tree.plan(revision, &asked, &small()), model(&tree, revision, &asked)) {
                (Ok(change), Some(next)) => {
                    prop_assert_eq!(&change.base.digest, &tree.manifest().digest());
                    let made = tree.after(&change);
                    prop_assert_eq!(&made, &next);
                    prop_assert_eq!(change.target, next.manifest());
                    (tree, revision) = (next, revision + 1);
                    taken.set(taken.get() + 1);
                }
                (Err(refusal), None) => {
                    let codes = [Code::Invalid, Code::PatchRefused, Code::LimitExceeded, Code::StaleRevision];
                    prop_assert!(codes.contains(&refusal.code), "{}", refusal);
                    refused.set(refused.get() + 1);
                }
                (plan, model) => prop_assert!(false, "{asked:?}\n{tree:?}\nplan {plan:?}\nmodel {model:?}"),
            }
        }
        Ok(())
    });
    tested.unwrap();
    assert!(taken.get() > 2_000 && refused.get() > 2_000, "{taken:?} {refused:?}");
}
