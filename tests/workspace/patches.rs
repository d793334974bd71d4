//! Patches as values: attacks, limits, line ends, and what does not fit (FT.2).

use salaam::domain::change::{Base, TreeChange};
use salaam::domain::digest::Digest;
use salaam::domain::files::request::{Edit, FilePatch, Patch};
use salaam::domain::manifest::{FileEntry, TreeManifest};
use salaam::domain::refusal::{Code, Refusal};
use salaam::domain::relpath::RelPath;
use salaam::workspace::patch::{Published, plan};
use salaam::workspace::policy::Limits;
use std::collections::{BTreeMap, BTreeSet};

/// A tree in memory: content and executable bit by path, and empty directories.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    pub files: BTreeMap<String, (Vec<u8>, bool)>,
    pub empty: BTreeSet<String>,
}

impl Tree {
    pub fn of(files: &[(&str, &[u8])]) -> Self {
        let files = files.iter().map(|(path, content)| ((*path).to_owned(), (content.to_vec(), false)));
        Self { files: files.collect(), empty: BTreeSet::new() }
    }

    pub fn manifest(&self) -> TreeManifest {
        let entry = |(path, (content, executable)): (&String, &(Vec<u8>, bool))| FileEntry {
            path: RelPath::parse(path).unwrap(),
            executable: *executable,
            length: content.len() as u64,
            content: Digest::of(content),
        };
        let empty = self.empty.iter().map(|dir| RelPath::parse(dir).unwrap());
        TreeManifest::new(self.files.iter().map(entry).collect(), empty.collect())
    }

    pub fn hash(&self, path: &str) -> Option<String> {
        self.files.get(path).map(|(content, _)| Digest::of(content).to_string())
    }

    pub fn plan(&self, revision: u32, patch: &Patch, limits: &Limits) -> Result<TreeChange, Refusal> {
        let tree = self.manifest();
        let base = Base { revision, digest: tree.digest() };
        let read = |file: &FileEntry| Ok(self.files[file.path.as_str()].0.clone());
        plan(&Published { base, tree: &tree, read }, patch, limits)
    }

    /// What a publisher makes of a change.
    pub fn after(&self, change: &TreeChange) -> Self {
        let written: BTreeMap<&str, &Vec<u8>> =
            change.written.iter().map(|(path, content)| (path.as_str(), content)).collect();
        assert_eq!(written.len(), change.written.len());
        assert!(change.written.is_sorted_by_key(|(path, _)| path.clone()));
        let mut next = Self::default();
        for file in change.target.files() {
            let path = file.path.as_str();
            let old = self.files.get(path).map(|(content, _)| content);
            let content =
                written.get(path).copied().or(old).unwrap_or_else(|| panic!("no content of {path}"));
            assert_eq!(written.contains_key(path), old != Some(content), "{path} is written if it is new");
            assert_eq!((Digest::of(content), content.len() as u64), (file.content.clone(), file.length));
            next.files.insert(path.to_owned(), (content.clone(), file.executable));
        }
        assert!(written.keys().all(|path| next.files.contains_key(*path)));
        next.empty = change.target.empty_dirs().iter().map(|dir| dir.as_str().to_owned()).collect();
        next
    }
}

pub fn file(path: &str, expected: Option<String>) -> FilePatch {
    FilePatch { path: path.into(), expected_hash: expected, content: None, edits: None, executable: None }
}

fn write(path: &str, expected: Option<String>, content: &str) -> FilePatch {
    FilePatch { content: Some(Some(content.into())), ..file(path, expected) }
}

fn delete(path: &str, expected: Option<String>) -> FilePatch {
    FilePatch { content: Some(None), ..file(path, expected) }
}

fn edits(path: &str, expected: Option<String>, edits: &[(&str, &str)]) -> FilePatch {
    let edits = edits.iter().map(|(old, new)| Edit { old: (*old).into(), new: (*new).into() }).collect();
    FilePatch { edits: Some(edits), ..file(path, expected) }
}

fn patch(files: Vec<FilePatch>) -> Patch {
    Patch { revision: 1, files }
}

