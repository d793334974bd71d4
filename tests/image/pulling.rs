//! What the tests of pulls share: quick patience, a progress that is remembered, layouts worth pulling.

use crate::case::{Case, files_below};
use crate::oci_layout::{
    INDEX, Item, LayoutDir, MANIFEST, base, blob_path, file, make, put_json, write_index,
};
use salaam::domain::digest::Digest;
use salaam::image::{Access, ImageError, Patience, Progress, Pulled, Reference};
use serde_json::json;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// Waits that a test can afford.
pub fn quick() -> Access {
    let patience = Patience {
        connect: Duration::from_secs(5),
        stall: Duration::from_millis(400),
        attempts: 3,
        backoff: Duration::from_millis(10),
        helper: Duration::from_secs(5),
    };
    Access { patience, ..Access::default() }
}

/// Remembers what it was told.
#[derive(Default)]
pub struct Told {
    pub notes: Mutex<Vec<String>>,
    pub layers: Mutex<Vec<(Digest, u64, u64)>>,
}

impl Progress for Told {
    fn note(&self, text: &str) {
        self.notes.lock().unwrap().push(text.to_owned());
    }

    fn layer(&self, blob: &Digest, at: u64, size: u64) {
        self.layers.lock().unwrap().push((blob.clone(), at, size));
    }
}

pub fn reference(host: &str, digest: &Digest) -> Reference {
    Reference::pinned(&format!("{host}/team/app"), digest.clone()).unwrap()
}

impl Case {
    pub fn pull(&self, host: &str, digest: &Digest) -> Result<Pulled, ImageError> {
        self.pull_with(host, digest, &quick())
    }

    pub fn pull_with(&self, host: &str, digest: &Digest, access: &Access) -> Result<Pulled, ImageError> {
        self.store.pull(&reference(host, digest), access, &Told::default())
    }

    /// What a pull is refused with; sees to it that nothing came of it.
    pub fn pull_refused(&self, host: &str, digest: &Digest) -> String {
        let error = self.pull(host, digest).unwrap_err();
        self.assert_nothing_visible();
        error.to_string()
    }

    /// No image, no blob, no bundle; at most parts of a download.
    pub fn assert_nothing_visible(&self) {
        assert!(self.store.list().unwrap().is_empty());
        let mut left = files_below(self.store.dir());
        left.retain(|p| {
            !p.is_dir() && p.file_name().unwrap() != "lock" && !p.parent().unwrap().ends_with("partial")
        });
        assert!(left.is_empty(), "{left:?}");
    }

    /// A layout of [`base`] and a second layer.
    pub fn two_layers(&self, extra: Vec<Item>) -> LayoutDir {
        make(&self.layout_dir(), "localhost/test/image:1", &[base(), extra])
    }
}

/// A file that does not compress, of `size` bytes that follow from `seed`.
pub fn noise(path: &str, size: usize, mut seed: u64) -> Item {
    let mut body = Vec::with_capacity(size + 8);
    while body.len() < size {
        // SplitMix64 (Steele, Lea, Flood 2014).
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        body.extend_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    body.truncate(size);
    Item { body, ..file(path, "") }
}

/// Puts an index of two platforms over the layout's image; gives its digest.
pub fn index_over(layout: &LayoutDir, media_types: (&str, &str)) -> Digest {
    let size = std::fs::metadata(blob_path(&layout.dir, &layout.manifest)).unwrap().len();
    let entry = |digest: &str, arch: &str| {
        json!({"mediaType": media_types.1, "digest": digest, "size": size,
            "platform": {"os": "linux", "architecture": arch}})
    };
    let index = json!({"schemaVersion": 2, "mediaType": media_types.0, "manifests": [
        entry(Digest::of(b"of another platform").as_str(), "mips64"),
        entry(layout.manifest.as_str(), crate::oci_layout::arch()),
    ]});
    let descriptor = put_json(&layout.dir, media_types.0, &index);
    write_index(&layout.dir, std::slice::from_ref(&descriptor));
    crate::oci_layout::digest_of(&descriptor)
}

/// Media types of an OCI index and manifest.
pub const OCI: (&str, &str) = (INDEX, MANIFEST);

/// The bytes of a layout's blob.
pub fn blob(layout: &Path, digest: &Digest) -> Vec<u8> {
    std::fs::read(blob_path(layout, digest)).unwrap()
}
