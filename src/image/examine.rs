//! What is read of an image before anything is stored, as functions over bytes: for the fuzz targets, which
//! know of no store.

use super::blob::Blob;
use super::error::ImageError;
use super::limits::Limits;
use super::registry::media_type;
use super::resolve::{Resolved, descriptor, resolve};
use super::{archive_image, reference::Reference};
use crate::domain::digest::Digest;
use crate::domain::job::ImagePin;
use std::cell::RefCell;
use std::path::Path;

/// Resolves the documents of an image as a pull does: `top` is what the registry calls a `told`; whatever is
/// read next is taken from `rest` in turn, its digest not compared.
///
/// # Errors
/// As [`super::Store::pull`].
pub fn documents(top: &[u8], told: &str, rest: &[&[u8]], limits: &Limits) -> Result<ImagePin, ImageError> {
    let blob = Blob { digest: Digest::of(top), size: top.len() as u64 };
    let kind = media_type(top, told)
        .map_err(|problem| ImageError::Document { blob: blob.digest.clone(), problem })?;
    let rest = RefCell::new(rest.iter());
    let read = |_, wanted: &Blob| {
        if *wanted == blob {
            return Ok(top.to_vec());
        }
        let next = rest.borrow_mut().next();
        next.map(|bytes| bytes.to_vec())
            .ok_or_else(|| ImageError::BlobMissing { blob: wanted.digest.clone(), path: "documents".into() })
    };
    let top = descriptor(kind, &blob.digest, blob.size)?;
    Ok(pin(resolve(&[top], Some("fuzz/image"), limits, &read)?))
}

/// Reads the archive at `path` as an import does, to the image's layers.
///
/// # Errors
/// As [`super::Store::import_archive`].
pub fn archive(path: &Path, limits: &Limits) -> Result<ImagePin, ImageError> {
    archive_image::read(path, None, limits).map(|(_, resolved)| pin(resolved))
}

fn pin(resolved: Resolved) -> ImagePin {
    let reference: Reference = resolved.reference;
    ImagePin {
        reference: reference.to_string(),
        index: resolved.index.map(|index| index.digest),
        manifest: resolved.manifest.digest,
        config: resolved.config.digest,
        diff_ids: resolved.layers.into_iter().map(|layer| layer.diff_id).collect(),
    }
}