fn refusal(tree: &Tree, files: Vec<FilePatch>) -> Refusal {
    tree.plan(1, &patch(files), &Limits::fixed()).unwrap_err()
}

#[test]
fn a20_a_path_that_leads_out_or_a_file_named_twice_refuses_the_whole_patch() {
    let tree = Tree::of(&[("a", b"1"), ("d/x", b"2")]);
    let good = || write("good", None, "x");
    for bad in ["../x", "/etc/passwd", "a/../../x", "d/./x", "", ".", "d//x", "d/", "x\n", "x\0"] {
        let refused = refusal(&tree, vec![good(), write(bad, None, "x")]);
        assert_eq!(refused.code, Code::Invalid, "{bad}");
        assert!(refused.message.starts_with("nothing was changed: '"), "{bad}: {}", refused.message);
        assert!(!refused.message.contains("good"), "{}", refused.message);
    }
    let twice = refusal(&tree, vec![delete("a", tree.hash("a")), good(), write("a", None, "x")]);
    assert!(twice.message.contains("'a': the patch names it twice"), "{}", twice.message);
    // Twins, and files in the place of directories.
    for (path, said) in [("A", "collide"), ("d", "both a file and a directory"), ("a/x", "both a file")] {
        let refused = refusal(&tree, vec![write(path, None, "x")]);
        assert_eq!(refused.code, Code::PatchRefused, "{path}");
        assert!(refused.message.contains(said), "{path}: {}", refused.message);
    }
}

#[test]
fn a21_excluded_names_are_refused_in_any_letter_case_with_their_reason() {
    let tree = Tree::of(&[("a", b"1")]);
    for (path, reason) in [
        (".git/hooks/pre-commit", "version control"),
        (".GIT/config", "version control"),
        ("src/.Git/x", "version control"),
        (".env", "environment"),
        (".ENV", "environment"),
        ("pkg/.Env.Local", "environment"),
        ("Node_Modules/x.js", "dependency"),
        ("OUT/x", "build"),
        (".sSh/id", "credentials"),
        (".\u{17f}\u{17f}h/id", "credentials"),
        (".g\u{200c}it/x", "version control"),
        (".salaam/x", "Salaam"),
    ] {
        for asked in [write(path, None, "x"), delete(path, Some(Digest::of(b"").to_string()))] {
            let refused = refusal(&tree, vec![write("b", None, "x"), asked]);
            assert_eq!(refused.code, Code::PatchRefused, "{path}");
            assert!(refused.message.contains("is an excluded name"), "{path}: {}", refused.message);
            assert!(refused.hint.contains("other paths"), "{path}: {}", refused.hint);
            assert!(refused.message.contains(reason), "{path}: {}", refused.message);
        }
    }
}

#[test]
fn a2_a_file_over_the_limit_refuses_the_whole_patch_by_name_and_figure() {
    let tree = Tree::of(&[("a", b"one")]);
    let at =
        |length| vec![edits("a", tree.hash("a"), &[("one", "two")]), write("b", None, &"x".repeat(length))];
    let refused = refusal(&tree, at(262_145));
    assert_eq!(refused.code, Code::LimitExceeded);
    assert!(refused.message.contains("'b' has 262145 bytes; the limit for one file is 262144"), "{refused}");
    let made = tree.plan(1, &patch(at(262_144)), &Limits::fixed()).unwrap();
    assert_eq!(tree.after(&made).files["a"].0, b"two");
    // By an edit, by the number of files, and by the bytes of all.
    let grown = refusal(&tree, vec![edits("a", tree.hash("a"), &[("one", &"x".repeat(262_145))])]);
    assert_eq!(grown.code, Code::LimitExceeded);
    assert!(grown.message.contains("'a'") && grown.message.contains("262144"), "{grown}");
    let many = refusal(&tree, (0..512).map(|i| write(&format!("n{i}"), None, "")).collect());
    assert_eq!(many.code, Code::LimitExceeded);
    assert!(many.message.contains("513 files; the limit is 512, passed at 'n99'"), "{many}");
    let big = refusal(&tree, (0..17).map(|i| write(&format!("n{i}"), None, &"x".repeat(250_000))).collect());
    assert!(big.message.contains("bytes; the limit is 4194304, passed at 'n9'"), "{big}");
    let deep = refusal(&tree, vec![write(&vec!["d"; 17].join("/"), None, "")]);
    assert!(deep.message.contains("16 components"), "{deep}");
}

