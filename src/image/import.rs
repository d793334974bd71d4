//! Brings images into the store (IMG.1–4).
//!
//! Everything is staged in one directory under `tmp/`: blobs are copied and verified, then unpacked
//! from the copies, so what a source's owner changes meanwhile changes nothing. Only when all is
//! known to be right are blobs and bundle moved into place, and the record written.

use super::blob::Blob;
use super::error::ImageError;
use super::layer::{self, Budget};
use super::layers::{self, Stack, StoredLayer, make_root};
use super::layout::{self, LayoutDir};
use super::record::{FORMAT, ImageRecord, Seal};
use super::resolve::Resolved;
use super::root::Root;
use super::source::Blobs;
use super::store::{Store, fresh_name, remove_dir, sync_dir};
use super::unpack::Hashes;
use super::{bundle, gc, overlay, prepare, tree, verify};
use crate::domain::digest::Digest;
use crate::domain::job::ImagePin;
use rustix::fs::FlockOperation;
use std::collections::HashSet;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

impl Store {
    /// Imports the image of the layout directory `dir`, under `name` if given, else under the name
    /// that the layout annotates, else as `localhost/imported`. Its reference is
    /// `NAME@<manifest digest>`.
    ///
    /// An image that is here already keeps its bundle; the layout is verified all the same, and a
    /// new name is added to the record. One that has changed here is not repaired: remove it first.
    ///
    /// # Errors
    /// The [`ImageError`] that applies, naming the blob, entry or limit; nothing is left behind.
    pub fn import_layout(&self, dir: &Path, name: Option<&str>) -> Result<ImageRecord, ImageError> {
        let resolved = layout::read(dir, name, self.limits())?;
        self.admit(&resolved, &LayoutDir(dir))
    }

    /// Brings a resolved image into the store, its blobs from `blobs`.
    ///
    /// # Errors
    /// As [`Store::import_layout`].
    pub(super) fn admit(&self, resolved: &Resolved, blobs: &dyn Blobs) -> Result<ImageRecord, ImageError> {
        let _lock = self.lock(FlockOperation::LockExclusive)?;
        self.sweep()?;
        if let Some(record) = self.record(&resolved.manifest.digest)? {
            return self.admit_again(resolved, blobs, record);
        }
        let records = self.list()?;
        let kept: HashSet<Digest> = records.iter().flat_map(|r| &r.blobs).map(|b| b.digest.clone()).collect();
        let layers: Vec<StoredLayer> = records.into_iter().flat_map(|r| r.layers).collect();
        let stage = Stage::make(self.dir())?;
        let mut taken = HashSet::new();
        let mut take = |blob: &Blob, read: bool| -> Result<PathBuf, ImageError> {
            let staged = blob.path(stage.path());
            if taken.insert(blob.digest.clone()) {
                let here = kept.contains(&blob.digest);
                if here {
                    blobs.recheck(blob)?;
                }
                // One that is here and was damaged is mended if it is to be read.
                if !here || (read && blob.verify(self.dir()).is_err()) {
                    blobs.fetch(blob, &staged)?;
                }
            }
            Ok(if staged.exists() { staged } else { blob.path(self.dir()) })
        };
        // The short documents first: they were read already, and a source that has changed says so here.
        for blob in resolved.blobs().take(resolved.documents()) {
            take(blob, true)?;
        }
        let made = self.unpack(&stage, resolved, &layers, &mut |blob| take(blob, true))?;
        // A layer that was known needs no unpacking, but its blob belongs to the image all the same.
        resolved.blobs().try_for_each(|blob| take(blob, false).map(drop))?;
        self.publish(&stage, resolved, made)
    }

