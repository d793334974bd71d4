//! Two looks at a stored image: [`Store::check`], cheap enough for every start, and
//! [`Store::verify`], which reads all of it.

use super::blob::Blob;
use super::bundle;
use super::error::ImageError;
use super::layers::FS;
use super::record::{ImageRecord, Seal};
use super::reference::Reference;
use super::root::{Root, child, look_at, names};
use super::store::Store;
use super::tree::{self, TREE_FILE, TreeEntry};
use super::unpack::Hashes;
use crate::domain::digest::Digest;
use rustix::fs::{FlockOperation, Stat};
use std::collections::HashSet;
use std::path::Path;

/// Differences that a report lists; it counts the rest.
const LISTED: usize = 100;

/// What [`Store::verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Blobs that were hashed.
    pub blobs: usize,
    /// Files, directories and symlinks that were compared.
    pub entries: usize,
    /// The first 100 differences.
    pub differences: Vec<Difference>,
    /// How many more there are.
    pub more: usize,
}

/// One thing that is not as it was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// A blob's digest, or a path below the store with its directory's id shortened, made printable.
    pub what: String,
    /// How it differs.
    pub problem: String,
}

impl Report {
    /// True if nothing differs.
    pub fn is_sound(&self) -> bool {
        self.differences.is_empty()
    }

    fn add(&mut self, what: &str, problem: String) {
        if self.differences.len() < LISTED {
            self.differences.push(Difference { what: what.to_owned(), problem });
        } else {
            self.more += 1;
        }
    }
}

impl Store {
    /// Hashes every blob of the image and every file of its layers and bundle, and compares types, modes,
    /// owners, link targets and extended attributes with what was unpacked. Reads some hundred megabytes.
    ///
    /// Catches every change of content, but trusts the record itself: whoever can write the store can
    /// write that too. Times are not compared.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], or a bundle that cannot be read. What differs is in the report.
    pub fn verify(&self, reference: &Reference) -> Result<Report, ImageError> {
        let _lock = self.lock(FlockOperation::LockShared)?;
        let record = self.inspect(reference)?;
        self.verify_records(&[record])
    }

    /// [`Store::verify`] of every image of the store; what images share is read once.
    ///
    /// # Errors
    /// As [`Store::verify`].
    pub fn verify_all(&self) -> Result<Report, ImageError> {
        let _lock = self.lock(FlockOperation::LockShared)?;
        self.verify_records(&self.list()?)
    }

    fn verify_records(&self, records: &[ImageRecord]) -> Result<Report, ImageError> {
        let (mut report, mut seen) = (Report::default(), HashSet::new());
        for blob in records.iter().flat_map(ImageRecord::blobs) {
            if seen.insert(blob.digest.clone()) {
                report.blobs += 1;
                if let Err(e) = blob.verify(self.dir()) {
                    report.add(blob.digest.as_str(), e.to_string());
                }
            }
        }
        seen.clear();
        for stored in records.iter().flat_map(|r| &r.layers) {
            if seen.insert(stored.record.clone()) {
                match self.layer(stored) {
                    Ok(layer) => {
                        verify_tree(&self.layer_dir(&stored.chain), &[FS], &layer.tree, &mut report)?;
                    }
                    Err(problem) => report.add(stored.chain.as_str(), problem),
                }
            }
        }
        for record in records {
            let dir = self.bundle_dir(&record.pin.manifest);
            verify_tree(&dir, &[record.top(), "etc"], &record.tree, &mut report)?;
        }
        Ok(report)
    }

    /// A look that is cheap enough for every start (some milliseconds): the records can be read, the
    /// configuration's blob has its digest, and the roots of the layers and of the bundle, everything
    /// directly in them, `etc` and its files have the inodes and change times that they had after the
    /// import.
    ///
    /// Does not catch: a change further down (such as new bytes in `/usr/bin/node`), damaged layer
    /// blobs, or damage on the disk itself. [`Store::verify`] does. A store that was copied elsewhere
    /// fails, as every inode is another.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], or [`ImageError::Changed`] with the first difference.
    pub fn check(&self, reference: &Reference) -> Result<(), ImageError> {
        check_record(self, &self.inspect(reference)?)
    }
}

