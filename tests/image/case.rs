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

    pub fn rootfs(&self, record: &ImageRecord) -> PathBuf {
        self.store.bundle(&record.reference().unwrap()).unwrap().rootfs
    }

    /// The refusal of [`base`] with `extra`; sees to it that nothing is left.
    pub fn refused(&self, extra: Vec<Item>) -> String {
        let error = self.import(extra).unwrap_err();
        assert_nothing_left(&self.store);
        error.to_string()
    }
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
    left.retain(|p| !p.is_dir() && p.file_name().unwrap() != "lock");
    assert!(left.is_empty(), "{left:?}");
    assert!(std::fs::read_dir(store.dir().join("tmp")).unwrap().next().is_none());
    assert!(store.list().unwrap().is_empty());
}