    fn admit_again(
        &self,
        resolved: &Resolved,
        blobs: &dyn Blobs,
        mut record: ImageRecord,
    ) -> Result<ImageRecord, ImageError> {
        resolved.blobs().try_for_each(|blob| blobs.recheck(blob))?;
        verify::check_record(self, &record)?;
        let before = record.clone();
        let name = resolved.reference.name();
        if record.name != name && record.other_names.iter().all(|n| n != name) {
            record.other_names.push(name.to_owned());
        }
        if let (None, Some(index)) = (&record.index, &resolved.index) {
            let stage = Stage::make(self.dir())?;
            let staged = index.path(stage.path());
            blobs.fetch(index, &staged)?;
            File::open(&staged).and_then(|f| f.sync_all()).map_err(ImageError::io("sync", &staged))?;
            self.publish_blob(&stage, index)?;
            sync_dir(&self.dir().join("blobs/sha256"))?;
            record.index = Some(index.digest.clone());
            record.blobs.insert(0, index.clone().into());
        }
        if record != before {
            self.write_record(&record)?;
        }
        Ok(record)
    }

    /// Unpacks what is not unpacked yet, and makes the bundle, `bundle/` of the stage.
    fn unpack(
        &self,
        stage: &Stage,
        resolved: &Resolved,
        known: &[StoredLayer],
        take: &mut dyn FnMut(&Blob) -> Result<PathBuf, ImageError>,
    ) -> Result<Made, ImageError> {
        let limit = self.limits().unpacked_bytes;
        let mut budget = Budget { limit, left: limit };
        let mut stack = Stack::new(self, known, stage.path());
        let dir = stage.path().join("bundle");
        let stacked = !self.is_flat() && overlay::usable(stage.path())?;
        let top = dir.join(if stacked { "top" } else { "rootfs" });
        make_root(&top)?;
        let mut hashes = Hashes::new();
        let root = if stacked {
            let chain = layers::chain_ids(resolved.layers.iter().map(|l| &l.diff_id));
            for (chain, layer) in chain.iter().zip(&resolved.layers) {
                stack.push(chain, layer, &mut budget, take)?;
            }
            overlay::open(&stage.path().join("stack-top"), &stack.dirs, &top)?
        } else {
            let root = Root::open(&top).map_err(ImageError::errno("open", &top))?;
            let mut unpacker = layers::start(&root, self.limits(), 0, &top)?;
            for layer in &resolved.layers {
                let path = take(&layer.blob)?;
                layer::unpack(&path, layer, &mut budget, |chunks| {
                    unpacker.layer(&layer.blob.digest, chunks)
                })?;
            }
            (hashes, _) = unpacker.finish();
            root
        };
        bundle::write(&root, &dir.join("etc"))?;
        prepare::prepare(&root)?;
        drop(root);
        let tops = [if stacked { "top" } else { "rootfs" }, "etc"];
        let (tree, disk) = tree::write(&dir, &tops, &hashes)?;
        let seals = verify::seals(&dir, &tops)?;
        let (layers, fresh) = (stack.layers, stack.fresh);
        Ok(Made { tree, seals, disk, unpacked: limit - budget.left, layers, fresh })
    }

