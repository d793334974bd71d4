//! WS.6 and A24 of diffs: whose bytes they show, when editors and attackers were there in between.

use super::diff_trees::{Revisions, files, write};
use salaam::domain::diff::{Content, Diff};
use salaam::domain::refusal::Code;
use std::path::Path;

#[test]
fn ws7_overwritten_bytes_are_named_and_what_the_diff_does_not_need_does_not_matter() {
    let old = files(&[("kept", false, b"k"), ("d/changed", false, b"1"), ("gone", false, b"g")]);
    let new = files(&[("kept", false, b"k"), ("d/changed", false, b"2")]);
    let revisions = Revisions::new(&old, &new);
    let want = revisions.diff();
    // An editor's own files, and its edits of files that are alike in both.
    std::fs::write(revisions.root("b/kept"), "edited").unwrap();
    std::fs::write(revisions.root("b/note"), "mine").unwrap();
    assert_eq!(revisions.diff(), want);
    std::fs::write(revisions.root("a/gone"), "G").unwrap();
    std::fs::remove_dir_all(revisions.root("a/d")).unwrap();
    assert_eq!(lost(&revisions.diff()), ["d/changed", "gone"]);
    std::fs::remove_dir_all(revisions.root("a")).unwrap();
    let refusal = revisions.try_diff().unwrap_err();
    assert!(
        refusal.code == Code::WorkspaceChanged && refusal.message.contains("cannot be opened"),
        "{refusal}"
    );
}

/// Edits of the import itself that are adopted overwrite what the diff starts from.
#[test]
fn ws6_bytes_that_the_import_has_lost_are_taken_from_the_project_if_it_still_has_them() {
    let old = files(&[("kept", false, b"k"), ("d/edited", true, b"1"), ("other", false, b"o")]);
    let new = files(&[("kept", false, b"k"), ("d/edited", true, b"2"), ("other", false, b"O")]);
    let revisions = Revisions::new(&old, &new);
    let want = revisions.diff();
    let project = revisions.root("project");
    write(&project, &files(&[("d/edited", false, b"1"), ("other", false, b"moved on")]));
    std::fs::write(revisions.root("a/d/edited"), "2").unwrap();
    assert_eq!(revisions.diff_with(std::slice::from_ref(&project)).unwrap(), want);
    std::fs::write(revisions.root("a/other"), "O").unwrap();
    let found = revisions.diff_with(std::slice::from_ref(&project)).unwrap();
    assert_eq!(lost(&found), ["other"]);
    let section = |diff: &Diff| diff.patch[diff.files[0].section.clone()].to_owned();
    assert_eq!(section(&found), section(&want), "the rest is whole");
    let absent = revisions.root("absent");
    assert_eq!(lost(&revisions.diff_with(std::slice::from_ref(&absent)).unwrap()), ["d/edited", "other"]);
    // Each place gives what it has.
    let third = revisions.root("third");
    write(&third, &files(&[("d/edited", false, b"1?"), ("other", true, b"o")]));
    assert_eq!(revisions.diff_with(&[absent, third, project]).unwrap(), want);
}

#[test]
fn a24_a_swapped_root_or_file_is_never_followed() {
    let (old, new) = (files(&[("d/f", false, b"same")]), files(&[("d/f", true, b"same!")]));
    // A symlink to the very bytes is refused too: beneath the root nothing is resolved.
    let swaps: [fn(&Revisions); 3] = [
        |r| swap(r, "a/d/f", |at, there| std::os::unix::fs::symlink(there, at).unwrap()),
        |r| swap(r, "a/d", |at, there| std::os::unix::fs::symlink(there, at).unwrap()),
        |r| swap(r, "a/d/f", |at, _| nix::unistd::mkfifo(at, nix::sys::stat::Mode::S_IRWXU).unwrap()),
    ];
    for change in swaps {
        let revisions = Revisions::new(&old, &new);
        change(&revisions);
        let found = revisions.diff();
        assert_eq!(lost(&found), ["d/f"]);
        assert!(!found.patch.contains("same"), "{}", found.patch);
    }
    let revisions = Revisions::new(&old, &new);
    swap(&revisions, "a", |at, there| std::os::unix::fs::symlink(there, at).unwrap());
    let refusal = revisions.try_diff().unwrap_err();
    assert_eq!(refusal.code, Code::WorkspaceChanged, "{refusal}");
}

/// The files whose bytes are lost; none of them is in the patch.
fn lost(diff: &Diff) -> Vec<&str> {
    let lost: Vec<_> = diff.files.iter().filter(|file| file.content == Content::Lost).collect();
    assert!(lost.iter().all(|file| !file.in_patch));
    lost.iter().map(|file| file.path.as_str()).collect()
}

/// Moves what lies at `path` aside and puts something else there.
fn swap(revisions: &Revisions, path: &str, put: impl Fn(&Path, &Path)) {
    let (at, there) = (revisions.root(path), revisions.root("aside"));
    std::fs::rename(&at, &there).unwrap();
    put(&at, &there);
}
