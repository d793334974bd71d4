//! Reads an OCI image layout directory (OCI image specification, "Image Layout").

use super::blob::{Blob, open_regular};
use super::error::{ImageError, unread};
use super::limits::Limits;
use super::resolve::{self, Resolved};
use super::source::Blobs;
use oci_spec::image::{Descriptor, ImageIndex, OciLayout};
use serde::de::DeserializeOwned;
use std::io::Read;
use std::path::Path;

/// `imageLayoutVersion` of the specification's version 1.
const LAYOUT_VERSION: &str = "1.0.0";
/// Marks a layout.
pub(super) const VERSION_FILE: &str = "oci-layout";
const INDEX_FILE: &str = "index.json";

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
    let top = top(dir, &|file| top_file(dir, file, limits))?;
    resolve::resolve(&top, name, limits, &|_, blob| blob.read(dir)).map_err(at(dir))
}

/// Names the layout in an error of what its `index.json` lists.
pub(super) fn at(layout: &Path) -> impl Fn(ImageError) -> ImageError {
    move |error| match error {
        ImageError::Source { problem } => ImageError::Layout { path: layout.to_owned(), problem },
        other => other,
    }
}

/// What the index of the layout `named` lists; `file` reads one of its two files that no digest covers.
pub(super) fn top(
    named: &Path,
    file: &dyn Fn(&str) -> Result<Vec<u8>, ImageError>,
) -> Result<Vec<Descriptor>, ImageError> {
    let version: OciLayout = parse(named, VERSION_FILE, &file(VERSION_FILE)?)?;
    if version.image_layout_version() != LAYOUT_VERSION {
        return Err(ImageError::Layout {
            path: named.to_owned(),
            problem: format!(
                "has layout version '{}', only {LAYOUT_VERSION} is known; export the image in that version",
                short(version.image_layout_version())
            ),
        });
    }
    let index: ImageIndex = parse(named, INDEX_FILE, &file(INDEX_FILE)?)?;
    Ok(index.manifests().clone())
}

fn parse<T: DeserializeOwned>(named: &Path, file: &str, bytes: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|e| ImageError::Layout {
        path: named.join(file),
        problem: format!("is not the JSON it should be ({}); export the image again", unread(&e)),
    })
}

fn top_file(dir: &Path, name: &str, limits: &Limits) -> Result<Vec<u8>, ImageError> {
    let path = dir.join(name);
    let mut bytes = Vec::new();
    match open_regular(&path) {
        Ok(file) => file.take(limits.document_bytes + 1).read_to_end(&mut bytes),
        Err(ImageError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            let problem =
                "is missing, so this is no OCI image layout; name a directory that is one".to_owned();
            return Err(ImageError::Layout { path, problem });
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
    Ok(bytes)
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}