    fn publish(&self, stage: &Stage, resolved: &Resolved, made: Made) -> Result<ImageRecord, ImageError> {
        // One syncfs(2) for all of the tree costs less than an fsync(2) a file.
        let opened = File::open(stage.path()).map_err(ImageError::io("open", stage.path()))?;
        rustix::fs::syncfs(&opened).map_err(ImageError::errno("sync", stage.path()))?;
        for blob in resolved.blobs() {
            self.publish_blob(stage, blob)?;
        }
        for chain in &made.fresh {
            let (from, to) = (stage.path().join("layers").join(chain.hex()), self.layer_dir(chain));
            std::fs::rename(&from, &to).map_err(ImageError::io("publish", &to))?;
        }
        let manifest = &resolved.manifest.digest;
        let (from, to) = (stage.path().join("bundle"), self.bundle_dir(manifest));
        std::fs::rename(&from, &to).map_err(ImageError::io("publish", &to))?;
        for below in ["blobs/sha256", "layers", "bundles"] {
            sync_dir(&self.dir().join(below))?;
        }
        let record = ImageRecord {
            format: FORMAT,
            pin: ImagePin {
                reference: resolved.reference.without_tag().to_string(),
                manifest: manifest.clone(),
                index: resolved.index.as_ref().map(|i| i.digest.clone()),
                config: resolved.config.digest.clone(),
                diff_ids: resolved.layers.iter().map(|l| l.diff_id.clone()).collect(),
            },
            name: resolved.reference.name().to_owned(),
            other_names: Vec::new(),
            tag: resolved.reference.tag().map(str::to_owned),
            index: resolved.index.as_ref().map(|i| i.digest.clone()),
            size: resolved.blobs().map(|b| b.size).sum(),
            unpacked: made.unpacked,
            created: resolved.created.clone(),
            imported: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            blobs: resolved.blobs().cloned().map(Into::into).collect(),
            layers: made.layers,
            bundle_disk: Some(made.disk),
            tree: made.tree,
            seals: made.seals,
        };
        self.write_record(&record)?;
        Ok(record)
    }

    fn publish_blob(&self, stage: &Stage, blob: &Blob) -> Result<(), ImageError> {
        let to = blob.path(self.dir());
        match std::fs::rename(blob.path(stage.path()), &to) {
            // Two layers may be one blob.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && to.exists() => Ok(()),
            other => other.map_err(ImageError::io("publish", &to)),
        }
    }

    fn write_record(&self, record: &ImageRecord) -> Result<(), ImageError> {
        let path = self.record_path(&record.pin.manifest);
        let json = serde_json::to_vec_pretty(record).map_err(|e| ImageError::io("write", &path)(e.into()))?;
        self.write_aside(&path, &json)
    }

    /// Deletes what a killed or failed import left: everything that is being written, and blobs, layers
    /// and bundles that no record names; gives the bytes that they had on disk. The caller holds the lock,
    /// so nobody is at work there.
    pub(super) fn sweep(&self) -> Result<u64, ImageError> {
        let mut freed = 0;
        let records = self.list()?;
        let images = records.iter().map(|r| r.pin.manifest.hex());
        let blobs = records.iter().flat_map(|r| &r.blobs).map(|b| b.digest.hex());
        let layers = records.iter().flat_map(|r| &r.layers).map(|l| l.chain.hex());
        for (dir, kept) in [
            ("tmp", HashSet::new()),
            ("layers", layers.collect()),
            ("bundles", images.collect::<HashSet<_>>()),
            ("blobs/sha256", blobs.collect()),
        ] {
            let dir = self.dir().join(dir);
            for left in std::fs::read_dir(&dir).map_err(ImageError::io("list", &dir))? {
                let left = left.map_err(ImageError::io("list", &dir))?;
                let path = left.path();
                if left.file_name().to_str().is_some_and(|name| kept.contains(name)) {
                    continue;
                }
                freed += gc::disk(&path);
                if left.file_type().is_ok_and(|t| t.is_dir()) {
                    remove_dir(&path)?;
                } else {
                    std::fs::remove_file(&path).map_err(ImageError::io("remove", &path))?;
                }
            }
        }
        Ok(freed)
    }
}

/// What became of unpacking.
struct Made {
    tree: Digest,
    seals: Vec<Seal>,
    disk: u64,
    unpacked: u64,
    layers: Vec<StoredLayer>,
    /// Chain ids of the layers that are new, in the stage.
    fresh: Vec<Digest>,
}

/// A directory that is written aside, deleted with all in it when dropped.
struct Stage {
    dir: PathBuf,
}

impl Stage {
    fn make(store: &Path) -> Result<Self, ImageError> {
        let dir = store.join("tmp").join(fresh_name());
        let blobs = dir.join("blobs/sha256");
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&blobs)
            .map_err(ImageError::io("create", &blobs))?;
        Ok(Self { dir })
    }

    fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Whatever cannot be deleted now is swept by the next import.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
