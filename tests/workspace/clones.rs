//! WS.5 where a file system can clone: a revision shares the blocks of what it has from its base, and no
//! bytes. File systems of both kinds are made in a file and mounted, as root, where the kernel has them.

use super::revisions::{file, intent};
use super::{Bench, id, is_root};
use salaam::domain::change::{Base, TreeChange};
use salaam::domain::manifest::TreeManifest;
use salaam::workspace::observe::observe;
use salaam::workspace::store::Store;
use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system in a file, mounted until it is dropped.
struct Mounted {
    dir: tempfile::TempDir,
}

impl Mounted {
    /// `None`, told on standard error, where it cannot be had.
    fn new(mkfs: &[&str], bytes: u64) -> Option<Self> {
        if !is_root() {
            eprintln!("not tested: only root mounts");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let mounted = Self { dir };
        fs::create_dir(mounted.root()).unwrap();
        let kind = mkfs[0].trim_start_matches("mkfs.");
        let does = |command: &mut Command| {
            let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success().then_some(()).ok_or(format!("{command:?}: {said}"))
        };
        does(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image)).unwrap();
        // Mounting loads the kernel's module, where there is one.
        let tried = does(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(mounted.root()));
        let known = fs::read_to_string("/proc/filesystems").unwrap();
        if !known.lines().any(|line| line.split_whitespace().last() == Some(kind)) {
            eprintln!("not tested: this kernel has no {kind}");
            return None;
        }
        tried.unwrap();
        Some(mounted)
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It is not mounted where that failed.
        let _ = Command::new("umount").arg(self.root()).output();
    }
}

/// Whether all of a file's extents are shared with another's.
fn shared(path: &Path) -> bool {
    let output = Command::new("filefrag").arg("-v").arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let mut extents = text.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    let mut any = false;
    let all = extents.all(|line| {
        any = true;
        line.contains("shared")
    });
    any && all
}

fn clones(mkfs: &[&str], bytes: u64) {
    let Some(mounted) = Mounted::new(mkfs, bytes) else { return };
    let bench = Bench::new();
    let content = |seed: usize| (0..100_000).map(|at| (at * seed % 251) as u8).collect::<Vec<_>>();
    bench.write("d/kept", content(3)).write("edited", content(5)).write("empty", "").write("small", "s");
    let coding = mounted.root().join("coding");
    fs::create_dir(&coding).unwrap();
    fs::set_permissions(&coding, PermissionsExt::from_mode(0o700)).unwrap();
    let store = Store::open(&coding).unwrap();
    let ws = id();
    let made = store.create_workspace(&ws, &bench.project).unwrap();
    let target = TreeManifest::new(
        vec![
            file("d/kept", &content(3), true),
            file("edited", &content(7), false),
            file("empty", b"", false),
            file("small", b"s", false),
        ],
        vec![],
    );
    let written = vec![(file("edited", b"", false).path, content(7))];
    let base = Base { revision: 1, digest: made.imported.manifest.digest() };
    let second = store.room(&ws, 2, &target).unwrap();
    let intent = intent(&ws, &made.root, &base.digest, &second, &target);
    store.write_aside(&intent, &TreeChange { base, target: target.clone(), written }).unwrap();
    store.sync_aside(&intent).unwrap();
    store.publish_aside(&intent).unwrap();
    assert_eq!(observe(&second, store.limits()).unwrap().manifest, target);
    assert!(shared(&second.join("d/kept")), "an unchanged file is a clone");
    assert!(!shared(&second.join("edited")));
    // A clone is a copy: what is written to one is not in the other, either way.
    for (one, other) in [(&made.root, &second), (&second, &made.root)] {
        let before = fs::read(other.join("d/kept")).unwrap();
        let edited = fs::File::options().write(true).open(one.join("d/kept")).unwrap();
        edited.write_all_at(b"by hand", 4_000).unwrap();
        edited.sync_all().unwrap();
        assert_eq!(fs::read(other.join("d/kept")).unwrap(), before);
    }
}

#[test]
fn ws5_on_btrfs_a_revision_shares_blocks_with_its_base_and_no_bytes() {
    clones(&["mkfs.btrfs", "-q"], 256 << 20);
}

#[test]
fn ws5_on_xfs_a_revision_shares_blocks_with_its_base_and_no_bytes() {
    clones(&["mkfs.xfs", "-q", "-m", "reflink=1"], 320 << 20);
}
