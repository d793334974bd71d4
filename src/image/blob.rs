//! Blobs: read, copied and hashed against the digest and size of their descriptor.

use super::error::ImageError;
use crate::domain::digest::Digest;
use sha2::{Digest as _, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes moved at a time.
pub(super) const CHUNK: usize = 128 * 1024;

/// What a descriptor says of a blob (OCI image specification, "Content Descriptors").
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    pub digest: Digest,
    pub size: u64,
}

impl Blob {
    /// Where a layout, or the store, keeps it.
    pub fn path(&self, root: &Path) -> PathBuf {
        root.join("blobs/sha256").join(self.digest.hex())
    }

    /// Reads it whole; the caller has bounded its size.
    pub fn read(&self, root: &Path) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        self.stream(root, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads it and keeps nothing.
    pub fn verify(&self, root: &Path) -> Result<(), ImageError> {
        self.stream(root, &mut std::io::sink())
    }

    /// Copies it to a new file, checking as it goes. On an error the file may hold a part.
    pub fn copy(&self, root: &Path, to: &Path) -> Result<(), ImageError> {
        let mut file = File::create_new(to).map_err(ImageError::io("create", to))?;
        self.stream(root, &mut file)
    }

    fn stream(&self, root: &Path, out: &mut impl Write) -> Result<(), ImageError> {
        let path = self.path(root);
        let file = match open_regular(&path) {
            Err(ImageError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Err(ImageError::BlobMissing { blob: self.digest.clone(), path });
            }
            other => other?,
        };
        let found = |n| std::fs::metadata(&path).map_or(n, |m| m.len());
        self.receive(file, &path, out).map_err(|error| match error {
            ImageError::BlobSize { blob, path, expected, found: n } => {
                ImageError::BlobSize { found: found(n), blob, path, expected }
            }
            other => other,
        })
    }

    /// Copies it from a stream that is named `path` in errors, checking as it goes.
    pub fn receive(&self, from: impl Read, path: &Path, out: &mut impl Write) -> Result<(), ImageError> {
        // One byte more than promised is enough to know that there are too many.
        let (found, size) =
            pump(&mut from.take(self.size.saturating_add(1)), out).map_err(ImageError::io("copy", path))?;
        let path = path.to_owned();
        if size != self.size {
            return Err(ImageError::BlobSize {
                blob: self.digest.clone(),
                path,
                expected: self.size,
                found: size,
            });
        }
        if found == self.digest {
            Ok(())
        } else {
            Err(ImageError::BlobDigest { path, expected: self.digest.clone(), found })
        }
    }
}

/// Opens a file that must be a regular one. Never follows a symlink in the last component, never
/// waits for the other end of a FIFO.
pub(super) fn open_regular(path: &Path) -> Result<File, ImageError> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .map_err(ImageError::io("open", path))?;
    let metadata = file.metadata().map_err(ImageError::io("stat", path))?;
    if metadata.is_file() {
        Ok(file)
    } else {
        Err(ImageError::Layout {
            path: path.to_owned(),
            problem: "is not a regular file; export the image again".to_owned(),
        })
    }
}

/// Copies `from` to `to`; gives the digest and the number of the bytes.
pub(super) fn pump(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<(Digest, u64)> {
    let (mut hash, mut size, mut chunk) = (Sha256::new(), 0, vec![0; CHUNK]);
    loop {
        let n = match from.read(&mut chunk) {
            Ok(0) => return Ok((Digest::from_sha256(&hash.finalize()), size)),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let bytes = chunk.get(..n).unwrap_or_default();
        hash.update(bytes);
        to.write_all(bytes)?;
        size += n as u64;
    }
}
