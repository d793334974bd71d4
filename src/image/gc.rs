//! What images cost on disk, and giving it back: removal of an image, and of what no image needs.

use super::error::ImageError;
use super::record::ImageRecord;
use super::reference::Reference;
use super::store::{Store, sync_dir};
use crate::domain::digest::Digest;
use rustix::fs::FlockOperation;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes on disk of an image: blobs, unpacked layers and its bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// What its removal gives back.
    pub own: u64,
    /// What other images have too.
    pub shared: u64,
}

/// What was given back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// References of the images that were removed.
    pub images: Vec<String>,
    /// Bytes on disk.
    pub bytes: u64,
}

impl Store {
    /// What each image costs, by the digest of its manifest, and what all of them cost together.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub fn usage(&self) -> Result<(HashMap<Digest, Usage>, u64), ImageError> {
        let records = self.list()?;
        let mut holders: HashMap<Digest, usize> = HashMap::new();
        let parts = |record: &ImageRecord| -> HashMap<Digest, u64> {
            let layers = record.layers.iter().filter_map(|l| {
                // One that cannot be read costs nothing here; `verify` says what is wrong with it.
                self.layer(l).ok().map(|layer| (l.record.clone(), layer.disk))
            });
            record.blobs.iter().map(|b| (b.digest.clone(), b.size)).chain(layers).collect()
        };
        let parts: Vec<(ImageRecord, HashMap<Digest, u64>)> = records
            .into_iter()
            .map(|r| {
                let p = parts(&r);
                (r, p)
            })
            .collect();
        for part in parts.iter().flat_map(|(_, p)| p.keys()) {
            *holders.entry(part.clone()).or_default() += 1;
        }
        let (mut all, mut out) = (HashMap::new(), HashMap::new());
        let mut total = 0;
        for (record, parts) in parts {
            let own = record.bundle_disk.unwrap_or(record.unpacked);
            let mut usage = Usage { own, shared: 0 };
            total += own;
            for (part, bytes) in parts {
                match holders.get(&part) {
                    Some(1) => usage.own += bytes,
                    _ => usage.shared += bytes,
                }
                if all.insert(part, ()).is_none() {
                    total += bytes;
                }
            }
            out.insert(record.pin.manifest, usage);
        }
        Ok((out, total))
    }

    /// Removes an image: its record first, then its bundle, and the layers and blobs that no other image
    /// has. A default that named it stays and finds nothing.
    ///
    /// # Errors
    /// [`ImageError::NotFound`]; [`ImageError::InUse`] while a mark names it; or that of the removal: the
    /// image is gone once its record is.
    pub fn remove(&self, reference: &Reference) -> Result<u64, ImageError> {
        let _lock = self.lock(FlockOperation::LockExclusive)?;
        let uses = self.lock_uses()?;
        self.remove_record(&self.inspect(reference)?)?;
        drop(uses);
        self.sweep()
    }

    /// Removes what no image needs: what broken imports left, and with `unused` also each image that no
    /// mark names and that `keep` does not hold.
    ///
    /// # Errors
    /// As [`Store::list`], or that of the removal.
    pub fn gc(&self, unused: bool, keep: &dyn Fn(&ImageRecord) -> bool) -> Result<Freed, ImageError> {
        let _lock = self.lock(FlockOperation::LockExclusive)?;
        let mut images = Vec::new();
        if unused {
            let _uses = self.lock_uses()?;
            for record in self.list()?.iter().filter(|record| !keep(record)) {
                match self.remove_record(record) {
                    Ok(()) => images.push(record.pin.reference.clone()),
                    Err(ImageError::InUse { .. }) => {}
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(Freed { images, bytes: self.sweep()? })
    }

    /// The caller holds both locks.
    fn remove_record(&self, record: &ImageRecord) -> Result<(), ImageError> {
        if let Some(used) = self.uses()?.into_iter().find(|used| used.manifest == record.pin.manifest) {
            return Err(ImageError::InUse { image: record.pin.reference.clone(), by: used.state });
        }
        let path = self.record_path(&record.pin.manifest);
        std::fs::remove_file(&path).map_err(ImageError::io("remove", &path))?;
        sync_dir(&self.dir().join("images"))
    }
}

/// Bytes on disk of `path` and all below it, as far as it can be read.
pub(super) fn disk(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    let own = metadata.blocks() * 512;
    match std::fs::read_dir(path) {
        Ok(below) if metadata.is_dir() => own + below.flatten().map(|e| disk(&e.path())).sum::<u64>(),
        _ => own,
    }
}
