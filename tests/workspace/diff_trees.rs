//! Pairs of trees that the rules admit, as odd as they come.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use salaam::domain::diff::Diff;
use salaam::domain::manifest::TreeManifest;
use salaam::domain::refusal::Refusal;
use salaam::workspace::diff::{Revision, revisions};
use salaam::workspace::exclusion;
use salaam::workspace::observe::observe;
use salaam::workspace::policy::{Limits, collision_key};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Files by path: executable bit and content.
pub type Files = BTreeMap<String, (bool, Vec<u8>)>;

/// Few enough that a file of one tree is a directory of the other every now and then.
const NAMES: [&str; 32] = [
    "a",
    "b",
    "c",
    "dir",
    "sp ace",
    " lead",
    "trail ",
    "q\"uote",
    "back\\slash",
    "\\303",
    "ta\tb",
    "\u{e9}",
    "e\u{301}x",
    "\u{4f60}\u{597d}",
    "\u{1f600}",
    "-dash",
    "+plus",
    "it's",
    "$HOME",
    "#hash",
    "*.js",
    "[x]",
    "x b",
    "null",
    "a\u{202e}b",
    "sep\u{2028}",
    ".gitignore",
    "@@ -1 +1 @@",
    "..dots",
    "%41",
    "~",
    "\u{ff}",
];

const BINARY: [&[u8]; 4] = [b"\0", b"\xff\xfe", b"text\nand\0nul\n", b"caf\xe9\n"];

/// Lines that look like anything a patch is made of, and what editors leave behind.
const LINES: [&str; 28] = [
    "a",
    "b",
    "c",
    "",
    "\r",
    "x\r",
    "lone\rcr",
    "\u{feff}bom",
    "sep\u{2028}line",
    "\u{85}",
    "\u{e9}",
    "\u{1f600}",
    "\x1b[1m",
    "\u{9b}31m",
    "\u{c}",
    "--- a/x",
    "+++ b/x",
    "@@ -1 +1 @@",
    "diff --git a/x b/x",
    "GIT binary patch",
    "\\ No newline at end of file",
    "# Binary files a/a and b/a differ",
    "-",
    "+",
    " ",
    "trailing  ",
    "\t",
    "\u{202e}",
];

fn text() -> impl Strategy<Value = Vec<u8>> {
    let lines = prop::collection::vec(select(&LINES[..]), 0..12);
    (lines, any::<bool>()).prop_map(|(lines, end)| {
        let mut text = lines.join("\n");
        if end && !lines.is_empty() {
            text.push('\n');
        }
        text.into_bytes()
    })
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let binary = select(&BINARY[..]).prop_map(<[u8]>::to_vec);
    prop_oneof![8 => text(), 1 => Just(Vec::new()), 2 => binary]
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(select(&NAMES[..]), 1..4).prop_map(|names| names.join("/"))
}

fn file() -> impl Strategy<Value = (String, bool, Vec<u8>)> {
    (path(), any::<bool>(), content())
}

#[derive(Clone, Debug)]
enum Edit {
    Keep,
    Delete,
    Flip,
    Replace(Vec<u8>),
    Line(Index, &'static str),
    FinalFeed,
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        2 => Just(Edit::Keep),
        2 => Just(Edit::Delete),
        1 => Just(Edit::Flip),
        2 => content().prop_map(Edit::Replace),
        3 => (any::<Index>(), select(&LINES[..])).prop_map(|(at, line)| Edit::Line(at, line)),
        1 => Just(Edit::FinalFeed),
    ]
}

fn edited(bytes: &[u8], edit: &Edit) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    match edit {
        Edit::Replace(content) => return content.clone(),
        Edit::Line(at, line) => {
            let at = at.index(lines.len());
            lines[at] = line.as_bytes().to_vec();
        }
        Edit::FinalFeed if lines.last().is_some_and(Vec::is_empty) => drop(lines.pop()),
        Edit::FinalFeed => lines.push(Vec::new()),
        Edit::Keep | Edit::Delete | Edit::Flip => {}
    }
    lines.join(&b'\n')
}

