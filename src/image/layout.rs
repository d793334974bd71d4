//! Reads an OCI image layout directory (OCI image specification, "Image Layout").

use super::blob::{Blob, open_regular};
use super::error::ImageError;
use super::limits::Limits;
use super::resolve::{self, Resolved};
use super::source::Blobs;
use oci_spec::image::{ImageIndex, OciLayout};
use serde::de::DeserializeOwned;
use std::io::Read;
use std::path::Path;

/// `imageLayoutVersion` of the specification's version 1.
const LAYOUT_VERSION: &str = "1.0.0";

/// A layout directory as a source of blobs.
#[derive(Debug)]
pub(super) struct LayoutDir<'a>(pub &'a Path);

impl Blobs for LayoutDir<'_> {
    fn fetch(&self, blob: &Blob, to: &Path) -> Result<(), ImageError> {
        blob.copy(self.0, to)
    }

    fn recheck(&self, blob: &Blob) -> Result<(), ImageError> {
        blob.verify(self.0)
    }
}

/// Reads and checks `dir`; `name` replaces the annotated name.
pub(super) fn read(dir: &Path, name: Option<&str>, limits: &Limits) -> Result<Resolved, ImageError> {
    let version: OciLayout = top_file(dir, "oci-layout", limits)?;
    let bad = |problem: String| ImageError::Layout { path: dir.to_owned(), problem };
    if version.image_layout_version() != LAYOUT_VERSION {
        return Err(bad(format!(
            "has layout version '{}', only {LAYOUT_VERSION} is known; export the image in that version",
            printable(version.image_layout_version())
        )));
    }
    let top: ImageIndex = top_file(dir, "index.json", limits)?;
    resolve::resolve(top.manifests(), name, limits, &|blob| blob.read(dir)).map_err(|error| match error {
        ImageError::Source { problem } => bad(problem),
        other => other,
    })
}

/// Reads `oci-layout` or `index.json`, which no digest covers.
fn top_file<T: DeserializeOwned>(dir: &Path, name: &str, limits: &Limits) -> Result<T, ImageError> {
    let path = dir.join(name);
    let wrong = |problem: String| ImageError::Layout { path: path.clone(), problem };
    let mut bytes = Vec::new();
    match open_regular(&path) {
        Ok(file) => file.take(limits.document_bytes + 1).read_to_end(&mut bytes),
        Err(ImageError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Err(wrong(
                "is missing, so this is no OCI image layout; name a directory that is one".to_owned(),
            ));
        }
        Err(other) => return Err(other),
    }
    .map_err(ImageError::io("read", &path))?;
    if bytes.len() as u64 > limits.document_bytes {
        return Err(ImageError::Limit {
            what: path.display().to_string(),
            limit: limits.document_bytes,
            unit: "bytes",
        });
    }
    serde_json::from_slice(&bytes)
        .map_err(|e| wrong(format!("is not the JSON it should be ({e}); export the image again")))
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}
