//! From a list of descriptors to one image for this machine: index → platform manifest → configuration →
//! layers (OCI image specification). Pure: documents are read, verified, by the caller's function.

use super::blob::Blob;
use super::error::{ImageError, unread};
use super::limits::Limits;
use super::reference::Reference;
use crate::domain::digest::Digest;
use oci_spec::image::{Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType, Sha256Digest};
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::str::FromStr;

const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";
const DOCKER_LAYER_GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/// Written by BuildKit.
const DOCKER_LAYER_ZSTD: &str = "application/vnd.docker.image.rootfs.diff.tar.zstd";
/// Full name, written by containerd and BuildKit.
const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// Full name or only a tag, depending on who wrote it.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// Name of an image whose source gives none.
const UNNAMED: &str = "localhost/imported";

/// Gives a document's bytes, which have the digest and size of its descriptor.
pub(super) type ReadDocument<'a> = &'a dyn Fn(Kind, &Blob) -> Result<Vec<u8>, ImageError>;

/// What a document is; a registry keeps the first two apart from other blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Index,
    Manifest,
    Configuration,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Manifest => "manifest",
            Self::Configuration => "configuration",
        }
    }
}

/// How a layer's archive is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

/// One layer, lowest first in [`Resolved::layers`].
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub blob: Blob,
    pub compression: Compression,
    pub diff_id: Digest,
}

/// What is to be brought into the store.
#[derive(Debug)]
pub(super) struct Resolved {
    /// Name and manifest digest; the tag, if any, as annotated.
    pub reference: Reference,
    /// The index through which the manifest was found, if there was one.
    pub index: Option<Blob>,
    pub manifest: Blob,
    pub config: Blob,
    pub layers: Vec<Layer>,
    /// `created` of the configuration.
    pub created: Option<String>,
}

impl Resolved {
    /// How many of [`Resolved::blobs`] are documents; they come first.
    pub fn documents(&self) -> usize {
        2 + usize::from(self.index.is_some())
    }

    /// Every blob: index if any, manifest, configuration, layers; one that is there twice, once.
    pub fn blobs(&self) -> impl Iterator<Item = &Blob> {
        let mut seen = HashSet::new();
        let layers = self.layers.iter().map(|l| &l.blob);
        self.index
            .iter()
            .chain([&self.manifest, &self.config])
            .chain(layers)
            .filter(move |b| seen.insert(b.digest.clone()))
    }
}

/// Resolves the image for this machine among `top`; `name` replaces the annotated name.
///
/// # Errors
/// [`ImageError::Document`] or [`ImageError::Limit`], or that of `read`.
pub(super) fn resolve(
    top: &[Descriptor],
    name: Option<&str>,
    limits: &Limits,
    read: ReadDocument<'_>,
) -> Result<Resolved, ImageError> {
    let first = select(top).map_err(|problem| ImageError::Source { problem })?;
    let (chosen, index) = if is_index(first.media_type()) {
        let blob = document(first, Kind::Index, limits)?;
        let nested: ImageIndex = parse(&blob, &read(Kind::Index, &blob)?)?;
        if nested.media_type().as_ref().is_some_and(|t| !is_index(t)) {
            return Err(ImageError::Document {
                blob: blob.digest,
                problem: "does not call itself an index of images; export the image again".to_owned(),
            });
        }
        let inner = select(nested.manifests())
            .map_err(|problem| ImageError::Document { blob: blob.digest.clone(), problem })?;
        if is_index(inner.media_type()) {
            return Err(ImageError::Document {
                blob: blob.digest,
                problem: "is an index of indexes, one level is the limit; export one image".to_owned(),
            });
        }
        (inner.clone(), Some(blob))
    } else {
        (first.clone(), None)
    };
    let manifest = document(&chosen, Kind::Manifest, limits)?;
    let parsed: ImageManifest = parse(&manifest, &read(Kind::Manifest, &manifest)?)?;
    if parsed.schema_version() != 2 || parsed.media_type().as_ref().is_some_and(|t| !is_manifest(t)) {
        // One blob must not be a manifest to one reader and an index to another (CVE-2021-41190).
        return Err(ImageError::Document {
            blob: manifest.digest,
            problem: "does not call itself an image manifest of schema 2; export the image again".to_owned(),
        });
    }
    let config = document(parsed.config(), Kind::Configuration, limits)?;
    let configuration: ImageConfiguration = parse(&config, &read(Kind::Configuration, &config)?)?;
    check_platform(&config, &configuration)?;
    let layers = layers(&manifest, &parsed, &configuration, limits)?;
    let reference = match name {
        Some(name) => Reference::pinned(name, manifest.digest.clone())?,
        None => annotated(&[first, &chosen], &manifest.digest)?,
    };
    let created = configuration.created().as_deref().map(short);
    Ok(Resolved { reference, index, manifest, config, layers, created })
}

/// A descriptor of a digest of ours.
pub(super) fn descriptor(kind: MediaType, digest: &Digest, size: u64) -> Result<Descriptor, ImageError> {
    let sha256 = Sha256Digest::from_str(digest.hex())
        .map_err(|e| ImageError::Document { blob: digest.clone(), problem: e.to_string() })?;
    Ok(Descriptor::new(kind, size, sha256))
}

pub(super) fn is_index(media_type: &MediaType) -> bool {
    matches!(media_type, MediaType::ImageIndex) || media_type.as_ref() == DOCKER_LIST
}