/// Takes a file in unless its name is excluded, a twin of another, or a directory of the tree.
fn admit(files: &mut Files, path: String, executable: bool, bytes: Vec<u8>) {
    let key = |path: &str| path.split('/').map(collision_key).collect::<Vec<_>>();
    let new = key(&path);
    let root = salaam::domain::relpath::RelPath::default();
    let excluded = path.split('/').any(|name| exclusion::of_name(&root, name).is_some());
    let clashes = files.keys().any(|old| {
        let theirs = key(old);
        let shared = theirs.iter().zip(&new).take_while(|(a, b)| a == b).count();
        // One is the other, or lies below it; or a directory is spelt in two ways.
        let spelt = |path: &str| path.split('/').take(shared).map(str::to_owned).collect::<Vec<_>>();
        shared == theirs.len() || shared == new.len() || spelt(old) != spelt(&path)
    });
    if !excluded && !clashes {
        files.insert(path, (executable, bytes));
    }
}

/// Two trees, the second made from the first by edits and by files of its own.
pub fn trees() -> impl Strategy<Value = (Files, Files)> {
    let old = prop::collection::vec((file(), edit()), 0..14);
    let new = prop::collection::vec(file(), 0..8);
    (old, new).prop_map(|(old, new)| {
        let (mut before, mut after) = (Files::new(), Files::new());
        let mut edits = BTreeMap::new();
        for ((path, executable, bytes), edit) in old {
            admit(&mut before, path.clone(), executable, bytes);
            edits.entry(path).or_insert(edit);
        }
        for (path, (executable, bytes)) in &before {
            match &edits[path] {
                Edit::Delete => {}
                edit => {
                    let executable = executable ^ matches!(edit, Edit::Flip);
                    admit(&mut after, path.clone(), executable, edited(bytes, edit));
                }
            }
        }
        for (path, executable, bytes) in new {
            admit(&mut after, path, executable, bytes);
        }
        (before, after)
    })
}

/// Writes a tree below `root`, which is made.
pub fn write(root: &Path, files: &Files) {
    std::fs::create_dir_all(root).unwrap();
    for (path, (executable, bytes)) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let mode = if *executable { 0o755 } else { 0o644 };
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }
}

/// Reads what lies below `root`, git's own directory apart.
pub fn read(root: &Path) -> Files {
    let mut files = Files::new();
    let mut todo = vec![(root.to_owned(), String::new())];
    while let Some((directory, prefix)) = todo.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if path == ".git" {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                todo.push((entry.path(), format!("{path}/")));
            } else {
                let executable = entry.metadata().unwrap().permissions().mode() & 0o100 != 0;
                files.insert(path, (executable, std::fs::read(entry.path()).unwrap()));
            }
        }
    }
    files
}

/// True when WS.7 calls it text: UTF-8 without NUL.
pub fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0)
}

/// A tree as a list.
pub fn files(list: &[(&str, bool, &[u8])]) -> Files {
    list.iter().map(|(path, executable, bytes)| ((*path).into(), (*executable, bytes.to_vec()))).collect()
}

/// Two published revisions on disk.
pub struct Revisions {
    pub dir: TempDir,
    pub manifests: [TreeManifest; 2],
}

impl Revisions {
    pub fn new(old: &Files, new: &Files) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let manifests = [("a", old), ("b", new)].map(|(name, files)| {
            let root = dir.path().join(name);
            write(&root, files);
            let seen = observe(&root, &Limits::fixed()).unwrap();
            assert!(
                seen.refused.is_empty() && seen.excluded.is_empty(),
                "{} {:?}",
                seen.refused,
                seen.excluded
            );
            assert_eq!(seen.manifest.files().len(), files.len());
            seen.manifest
        });
        Self { dir, manifests }
    }

    pub fn root(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn try_diff(&self) -> Result<Diff, Refusal> {
        self.diff_with(&[])
    }

    pub fn diff_with(&self, elsewhere: &[PathBuf]) -> Result<Diff, Refusal> {
        let [old, new] = &self.manifests;
        let old = Revision { root: &self.root("a"), elsewhere, manifest: old };
        let new = Revision { root: &self.root("b"), elsewhere: &[], manifest: new };
        revisions(old, new).map_err(|error| Refusal::from(&error))
    }

    pub fn diff(&self) -> Diff {
        self.try_diff().unwrap()
    }
}
