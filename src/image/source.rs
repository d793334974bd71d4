//! Where blobs come from: what a layout, an archive or a registry offers to the store.

use super::blob::Blob;
use super::error::ImageError;
use std::path::Path;

/// A source of blobs.
pub(super) trait Blobs: Sync {
    /// Sees that the blob lies whole and verified (size, SHA-256) at `to`, a new file of the stage;
    /// blocks until it does.
    ///
    /// # Errors
    /// The [`ImageError`] that names the blob. `to` may hold a part.
    fn fetch(&self, blob: &Blob, to: &Path) -> Result<(), ImageError>;

    /// Called instead of [`Blobs::fetch`] for a blob that the store holds already: a source at hand
    /// verifies its own copy, one far away has nothing to do.
    ///
    /// # Errors
    /// The [`ImageError`] that names the blob.
    fn recheck(&self, blob: &Blob) -> Result<(), ImageError> {
        let _ = blob;
        Ok(())
    }
}