pub(super) fn is_manifest(media_type: &MediaType) -> bool {
    matches!(media_type, MediaType::ImageManifest) || media_type.as_ref() == DOCKER_MANIFEST
}

/// The architecture of this machine in the words of GOARCH.
fn this_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

/// The only image, or the first for this platform ("the first matching entry SHOULD be used", OCI
/// image specification, "Image Index").
fn select(descriptors: &[Descriptor]) -> Result<&Descriptor, String> {
    let arch = this_arch();
    let images: Vec<_> =
        descriptors.iter().filter(|d| is_index(d.media_type()) || is_manifest(d.media_type())).collect();
    if let [only] = images.as_slice() {
        return Ok(only);
    }
    let fits = |d: &&&Descriptor| {
        d.platform()
            .as_ref()
            .is_some_and(|p| p.os().to_string() == "linux" && p.architecture().to_string() == arch)
    };
    images.iter().find(fits).copied().ok_or_else(|| {
        format!(
            "names {} images, none of them marked for linux/{arch}; export one image for this platform",
            images.len()
        )
    })
}

fn check_platform(blob: &Blob, config: &ImageConfiguration) -> Result<(), ImageError> {
    let (os, arch) = (config.os().to_string(), config.architecture().to_string());
    if os == "linux" && arch == this_arch() {
        return Ok(());
    }
    Err(ImageError::Document {
        blob: blob.digest.clone(),
        problem: format!(
            "the image is for {}/{}, this machine is linux/{}; export it for this platform",
            short(&os),
            short(&arch),
            this_arch()
        ),
    })
}

fn layers(
    blob: &Blob,
    manifest: &ImageManifest,
    config: &ImageConfiguration,
    limits: &Limits,
) -> Result<Vec<Layer>, ImageError> {
    let diff_ids = config.rootfs().diff_ids();
    let descriptors = manifest.layers();
    let wrong = |problem: String| ImageError::Document { blob: blob.digest.clone(), problem };
    if descriptors.len() != diff_ids.len() || descriptors.is_empty() {
        return Err(wrong(format!(
            "it has {} layers and its configuration {} diff_ids; export the image again",
            descriptors.len(),
            diff_ids.len()
        )));
    }
    if descriptors.len() > limits.layers {
        return Err(ImageError::Limit {
            what: format!("an image with {} layers", descriptors.len()),
            limit: limits.layers as u64,
            unit: "layers",
        });
    }
    let total = descriptors.iter().fold(0u64, |sum, d| sum.saturating_add(d.size()));
    if total > limits.unpacked_bytes {
        return Err(ImageError::Limit {
            what: format!("an image with {total} bytes of layers"),
            limit: limits.unpacked_bytes,
            unit: "bytes",
        });
    }
    let layer = |(descriptor, diff_id): (&Descriptor, &String)| {
        let blob = plain(descriptor)?;
        let compression = compression(&blob, descriptor.media_type())?;
        let diff_id =
            Digest::parse(diff_id).map_err(|e| wrong(format!("its configuration's diff_id {e}")))?;
        Ok(Layer { blob, compression, diff_id })
    };
    descriptors.iter().zip(diff_ids).map(layer).collect()
}

fn compression(layer: &Blob, media_type: &MediaType) -> Result<Compression, ImageError> {
    match (media_type, media_type.as_ref()) {
        (MediaType::ImageLayer, _) | (_, DOCKER_LAYER) => Ok(Compression::None),
        (MediaType::ImageLayerGzip, _) | (_, DOCKER_LAYER_GZIP) => Ok(Compression::Gzip),
        (MediaType::ImageLayerZstd, _) | (_, DOCKER_LAYER_ZSTD) => Ok(Compression::Zstd),
        (_, name) => Err(ImageError::LayerNotBuilt { layer: layer.digest.clone(), media_type: short(name) }),
    }
}

/// The first annotation that is a whole name, the most telling first.
fn annotated(descriptors: &[&Descriptor], digest: &Digest) -> Result<Reference, ImageError> {
    let named = [CONTAINERD_NAME, REF_NAME].iter().find_map(|key| {
        descriptors.iter().find_map(|d| {
            let name = d.annotations().as_ref()?.get(*key)?;
            // A reference name without a slash is a tag that has lost its name.
            if !name.contains('/') {
                return None;
            }
            Reference::pinned(name, digest.clone()).ok()
        })
    });
    match named {
        Some(reference) => Ok(reference),
        None => Ok(Reference::pinned(UNNAMED, digest.clone())?),
    }
}

fn plain(descriptor: &Descriptor) -> Result<Blob, ImageError> {
    let text = descriptor.digest().to_string();
    let digest = Digest::parse(&text).map_err(|e| ImageError::Layout {
        path: text.into(),
        problem: format!("{}; export the image with SHA-256 digests", e),
    })?;
    Ok(Blob { digest, size: descriptor.size() })
}

fn document(descriptor: &Descriptor, kind: Kind, limits: &Limits) -> Result<Blob, ImageError> {
    let blob = plain(descriptor)?;
    if blob.size > limits.document_bytes {
        return Err(ImageError::Limit {
            what: format!("the {} {} of {} bytes", kind.name(), blob.digest, blob.size),
            limit: limits.document_bytes,
            unit: "bytes",
        });
    }
    Ok(blob)
}

fn parse<T: DeserializeOwned>(blob: &Blob, bytes: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|e| ImageError::Document {
        blob: blob.digest.clone(),
        problem: format!("it is not the JSON it should be ({}); export the image again", unread(&e)),
    })
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}
