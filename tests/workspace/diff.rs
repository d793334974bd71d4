//! WS.7 against real git: what `git apply` makes of a diff, and that its form is git's own.

use super::diff_trees::{Files, Revisions, files, is_text, read, trees, write};
use proptest::prelude::*;
use salaam::domain::diff::{Content, Diff, FileChange};
use salaam::workspace::diff::quoted;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Git without the configuration of whoever runs the tests.
fn git(at: &Path, args: &[&str], input: &str) -> Output {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=t", "-c", "user.email=t@example.invalid"]).args(args).current_dir(at);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    git.env("GIT_CEILING_DIRECTORIES", at.parent().unwrap());
    let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn ok(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A checkout of `files`.
fn checkout(files: &Files) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("checkout");
    write(&root, files);
    ok(&git(&root, &["init", "-q"], ""));
    (dir, root)
}

/// Applies the diff from `old` to `new` with git and checks every file.
fn applies(old: &Files, new: &Files) -> Diff {
    let found = Revisions::new(old, new).diff();
    let (_dir, root) = checkout(old);
    let applied = git(&root, &["apply", "-"], &found.patch);
    if found.files.iter().any(|file| file.in_patch) {
        ok(&applied);
    } else {
        assert!(!found.patch.contains("diff --git"), "{}", found.patch);
    }
    let got = read(&root);
    for path in old.keys().chain(new.keys()).chain(got.keys()) {
        let (before, after) = (old.get(path), new.get(path));
        let text = [before, after].iter().flatten().all(|(_, bytes)| is_text(bytes));
        let same = before.map(|file| &file.1) == after.map(|file| &file.1);
        if text || same {
            assert_eq!(got.get(path), after, "{path:?}\n{}", found.patch);
            continue;
        }
        // A binary change is named, and left as it was or deleted to make room for text.
        let file = found.files.iter().find(|file| file.path.as_str() == path).unwrap();
        assert_eq!(file.content, Content::Binary);
        assert!(found.patch.contains(&*quoted(&format!("a/{path}"))) || before.is_none());
        assert!(found.patch.contains(&*quoted(&format!("b/{path}"))) || after.is_none());
        let want = if file.in_patch { after } else { before };
        assert_eq!(got.get(path), want, "{path:?}\n{}", found.patch);
        assert!(!file.in_patch || file.change == FileChange::Deleted);
    }
    found
}

/// Files of the import that an editor has overwritten are left out; git applies the rest of the patch.
fn applies_without(old: &Files, new: &Files, which: &prop::sample::Index) {
    let revisions = Revisions::new(old, new);
    let whole = revisions.diff();
    if old.is_empty() {
        return;
    }
    let (lost, (_, bytes)) = old.iter().nth(which.index(old.len())).unwrap();
    std::fs::write(revisions.root("a").join(lost), [bytes, &b"!"[..]].concat()).unwrap();
    let found = revisions.diff();
    let (_dir, root) = checkout(old);
    if found.files.iter().any(|file| file.in_patch) {
        ok(&git(&root, &["apply", "-"], &found.patch));
    } else {
        assert!(!found.patch.contains("diff --git"), "{}", found.patch);
    }
    assert_eq!(found.files.len(), whole.files.len());
    let got = read(&root);
    for (file, before) in found.files.iter().zip(&whole.files) {
        assert_eq!(
            (&file.path, file.change, file.old, file.new),
            (&before.path, before.change, before.old, before.new)
        );
        let path = file.path.as_str();
        let want = if file.in_patch { new.get(path) } else { old.get(path) };
        assert_eq!(got.get(path), want, "{path:?}\n{}", found.patch);
        let near = |one: &str, other: &str| other == one || other.starts_with(&format!("{one}/"));
        // A binary file is deleted only to make room for text.
        let binary = before.content == Content::Binary;
        assert!(
            binary || file.in_patch == before.in_patch || near(path, lost) || near(lost, path),
            "{path:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn ws7_git_applies_what_is_left_when_a_file_is_lost((old, new) in trees(), which in any::<prop::sample::Index>()) {
        applies_without(&old, &new, &which);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn ws7_git_apply_makes_the_second_tree_of_the_first((old, new) in trees()) {
        applies(&old, &new);
    }
}

/// Attributes of the tree make git convert what it reads and writes; without a repository it converts nothing.
#[test]
fn ws7_a_tree_whose_attributes_convert_takes_every_byte_from_git_without_its_repository() {
    let attributes: &[u8] = b"*.crlf text eol=crlf\n*.id ident\n";
    let old = files(&[
        (".gitattributes", false, attributes),
        ("a.crlf", false, b"one\ntwo\r\n"),
        ("b.id", false, b"$Id: 0123 $\nx\n"),
    ]);
    let new = files(&[
        (".gitattributes", false, attributes),
        ("a.crlf", false, b"one\r\nzwei\n"),
        ("b.id", true, b"$Id: 0123 $\ny\n"),
        ("n.crlf", false, b"new\n"),
    ]);
    let patch = Revisions::new(&old, &new).diff().patch;
    let (_dir, root) = checkout(&old);
    let refused = git(&root, &["apply", "-"], &patch);
    assert!(!refused.status.success(), "the README may say that git takes it");
    assert_eq!(read(&root), old);
    ok(&git(&root, &["--git-dir=/dev/null", "apply", "-"], &patch));
    assert_eq!(read(&root), new);
}

#[test]
fn d5_one_letter_of_a_file_of_all_line_ends_is_one_byte() {
    let old = b"\xef\xbb\xbfbom\r\nunix\nmac\rmore\r\nlast".to_vec();
    let mut new = old.clone();
    let at = new.iter().position(|byte| *byte == b'm').unwrap();
    new[at + 8] ^= 0x20;
    assert_eq!(old.iter().zip(&new).filter(|(a, b)| a != b).count(), 1);
    let found = applies(&files(&[("f", false, &old)]), &files(&[("f", false, &new)]));
    assert_eq!((found.files[0].added_lines, found.files[0].deleted_lines), (1, 1));
    assert!(found.patch.ends_with(" last\n\\ No newline at end of file\n"), "{}", found.patch);
}

#[test]
fn d6_a_deleted_executable_names_its_mode() {
    let found = applies(&files(&[("run.sh", true, b"#!/bin/sh\nexit 0\n")]), &Files::new());
    assert!(
        found.patch.starts_with("diff --git a/run.sh b/run.sh\ndeleted file mode 100755\n"),
        "{}",
        found.patch
    );
}

#[test]
fn ws7_files_and_directories_change_places() {
    let text: &[u8] = b"text\n";
    let binary: &[u8] = b"\0";
    for content in [text, binary] {
        applies(
            &files(&[
                ("a", true, content),
                ("d/x", false, content),
                ("d/deep/y", false, content),
                ("k", false, text),
            ]),
            &files(&[("a/b/c", false, text), ("a/z", true, b""), ("d", true, text), ("k", false, text)]),
        );
    }
}

#[test]
fn ws7_the_largest_workspace_applies() {
    let tree = |salt: usize| -> Files {
        let line = |file: usize, line: usize| {
            let odd = if line % 7 == 3 { salt } else { 0 };
            format!("line {line} of {file}, {odd}, {}\n", "x".repeat(30))
        };
        let file = |file: usize| (0..150).map(|at| line(file, at)).collect::<String>().into_bytes();
        (0..512).map(|n| (format!("d{}/f{n}.js", n % 17), (n % 5 == salt, file(n)))).collect()
    };
    let found = applies(&tree(0), &tree(1));
    assert_eq!(found.files.len(), 512);
}

/// With all context and whole ids, git's own diff of the two trees is the same, byte for byte.
#[test]
fn ws7_the_form_is_gits_own() {
    let names = [
        "plain",
        "sp ace",
        "q\"uote",
        "back\\slash",
        "ta\tb",
        "\u{e9}",
        "\u{1f600} x",
        "x b",
        "-d",
        "\\303",
        "a\u{202e}b",
    ];
    let (mut old, mut new) = (Files::new(), Files::new());
    for (at, name) in names.iter().enumerate() {
        let path = |kind: &str| format!("{kind}/{name}");
        old.insert(path("changed"), (at % 2 == 0, b"1\n2\n3\n".to_vec()));
        new.insert(path("changed"), (at % 3 == 0, b"1\n2\r\n3".to_vec()));
        old.insert(path("deleted"), (at % 2 == 0, b"1".to_vec()));
        new.insert(path("added"), (at % 2 == 0, b"1\n".to_vec()));
        old.insert(path("gone"), (at % 2 == 0, Vec::new()));
        new.insert(path("new"), (at % 2 == 0, Vec::new()));
        old.insert(path("mode"), (at % 2 == 0, b"\0".to_vec()));
        new.insert(path("mode"), (at % 2 != 0, b"\0".to_vec()));
        old.insert(path("filled"), (false, Vec::new()));
        new.insert(path("filled"), (false, b"\n".to_vec()));
    }
    let found = Revisions::new(&old, &new).diff();
    let (_dir, root) = checkout(&old);
    ok(&git(&root, &["add", "-A"], ""));
    ok(&git(&root, &["commit", "-qm", "import"], ""));
    old.keys().for_each(|path| std::fs::remove_file(root.join(path)).unwrap());
    write(&root, &new);
    ok(&git(&root, &["add", "-A"], ""));
    let args = ["diff", "--cached", "--full-index", "--no-renames", "--no-color", "-U999999"];
    let theirs = String::from_utf8(git(&root, &args, "").stdout).unwrap();
    assert_eq!(found.files.len(), 7 * names.len());
    assert_eq!(found.patch, theirs);
}

#[test]
fn ws7_with_whole_ids_git_merges_into_a_checkout_that_has_moved_on() {
    let before: Vec<u8> = (0..30).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    let swap = |at: &str, to: &str, bytes: &[u8]| {
        String::from_utf8(bytes.to_vec())
            .unwrap()
            .replacen(&format!("\n{at}\n"), &format!("\n{to}\n"), 1)
            .into_bytes()
    };
    let after = swap("3", "three", &before);
    let found = Revisions::new(&files(&[("f", false, &before)]), &files(&[("f", false, &after)])).diff();
    let (_dir, root) = checkout(&files(&[("f", false, &before)]));
    ok(&git(&root, &["add", "-A"], ""));
    ok(&git(&root, &["commit", "-qm", "import"], ""));
    write(&root, &files(&[("f", false, &swap("25", "twenty-five", &before))]));
    ok(&git(&root, &["commit", "-qam", "moved on"], ""));
    assert!(!git(&root, &["apply"], &found.patch).status.success(), "the whole file is context");
    ok(&git(&root, &["apply", "--3way"], &found.patch));
    assert_eq!(read(&root)["f"].1, swap("25", "twenty-five", &after));
}
