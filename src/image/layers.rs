//! Unpacked layers, each once: `layers/<chain id>/` holds what the layer changes of those below it, in
//! the form of an overlay's directory. Two images on one base share the base (OCI image specification,
//! "Layer ChainID").

use super::blob::Blob;
use super::error::ImageError;
use super::layer::{self, Budget};
use super::limits::Limits;
use super::overlay;
use super::record::Seal;
use super::resolve::Layer;
use super::root::Root;
use super::store::{Store, read_bounded};
use super::tree;
use super::unpack::Unpacker;
use super::verify;
use crate::domain::digest::Digest;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Format version of [`LayerRecord`].
const FORMAT: u32 = 1;
/// File name of a layer's record.
const RECORD: &str = "layer.json";
/// What a layer changes.
pub(super) const FS: &str = "fs";

/// What is known of an unpacked layer: `layer.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LayerRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// Its chain id, also the name of its directory.
    pub chain: Digest,
    /// The chain id of the layer below.
    pub parent: Option<Digest>,
    /// Digest of the uncompressed archive.
    pub diff_id: Digest,
    /// Bytes of the uncompressed archive.
    pub unpacked: u64,
    /// Entries of the archive.
    pub entries: u64,
    /// Bytes on disk.
    pub disk: u64,
    /// Digest of `tree.json`.
    pub tree: Digest,
    /// What the cheap check compares.
    pub seals: Vec<Seal>,
}

/// A layer as an image's record names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLayer {
    /// Its chain id.
    pub chain: Digest,
    /// Digest of its own record, `layer.json`.
    pub record: Digest,
}

/// The chain ids of `diff_ids`, lowest first.
pub(super) fn chain_ids<'a>(diff_ids: impl Iterator<Item = &'a Digest>) -> Vec<Digest> {
    let mut chain: Vec<Digest> = Vec::new();
    for diff_id in diff_ids {
        chain.push(match chain.last() {
            None => diff_id.clone(),
            Some(below) => Digest::of(format!("{below} {diff_id}").as_bytes()),
        });
    }
    chain
}

impl Store {
    /// Where a layer lies.
    pub(super) fn layer_dir(&self, chain: &Digest) -> PathBuf {
        self.dir().join("layers").join(chain.hex())
    }

    /// A layer's record, which must have the digest that an image knows.
    ///
    /// # Errors
    /// A text for people.
    pub(super) fn layer(&self, stored: &StoredLayer) -> Result<LayerRecord, String> {
        let path = self.layer_dir(&stored.chain).join(RECORD);
        let bytes = match read_bounded(&path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Err(format!("{} is missing", path.display())),
            Err(e) => return Err(e.to_string()),
        };
        if Digest::of(&bytes) != stored.record {
            return Err(format!("{} is not the one that the import wrote", path.display()));
        }
        match serde_json::from_slice::<LayerRecord>(&bytes) {
            Ok(record) if record.format == FORMAT && record.chain == stored.chain => Ok(record),
            Ok(record) => Err(format!("{} has format {}", path.display(), record.format)),
            Err(e) => Err(format!("{}: {e}", path.display())),
        }
    }

    /// Compares the layer's seals with what is there.
    ///
    /// # Errors
    /// The first difference, for people.
    pub(super) fn check_layer(&self, stored: &StoredLayer) -> Result<LayerRecord, String> {
        let record = self.layer(stored)?;
        let found = verify::seals(&self.layer_dir(&stored.chain), &[FS]).map_err(|e| e.to_string())?;
        let of_layer = |problem: String| format!("layer {}: {problem}", stored.chain);
        verify::compare_seals(&record.seals, &found).map_err(of_layer)?;
        Ok(record)
    }
}

/// An image's stack while it is made.
pub(super) struct Stack<'a> {
    store: &'a Store,
    /// Layers of published images.
    known: &'a [StoredLayer],
    stage: &'a Path,
    /// Every layer so far, lowest first.
    pub layers: Vec<StoredLayer>,
    /// The directories of them, topmost first.
    pub dirs: Vec<PathBuf>,
    /// Those among them that are new, in the stage.
    pub fresh: Vec<Digest>,
    entries: u64,
}

impl<'a> Stack<'a> {
    /// Starts with no layer. New ones are made in `stage`.
    pub fn new(store: &'a Store, known: &'a [StoredLayer], stage: &'a Path) -> Self {
        Self { store, known, stage, layers: Vec::new(), dirs: Vec::new(), fresh: Vec::new(), entries: 0 }
    }

