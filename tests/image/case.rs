//! A store in a directory of its own, with a layout to import.

use crate::oci_layout::{Item, LayoutDir, base, make};
use salaam::image::{ImageError, ImageRecord, Store};
use std::path::{Path, PathBuf};

pub struct Case {
    pub tmp: tempfile::TempDir,
    pub store: Store,
}

impl Case {
    pub fn new() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let store = Store::open(&tmp.path().join("store")).unwrap();
        Self { tmp, store }
    }

    pub fn layout_dir(&self) -> PathBuf {
        self.tmp.path().join("layout")
    }

    pub fn layout(&self, layers: &[Vec<Item>]) -> LayoutDir {
        make(&self.layout_dir(), "localhost/test/image:1", layers)
    }

    /// Imports [`base`] and a second layer on it.
    pub fn import(&self, extra: Vec<Item>) -> Result<ImageRecord, ImageError> {
        self.layout(&[base(), extra]);
        self.store.import_layout(&self.layout_dir(), None)
    }

    /// A copy of the root file system as commands see it.
    pub fn rootfs(&self, record: &ImageRecord) -> PathBuf {
        let lower = self.store.bundle(&record.reference().unwrap()).unwrap().lower;
        let dir = self.tmp.path().join(format!("rootfs-{}", record.pin.manifest.hex()));
        let _ = std::fs::remove_dir_all(&dir);
        merged(&lower, &dir);
        dir
    }

    /// The directory of the image's `n`th layer, from 0.
    pub fn layer(&self, record: &ImageRecord, n: usize) -> PathBuf {
        self.store.dir().join("layers").join(record.layers[n].chain.hex()).join("fs")
    }

    /// The refusal of [`base`] with `extra`; sees to it that nothing is left.
    pub fn refused(&self, extra: Vec<Item>) -> String {
        let error = self.import(extra).unwrap_err();
        assert_nothing_left(&self.store);
        error.to_string()
    }
}

/// Copies what the kernel shows of the stack `lower`, topmost first, to the new directory `to`.
pub fn merged(lower: &[PathBuf], to: &Path) {
    std::fs::create_dir(to).unwrap();
    let links = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..lower.len()).map(|i| i.to_string()).collect();
    for (dir, name) in lower.iter().zip(&names) {
        std::os::unix::fs::symlink(dir, links.path().join(name)).unwrap();
    }
    std::fs::create_dir(links.path().join("root")).unwrap();
    let script = match names.len() {
        1 => "cp -aT \"$PWD/0/.\" \"$1\"",
        _ => "mount -t overlay -o ro,lowerdir=$0 overlay root && cp -aT root \"$1\"",
    };
    let done = std::process::Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", script, &names.join(":")])
        .arg(to)
        .current_dir(links.path())
        .status()
        .unwrap();
    assert!(done.success());
}

pub fn files_below(path: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        out.push(entry.path());
        if entry.file_type().unwrap().is_dir() {
            out.extend(files_below(&entry.path()));
        }
    }
    out
}

pub fn assert_nothing_left(store: &Store) {
    let mut left = files_below(store.dir());
    left.retain(|p| !p.is_dir() && !["lock", "uses.lock"].iter().any(|lock| p.ends_with(lock)));
    assert!(left.is_empty(), "{left:?}");
    assert!(std::fs::read_dir(store.dir().join("tmp")).unwrap().next().is_none());
    assert!(store.list().unwrap().is_empty());
}
