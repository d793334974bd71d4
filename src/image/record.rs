//! The record of an imported image: `images/<manifest>.json`, written last.

use super::blob::Blob;
use super::error::ImageError;
use super::layers::StoredLayer;
use super::reference::Reference;
use crate::domain::digest::Digest;
use crate::domain::job::ImagePin;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Format version of a new [`ImageRecord`].
pub(super) const FORMAT: u32 = 2;
/// Formats that are read; any other is refused. Format 1 had no layers: its images are flat.
pub(super) const FORMATS: RangeInclusive<u32> = 1..=FORMAT;

/// An image of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// Format version of this record.
    pub format: u32,
    /// What was resolved; its reference is `NAME@<manifest digest>`.
    pub pin: ImagePin,
    /// Full name under which it was first imported.
    pub name: String,
    /// Full names under which it was imported again.
    pub other_names: Vec<String>,
    /// The tag that its layout named, for the reader only.
    pub tag: Option<String>,
    /// The index through which its manifest was found; a reference may name it instead.
    pub index: Option<Digest>,
    /// Bytes of all its blobs.
    pub size: u64,
    /// Bytes of its uncompressed layers.
    pub unpacked: u64,
    /// When it was built, as its configuration says.
    pub created: Option<String>,
    /// When it was first imported (UTC, RFC 3339).
    pub imported: String,
    /// Its blobs: index if any, manifest, configuration, then layers, lowest first.
    pub blobs: Vec<StoredBlob>,
    /// Its unpacked layers, lowest first. None if it was unpacked flat, into one directory: where layers
    /// cannot be stacked.
    #[serde(default)]
    pub layers: Vec<StoredLayer>,
    /// Bytes of its bundle on disk, without its layers; `None` in format 1.
    #[serde(default)]
    pub bundle_disk: Option<u64>,
    /// Digest of the bundle's `tree.json`.
    pub tree: Digest,
    /// What the cheap check compares.
    pub seals: Vec<Seal>,
}

/// A blob of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBlob {
    /// Its digest.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
}

/// Inode and change time of a file or directory near the top of a bundle. Both change when it is
/// replaced; the latter also when its attributes, or the names in it, change (stat(2), `st_ctim`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Path below the bundle.
    pub path: String,
    /// Inode number.
    pub inode: u64,
    /// Change time, in nanoseconds since the epoch.
    pub changed: i64,
}

impl ImageRecord {
    /// The image's own reference, `NAME@<manifest digest>`.
    ///
    /// # Errors
    /// [`ImageError::Reference`] if the record was edited into nonsense.
    pub fn reference(&self) -> Result<Reference, ImageError> {
        Ok(Reference::pinned(&self.name, self.pin.manifest.clone())?)
    }

    /// True if `reference` means this image: one of its names with the digest of its manifest or
    /// of its index. Tags are not compared.
    pub fn answers(&self, reference: &Reference) -> bool {
        let named = self.name == reference.name() || self.other_names.iter().any(|n| n == reference.name());
        named && (self.pin.manifest == *reference.digest() || self.index.as_ref() == Some(reference.digest()))
    }

    /// The directory of the bundle that is on top of the layers, or alone.
    pub(super) fn top(&self) -> &'static str {
        if self.layers.is_empty() { "rootfs" } else { "top" }
    }

    pub(super) fn blobs(&self) -> impl Iterator<Item = Blob> {
        self.blobs.iter().map(|b| Blob { digest: b.digest.clone(), size: b.size })
    }
}

impl From<Blob> for StoredBlob {
    fn from(blob: Blob) -> Self {
        Self { digest: blob.digest, size: blob.size }
    }
}