pub(super) fn check_record(store: &Store, record: &ImageRecord) -> Result<(), ImageError> {
    let changed = |problem: String| ImageError::Changed { image: record.pin.reference.clone(), problem };
    let config: Option<Blob> = record.blobs().find(|b| b.digest == record.pin.config);
    config.ok_or_else(|| changed("its record has no configuration".to_owned()))?.verify(store.dir())?;
    for layer in &record.layers {
        store.check_layer(layer).map_err(changed)?;
    }
    let dir = store.bundle_dir(&record.pin.manifest);
    let found = seals(&dir, &[record.top(), "etc"]).map_err(|e| changed(e.to_string()))?;
    compare_seals(&record.seals, &found).map_err(changed)
}

/// Compares the tree below `dir` with the list that `expected` is the digest of.
fn verify_tree(dir: &Path, tops: &[&str], expected: &Digest, report: &mut Report) -> Result<(), ImageError> {
    let (kind, id) = match (dir.parent().and_then(Path::file_name), dir.file_name()) {
        (Some(kind), Some(id)) => (kind.to_string_lossy(), id.to_string_lossy()),
        _ => return Ok(()),
    };
    let shown = |path: &str| format!("{kind}/{}/{path}", id.get(..12).unwrap_or(&id));
    let path = dir.join(TREE_FILE);
    let json = match std::fs::read(&path) {
        Ok(json) if Digest::of(&json) == *expected => json,
        Ok(_) => {
            report.add(&shown(TREE_FILE), "is not the one that the import wrote".to_owned());
            return Ok(());
        }
        Err(e) => {
            report.add(&shown(TREE_FILE), format!("cannot be read: {e}"));
            return Ok(());
        }
    };
    let stored: Vec<TreeEntry> =
        serde_json::from_slice(&json).map_err(|e| ImageError::Record { path, problem: e.to_string() })?;
    let (found, _) = tree::walk(dir, tops, &Hashes::new())?;
    report.entries += found.len();
    for (path, problem) in tree::differences(&stored, &found) {
        report.add(&shown(path), problem);
    }
    Ok(())
}

/// Compares seals as they were with those found.
///
/// # Errors
/// The first difference, for people.
pub(super) fn compare_seals(stored: &[Seal], found: &[Seal]) -> Result<(), String> {
    if let Some(seal) = stored.iter().find(|seal| !found.contains(seal)) {
        return Err(format!("{} was changed, replaced or removed", seal.path));
    }
    match found.iter().find(|seal| !stored.contains(seal)) {
        Some(seal) => Err(format!("{} was added", seal.path)),
        None => Ok(()),
    }
}

/// The seals of the directories `tops` of a layer or bundle.
pub(super) fn seals(dir: &Path, tops: &[&str]) -> Result<Vec<Seal>, ImageError> {
    let failed = |path: &str| ImageError::errno("stat", &dir.join(path));
    let root = Root::open(dir).map_err(failed(""))?;
    let mut seals = Vec::new();
    for &top in tops {
        let opened = child(root.fd(), top.as_bytes()).map_err(failed(top))?;
        seals.push(seal(top.to_owned(), &rustix::fs::fstat(&opened).map_err(failed(top))?));
        let listed = match top {
            "etc" => bundle::FILES.iter().map(|f| f.as_bytes().to_vec()).collect(),
            _ => names(&opened).map_err(failed(top))?,
        };
        for name in listed {
            let path = format!("{top}/{}", super::error::path_text(&name));
            if let Some(stat) = look_at(&opened, &name).map_err(failed(&path))? {
                seals.push(seal(path, &stat));
            }
        }
    }
    Ok(seals)
}

fn seal(path: String, stat: &Stat) -> Seal {
    let changed = stat.st_ctime.saturating_mul(1_000_000_000).saturating_add_unsigned(stat.st_ctime_nsec);
    Seal { path, inode: stat.st_ino, changed }
}