    /// Puts `layer` on top: the unpacked one if the store has it, else that of the blob that `blob`
    /// gives.
    pub fn push(
        &mut self,
        chain: &Digest,
        layer: &Layer,
        budget: &mut Budget,
        blob: &mut dyn FnMut(&Blob) -> Result<PathBuf, ImageError>,
    ) -> Result<(), ImageError> {
        if let Some(known) = self.known.iter().find(|known| known.chain == *chain).cloned() {
            let changed = |problem| ImageError::Changed { image: chain.to_string(), problem };
            let record = self.store.check_layer(&known).map_err(changed)?;
            self.entries += record.entries;
            budget.take(record.unpacked, &layer.blob.digest)?;
            self.dirs.insert(0, self.store.layer_dir(chain).join(FS));
            self.layers.push(known);
            return Ok(());
        }
        let before = budget.left;
        let dir = self.stage.join("layers").join(chain.hex());
        let fs = dir.join(FS);
        make_root(&fs)?;
        let root = match self.dirs.as_slice() {
            [] => Root::open(&fs).map_err(ImageError::errno("open", &fs))?,
            below => overlay::open(&self.stage.join(format!("stack-{}", self.layers.len())), below, &fs)?,
        };
        let limits = self.store.limits();
        let mut unpacker = start(&root, limits, self.entries, &fs)?;
        let path = blob(&layer.blob)?;
        layer::unpack(&path, layer, budget, |chunks| unpacker.layer(&layer.blob.digest, chunks))?;
        let same = same_inodes(&root, &fs)?;
        let (mut hashes, entries) = unpacker.finish();
        if !same {
            // Inode numbers seen through the overlay are not those of its directory.
            hashes.clear();
        }
        drop(root);
        let (tree, disk) = tree::write(&dir, &[FS], &hashes)?;
        let record = LayerRecord {
            format: FORMAT,
            chain: chain.clone(),
            parent: self.layers.last().map(|l| l.chain.clone()),
            diff_id: layer.diff_id.clone(),
            unpacked: before - budget.left,
            entries: entries - self.entries,
            disk,
            tree,
            seals: verify::seals(&dir, &[FS])?,
        };
        let path = dir.join(RECORD);
        let json = serde_json::to_vec(&record).map_err(|e| ImageError::io("write", &path)(e.into()))?;
        std::fs::write(&path, &json).map_err(ImageError::io("write", &path))?;
        self.entries = entries;
        self.dirs.insert(0, fs);
        self.layers.push(StoredLayer { chain: chain.clone(), record: Digest::of(&json) });
        self.fresh.push(chain.clone());
        Ok(())
    }
}

/// Makes a directory that becomes a root, with the mode that uid 65532 needs to enter it.
pub(super) fn make_root(path: &Path) -> Result<(), ImageError> {
    let parent = path.parent().unwrap_or(path);
    DirBuilder::new().mode(0o700).recursive(true).create(parent).map_err(ImageError::io("create", parent))?;
    std::fs::create_dir(path).map_err(ImageError::io("create", path))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(ImageError::io("chmod", path))
}

pub(super) fn start<'r>(
    root: &'r Root,
    limits: &'r Limits,
    entries: u64,
    path: &Path,
) -> Result<Unpacker<'r>, ImageError> {
    Unpacker::new(root, limits, entries).map_err(ImageError::errno("stat", path))
}

/// Whether a new file has the inode number in the overlay that it has in the upper directory.
fn same_inodes(root: &Root, upper: &Path) -> Result<bool, ImageError> {
    const NAME: &[u8] = b".salaam-inode-trial";
    let failed = || ImageError::errno("stat", upper);
    let file = super::root::make_file(root.fd(), NAME).map_err(failed())?;
    let seen = rustix::fs::fstat(&file).map_err(failed())?.st_ino;
    let below = Root::open(upper).map_err(failed())?;
    let real = super::root::look_at(below.fd(), NAME).map_err(failed())?.map(|s| s.st_ino);
    rustix::fs::unlinkat(root.fd(), NAME, rustix::fs::AtFlags::empty()).map_err(failed())?;
    Ok(real == Some(seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn img4_chain_ids_are_those_of_the_specification() {
        let ids: Vec<Digest> = ["a", "b", "c"].map(|t| Digest::of(t.as_bytes())).to_vec();
        let chain = chain_ids(ids.iter());
        assert_eq!(chain[0], ids[0]);
        assert_eq!(chain[1], Digest::of(format!("{} {}", ids[0], ids[1]).as_bytes()));
        assert_eq!(chain[2], Digest::of(format!("{} {}", chain[1], ids[2]).as_bytes()));
    }
}