#[test]
fn d5_one_letter_in_a_file_of_every_line_end_changes_one_byte() {
    let content = "\u{feff}one\r\ntwo\nthr\ree\u{2028}x\r\nlast".as_bytes();
    let mut tree = Tree::of(&[("f", content)]);
    tree.files.get_mut("f").unwrap().1 = true;
    let change = edits("f", tree.hash("f"), &[("two", "twO")]);
    let next = tree.after(&tree.plan(1, &patch(vec![change]), &Limits::fixed()).unwrap());
    let (made, executable) = &next.files["f"];
    assert!(executable, "the executable bit is kept");
    assert_eq!(made.len(), content.len());
    let differ: Vec<usize> = (0..made.len()).filter(|i| made[*i] != content[*i]).collect();
    assert_eq!(differ.len(), 1);
}

#[test]
fn ft2_revision_and_hashes_must_be_those_of_the_current_files() {
    let tree = Tree::of(&[("a", b"new"), ("b", b"kept")]);
    let old = Some(Digest::of(b"old").to_string());
    let now = tree.hash("a");
    let said = |files, code| {
        let refused = refusal(&tree, files);
        assert_eq!(refused.code, code, "{refused}");
        refused.message
    };
    let message = said(vec![write("a", old.clone(), "other")], Code::PatchRefused);
    assert!(
        message.contains("'a' has the hash sha256:") && !message.contains("already applied"),
        "{message}"
    );
    assert!(said(vec![write("a", None, "x")], Code::PatchRefused).contains("'a' exists already"));
    assert!(
        said(vec![write("c", now.clone(), "x")], Code::PatchRefused).contains("'c' is not in revision 1")
    );
    assert!(said(vec![write("a", Some("x".into()), "y")], Code::Invalid).contains("'x' is no hash"));
    assert!(said(vec![delete("c", None)], Code::PatchRefused).contains("not there"));
    assert!(said(vec![], Code::PatchRefused).contains("changes no file"));
    assert!(said(vec![write("a", now.clone(), "new")], Code::PatchRefused).contains("changes no file"));
    assert!(said(vec![edits("c", None, &[("a", "b")])], Code::Invalid).contains("whole content"));
    assert!(said(vec![file("a", now.clone())], Code::Invalid).contains("nothing is asked"));
    let both = FilePatch { content: Some(Some("x".into())), ..edits("a", now.clone(), &[("n", "m")]) };
    assert!(said(vec![both], Code::Invalid).contains("not both"));
    let many: Vec<_> = (0..101).map(|_| ("n", "m")).collect();
    assert!(said(vec![edits("a", now.clone(), &many)], Code::Invalid).contains("100 edits"));
    // All problems are named at once, up to a bound.
    let message = said((0..25).map(|i| delete(&format!("n{i}"), now.clone())).collect(), Code::PatchRefused);
    assert!(message.contains("'n0' is not") && message.ends_with("5 more are not listed"), "{message}");
    let mixed =
        vec![delete("c", now.clone()), write(".env", None, ""), write("d", None, &"x".repeat(262_145))];
    let message = said(mixed, Code::PatchRefused);
    assert!(
        message.contains("'c'") && message.contains("'.env'") && message.contains("'d' has"),
        "{message}"
    );
    // What is there already is told, when it is exactly that.
    for asked in [write("a", old.clone(), "new"), edits("a", old.clone(), &[("old", "new")])] {
        assert!(said(vec![asked], Code::PatchRefused).contains("the patch is already applied to it"));
    }
    let other = edits("a", Some(Digest::of(b"older").to_string()), &[("old", "new")]);
    assert!(!said(vec![other], Code::PatchRefused).contains("already applied"));
    let message = said(vec![delete("c", old.clone())], Code::PatchRefused);
    assert!(message.ends_with("'c' is not in revision 1; the patch is already applied to it"), "{message}");
    let message = said(vec![delete("c", Some("no hash".into()))], Code::PatchRefused);
    assert!(message.ends_with("to create it, expect the hash null"), "{message}");
    let done = [edits("a", old.clone(), &[("old", "new")]), delete("gone", old.clone())];
    for (files, applied) in [(done.to_vec(), true), ([&done[..], &[delete("b", old)]].concat(), false)] {
        let stale = tree.plan(7, &patch(files), &Limits::fixed()).unwrap_err();
        assert_eq!(stale.code, Code::StaleRevision);
        assert!(stale.message.contains("for revision 1; the workspace is at 7"), "{stale}");
        assert_eq!(stale.message.contains("already applied to every file"), applied, "{stale}");
    }
}

