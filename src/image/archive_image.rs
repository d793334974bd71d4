//! The image in a tar archive: an OCI image layout, or what `docker save` writes.
//!
//! Docker's form up to 24 has `manifest.json`, a configuration and uncompressed layers by other names than
//! their digests, and no manifest. One is made for it: the configuration's diff_ids are the digests of such
//! layers, so the manifest follows from the archive alone and is the same at every import. From 25 on an
//! OCI image layout lies in it, which counts.

use super::archive::Members;
use super::blob::Blob;
use super::error::{ImageError, unread};
use super::layout;
use super::limits::Limits;
use super::record::ImageRecord;
use super::reference::Reference;
use super::resolve::{self, Resolved, descriptor};
use super::source::Blobs;
use super::store::Store;
use crate::domain::digest::Digest;
use oci_spec::image::{Descriptor, ImageConfiguration, ImageManifest, ImageManifestBuilder, MediaType};
use serde::Deserialize;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

const DOCKER_FILE: &str = "manifest.json";

/// One image of `manifest.json` (moby, "image/tarexport").
#[derive(Deserialize)]
struct Saved {
    #[serde(rename = "Config")]
    config: String,
    #[serde(rename = "RepoTags")]
    names: Option<Vec<String>>,
    #[serde(rename = "Layers")]
    layers: Vec<String>,
}

/// An archive with an image in it.
pub(super) struct ArchiveImage {
    members: Members,
    /// Documents that were made or have another name than their digest.
    documents: HashMap<Digest, Vec<u8>>,
    /// Names of layers that have another name than their digest.
    names: HashMap<Digest, String>,
}

impl Store {
    /// Imports the image in the tar archive `path`: an OCI image layout, or what `docker save` writes.
    /// Else as [`Store::import_layout`].
    ///
    /// # Errors
    /// The [`ImageError`] that applies, naming the archive, blob, entry or limit; nothing is left behind.
    pub fn import_archive(&self, path: &Path, name: Option<&str>) -> Result<ImageRecord, ImageError> {
        let (source, resolved) = read(path, name, self.limits())?;
        self.admit(&resolved, &source)
    }
}

/// Reads the archive as far as its layers; `name` replaces the one in it.
pub(super) fn read(
    path: &Path,
    name: Option<&str>,
    limits: &Limits,
) -> Result<(ArchiveImage, Resolved), ImageError> {
    let members = Members::open(path)?;
    let mut source = ArchiveImage { members, documents: HashMap::new(), names: HashMap::new() };
    let resolved = if source.members.has(layout::VERSION_FILE) {
        let top = layout::top(path, &|file| source.members.document(file, limits.document_bytes))?;
        resolve::resolve(&top, name, limits, &|_, blob| source.document(blob)).map_err(layout::at(path))?
    } else if source.members.has(DOCKER_FILE) {
        let (top, saved) = source.docker(limits)?;
        let tag = saved.as_deref().filter(|tag| Reference::pinned(tag, Digest::of(b"")).is_ok());
        resolve::resolve(&[top], name.or(tag), limits, &|_, blob| source.document(blob))?
    } else {
        return Err(source.members.wrong(format!(
            "is neither an OCI image layout nor a `docker save` archive: it holds no '{}' and no '{DOCKER_FILE}'",
            layout::VERSION_FILE
        )));
    };
    Ok((source, resolved))
}

impl ArchiveImage {
    /// Makes the manifest of the only image in an archive of Docker's own form; gives its name too.
    fn docker(&mut self, limits: &Limits) -> Result<(Descriptor, Option<String>), ImageError> {
        let members = &self.members;
        let text = members.document(DOCKER_FILE, limits.document_bytes)?;
        let images: Vec<Saved> = serde_json::from_slice(&text).map_err(|e| {
            members.wrong(format!("has a {DOCKER_FILE} that is not the JSON it should be ({})", unread(&e)))
        })?;
        let [image] = images.as_slice() else {
            return Err(
                members.wrong(format!("holds {} images, and one is imported at a time", images.len()))
            );
        };
        let config = members.document(&image.config, limits.document_bytes)?;
        let digest = Digest::of(&config);
        let stem = image.config.rsplit('/').next().unwrap_or_default().trim_end_matches(".json");
        if let Ok(expected) = Digest::parse(&format!("sha256:{stem}"))
            && expected != digest
        {
            return Err(ImageError::BlobDigest {
                path: image.config.clone().into(),
                expected,
                found: digest,
            });
        }
        let parsed: ImageConfiguration = serde_json::from_slice(&config).map_err(|e| {
            members.wrong(format!("has a configuration that is not the JSON it should be ({})", unread(&e)))
        })?;
        let diff_ids = parsed.rootfs().diff_ids();
        if diff_ids.len() != image.layers.len() {
            let (layers, ids) = (image.layers.len(), diff_ids.len());
            return Err(members.wrong(format!("has {layers} layers and {ids} diff_ids")));
        }
        let mut layers = Vec::new();
        let mut names = HashMap::new();
        for (name, id) in image.layers.iter().zip(diff_ids) {
            let size =
                members.size(name).ok_or_else(|| members.wrong("lacks a layer that it names".to_owned()))?;
            let id =
                Digest::parse(id).map_err(|e| members.wrong(format!("has a diff_id that is bad: {e}")))?;
            layers.push(descriptor(MediaType::ImageLayer, &id, size)?);
            names.insert(id, name.clone());
        }
        let config_descriptor = descriptor(MediaType::ImageConfig, &digest, config.len() as u64)?;
        let manifest = manifest(config_descriptor, layers).map_err(|e| members.wrong(e.to_string()))?;
        let manifest_digest = Digest::of(&manifest);
        let top = descriptor(MediaType::ImageManifest, &manifest_digest, manifest.len() as u64)?;
        let saved = image.names.as_ref().and_then(|names| names.first()).cloned();
        self.documents = HashMap::from([(digest, config), (manifest_digest, manifest)]);
        self.names = names;
        Ok((top, saved))
    }

    fn document(&self, blob: &Blob) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        self.write(blob, &mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, blob: &Blob, out: &mut impl Write) -> Result<(), ImageError> {
        if let Some(bytes) = self.documents.get(&blob.digest) {
            return blob.receive(bytes.as_slice(), Path::new(DOCKER_FILE), out);
        }
        let by_digest = format!("blobs/sha256/{}", blob.digest.hex());
        self.members.blob(blob, self.names.get(&blob.digest).unwrap_or(&by_digest), out)
    }
}

impl Blobs for ArchiveImage {
    fn fetch(&self, blob: &Blob, to: &Path) -> Result<(), ImageError> {
        let mut file = File::create_new(to).map_err(ImageError::io("create", to))?;
        self.write(blob, &mut file)
    }

    fn recheck(&self, blob: &Blob) -> Result<(), ImageError> {
        self.write(blob, &mut std::io::sink())
    }
}

/// The bytes of the manifest. The order of its fields is that of the type, so they never vary.
fn manifest(config: Descriptor, layers: Vec<Descriptor>) -> oci_spec::Result<Vec<u8>> {
    let manifest: ImageManifest = ImageManifestBuilder::default()
        .schema_version(2u32)
        .media_type(MediaType::ImageManifest)
        .config(config)
        .layers(layers)
        .build()?;
    Ok(manifest.to_string()?.into_bytes())
}
