//! SVC.2 and the store: which directory may be the coding root, and what publishing leaves.

use super::{Bench, id, is_root};
use salaam::domain::refusal::{Code, Refusal};
use salaam::workspace::coding_root::{RootError, check_root};
use salaam::workspace::store::Store;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::Path;

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn refused(path: &Path, part: &str) {
    let error = check_root(path).unwrap_err();
    assert!(error.to_string().contains(part), "{error}");
    let refusal = Refusal::from(&error);
    assert_eq!(refusal.code, Code::UnsafePath);
    assert!(!refusal.hint.is_empty());
}

#[test]
fn svc2_a_coding_root_must_be_a_private_directory_of_the_caller() {
    let bench = Bench::new();
    let root = bench.outside.join("root");
    refused(&root, "does not exist");
    std::fs::create_dir(&root).unwrap();
    for mode in [0o755, 0o750, 0o701, 0o500, 0o1700] {
        chmod(&root, mode);
        refused(&root, &format!("has mode {mode:04o}; it must be 0700"));
    }
    chmod(&root, 0o700);
    assert_eq!(check_root(&root).unwrap().path(), root.canonicalize().unwrap());
    refused(&bench.outside.join("secret"), "is not a directory");
    let link = bench.outside.join("link");
    symlink(&root, &link).unwrap();
    refused(&link, "is a symlink");
    refused(&bench.outside.join("link/"), "is a symlink");
    refused(&bench.outside.join("link/."), "is a symlink");
    symlink(bench.outside.join("secret"), bench.outside.join("filelink")).unwrap();
    refused(&bench.outside.join("filelink"), "is a symlink");
    use std::os::unix::ffi::OsStrExt as _;
    let odd = bench.outside.join(std::ffi::OsStr::from_bytes(b"od\xff"));
    std::fs::create_dir(&odd).unwrap();
    chmod(&odd, 0o700);
    refused(&odd, "is not UTF-8");
    if is_root() {
        std::os::unix::fs::chown(&root, Some(65532), None).unwrap();
        refused(&root, "belongs to uid 65532");
    }
}

#[test]
fn svc2_a_symlink_above_the_last_component_is_resolved() {
    let bench = Bench::new();
    std::fs::create_dir(bench.outside.join("real")).unwrap();
    std::fs::create_dir(bench.outside.join("real/root")).unwrap();
    chmod(&bench.outside.join("real/root"), 0o700);
    symlink("real", bench.outside.join("alias")).unwrap();
    let root = check_root(&bench.outside.join("alias/root")).unwrap();
    assert!(root.path().ends_with("real/root"));
}

#[test]
fn svc2_tmpfs_is_a_warning_and_a_disk_is_not() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    chmod(dir.path(), 0o700);
    let on_tmpfs =
        nix::sys::statfs::statfs(dir.path()).unwrap().filesystem_type() == nix::sys::statfs::TMPFS_MAGIC;
    let warning = check_root(dir.path()).unwrap().warning();
    assert_eq!(warning.is_some(), on_tmpfs);
    assert!(warning.is_none_or(|w| w.contains("tmpfs")));
}

#[test]
fn svc2_a_coding_root_and_a_project_may_not_be_nested() {
    let bench = Bench::new();
    let inner = bench.at("coding");
    std::fs::create_dir(&inner).unwrap();
    chmod(&inner, 0o700);
    let store = Store::open(&inner).unwrap();
    assert!(matches!(store.outside(&bench.project), Err(RootError::InsideProject { .. })));
    let error = store.create_workspace(&id(), &bench.project).unwrap_err();
    assert!(error.to_string().contains("lies inside the project"), "{error}");
    assert_eq!(names(&inner), [""; 0]);

    let store = Store::open(&bench.copies).unwrap();
    let project = bench.copies.join("project");
    std::fs::create_dir(&project).unwrap();
    assert!(matches!(store.outside(&project), Err(RootError::ContainsProject { .. })));
    assert!(matches!(store.outside(&bench.copies), Err(RootError::InsideProject { .. })));
    let link = bench.outside.join("link");
    symlink(&project, &link).unwrap();
    assert!(matches!(store.outside(&link), Err(RootError::ContainsProject { .. })));
    store.outside(&bench.project).unwrap();
}