#[test]
fn ft2_bits_alone_binary_files_and_empty_directories() {
    let mut tree = Tree::of(&[("run.sh", b"x"), ("bin", b"\xff\x00"), ("dir/last", b"1")]);
    tree.empty = ["hollow".to_owned(), "hollow-too".to_owned()].into();
    let bit = FilePatch { executable: Some(true), ..file("run.sh", tree.hash("run.sh")) };
    let asked = vec![bit, delete("dir/last", tree.hash("dir/last")), write("hollow/a/b", None, "")];
    let change = tree.plan(1, &patch(asked), &Limits::fixed()).unwrap();
    assert_eq!(change.written.len(), 1, "content that is the same is not written");
    let next = tree.after(&change);
    assert!(next.files["run.sh"].1);
    assert_eq!(next.empty, ["hollow-too".to_owned()].into(), "a directory is there while it holds a file");
    let refused = refusal(&tree, vec![edits("bin", tree.hash("bin"), &[("a", "b")])]);
    assert!(refused.message.contains("'bin' is not UTF-8 text"), "{refused}");
    assert!(tree.plan(1, &patch(vec![write("bin", tree.hash("bin"), "t")]), &Limits::fixed()).is_ok());
    let refused = refusal(&tree, vec![write("hollow", None, "")]);
    assert!(refused.message.contains("both a file and a directory"), "{refused}");
}

#[test]
fn ft2_a_patch_of_too_many_files_or_one_named_twice_is_refused_before_its_revision_is_looked_at() {
    let tree = Tree::of(&[("a", b"1")]);
    let base = Base { revision: 1, digest: tree.manifest().digest() };
    let read = |_: &FileEntry| panic!("nothing is read");
    let limits = Limits { files: 2, ..Limits::fixed() };
    let names = |count: usize| (0..count).map(|at| delete(&format!("n{at}"), tree.hash("a"))).collect();
    for revision in [1, 7] {
        let plan = |files| {
            let asked = Patch { revision, files };
            plan(&Published { base: base.clone(), tree: &tree.manifest(), read }, &asked, &limits)
                .unwrap_err()
        };
        let refused = plan(names(5));
        assert_eq!(refused.code, Code::LimitExceeded, "{refused}");
        assert!(refused.message.contains("names 5 files; the limit for one patch is 4"), "{refused}");
        let within = plan(names(4)).code;
        assert_eq!(within, if revision == 1 { Code::PatchRefused } else { Code::StaleRevision });
        let refused = plan(vec![delete("x", tree.hash("a")), delete("x", tree.hash("a"))]);
        assert_eq!(refused.code, if revision == 1 { Code::PatchRefused } else { Code::Invalid }, "{refused}");
        assert!(refused.message.contains("'x': the patch names it twice"), "{refused}");
    }
}

#[test]
fn ft2_a_refusal_is_short_whatever_is_sent() {
    let tree = Tree::of(&[("a", b"1")]);
    let long = "\u{1b}x".repeat(100_000);
    let files = (0..200).map(|i| write(&format!("../{long}{i}"), Some(long.clone()), "")).collect();
    assert!(refusal(&tree, files).message.len() < 64 * 1024);
    let files = (0..200).map(|_| edits("a", tree.hash("a"), &[(&long, &long[1..])])).collect();
    assert!(refusal(&tree, files).message.len() < 64 * 1024);
}