#[test]
fn ws5_a_workspace_is_published_under_its_revision_and_nothing_else() {
    let bench = Bench::new();
    bench.write("src/a.js", "a");
    let store = Store::open(&bench.copies).unwrap();
    let ws = id();
    let created = store.create_workspace(&ws, &bench.project).unwrap();
    assert_eq!(created.root, store.root(&ws, 1));
    assert!(created.root.ends_with(format!("{ws}/r00001")));
    assert_eq!(names(&bench.copies), [ws.as_str()]);
    assert_eq!(names(&bench.copies.join(ws.as_str())), ["r00001"]);
    assert_eq!(bench.copies.join(ws.as_str()).metadata().unwrap().mode() & 0o7777, 0o755);
    assert!(store.create_workspace(&ws, &bench.project).is_err(), "an id is used once");
    assert!(created.root.exists(), "a refused second creation harms nothing");
    assert!(store.remove_workspace(&ws).unwrap());
    assert!(!store.remove_workspace(&ws).unwrap());
    assert_eq!(names(&bench.copies), [""; 0]);
}

#[test]
fn i1_a_refused_import_leaves_no_workspace() {
    let bench = Bench::new();
    bench.write("a/b", "x");
    symlink("b", bench.at("a/link")).unwrap();
    let store = Store::open(&bench.copies).unwrap();
    let error = store.create_workspace(&id(), &bench.project).unwrap_err();
    assert!(error.to_string().contains("'a/link' is a symlink"), "{error}");
    assert_eq!(names(&bench.copies), [""; 0]);
}

#[test]
fn i5_a_project_under_umask_077_is_private_on_the_host_and_readable_below() {
    let bench = Bench::new();
    bench.write("t/a.test.js", "x");
    for (path, mode) in [("t/a.test.js", 0o600), ("t", 0o700), ("", 0o700)] {
        chmod(&bench.at(path), mode);
    }
    let store = Store::open(&bench.copies).unwrap();
    let root = store.create_workspace(&id(), &bench.project).unwrap().root;
    assert_eq!(root.join("t/a.test.js").metadata().unwrap().mode() & 0o7777, 0o644);
    assert_eq!(bench.copies.metadata().unwrap().mode() & 0o7777, 0o700);
    assert_eq!(bench.at("t/a.test.js").metadata().unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn svc5_a_sweep_removes_what_dead_imports_left_and_nothing_else() {
    let bench = Bench::new();
    bench.write("a", "x");
    let store = Store::open(&bench.copies).unwrap();
    let (whole, half, gone) = (id(), id(), id());
    let root = store.create_workspace(&whole, &bench.project).unwrap().root;
    let leave = |path: String| {
        std::fs::create_dir_all(bench.copies.join(path)).unwrap();
    };
    leave(format!("{whole}/.staging-r00002/sub"));
    leave(format!("{half}/.staging-r00001/sub"));
    leave(format!(".removing-{gone}/r00001/sub"));
    leave("not-ours/.staging-r00001".to_owned());
    leave(".removing-not-ours".to_owned());

    // The lock of an import, which may be another service's.
    let lock = std::fs::File::open(&bench.copies).unwrap();
    lock.lock_shared().unwrap();
    assert_eq!(store.sweep_staging().unwrap().len(), 0, "somebody imports");
    drop(lock);
    assert_eq!(store.sweep_staging().unwrap().len(), 4);
    assert_eq!(names(&bench.copies), {
        let mut want = vec![".removing-not-ours".to_owned(), "not-ours".to_owned(), whole.to_string()];
        want.sort();
        want
    });
    assert!(root.join("a").exists());
    assert_eq!(store.sweep_staging().unwrap().len(), 0);
}
