//! Two looks at a stored image: [`Store::check`], cheap enough for every start, and
//! [`Store::verify`], which reads all of it.

use super::blob::Blob;
use super::bundle;
use super::error::ImageError;
use super::record::{ImageRecord, Seal};
use super::reference::Reference;
use super::root::{Root, child, look_at, names};
use super::store::Store;
use super::tree::{self, TreeEntry};
use super::unpack::Hashes;
use crate::domain::digest::Digest;
use rustix::fs::{FlockOperation, Stat};
use std::path::Path;

/// Differences that a report lists; it counts the rest.
const LISTED: usize = 100;

/// What [`Store::verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Blobs that were hashed.
    pub blobs: usize,
    /// Files, directories and symlinks of the bundle that were compared.
    pub entries: usize,
    /// The first 100 differences.
    pub differences: Vec<Difference>,
    /// How many more there are.
    pub more: usize,
}

/// One thing that is not as it was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// A blob's digest, or a path below the bundle, made printable.
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
    /// Hashes every blob of the image and every file of its bundle, and compares types, modes,
    /// owners and link targets with what was unpacked. Reads some hundred megabytes.
    ///
    /// Catches every change of content, but trusts the record itself: whoever can write the store can
    /// write that too. Times are not compared.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], or a bundle that cannot be read. What differs is in the report.
    pub fn verify(&self, reference: &Reference) -> Result<Report, ImageError> {
        let _lock = self.lock(FlockOperation::LockShared)?;
        let record = self.inspect(reference)?;
        let mut report = Report::default();
        for blob in record.blobs() {
            report.blobs += 1;
            if let Err(e) = blob.verify(self.dir()) {
                report.add(blob.digest.as_str(), e.to_string());
            }
        }
        let dir = self.bundle_dir(&record.pin.manifest);
        let path = dir.join("tree.json");
        let json = match std::fs::read(&path) {
            Ok(json) if Digest::of(&json) == record.tree => json,
            Ok(_) => {
                report.add("tree.json", "is not the one that the import wrote".to_owned());
                return Ok(report);
            }
            Err(e) => {
                report.add("tree.json", format!("cannot be read: {e}"));
                return Ok(report);
            }
        };
        let stored: Vec<TreeEntry> =
            serde_json::from_slice(&json).map_err(|e| ImageError::Record { path, problem: e.to_string() })?;
        let found = tree::walk(&dir, &["rootfs", "etc"], &Hashes::new())?;
        report.entries = found.len();
        for (path, problem) in tree::differences(&stored, &found) {
            report.add(path, problem);
        }
        Ok(report)
    }

    /// A look that is cheap enough for every start (some milliseconds): the record can be read, the
    /// configuration's blob has its digest, and `rootfs`, everything directly in it, `etc` and its
    /// files have the inodes and change times that they had after the import.
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
    let found = seals(&store.bundle_dir(&record.pin.manifest)).map_err(|e| changed(e.to_string()))?;
    let differs = |seal: &&Seal| !found.contains(seal);
    if let Some(seal) = record.seals.iter().find(differs) {
        return Err(changed(format!("{} was changed, replaced or removed", seal.path)));
    }
    match found.iter().find(|seal| !record.seals.contains(seal)) {
        Some(seal) => Err(changed(format!("{} was added", seal.path))),
        None => Ok(()),
    }
}

/// The seals of a published bundle.
pub(super) fn seals(dir: &Path) -> Result<Vec<Seal>, ImageError> {
    let failed = |path: &str| ImageError::errno("stat", &dir.join(path));
    let root = Root::open(dir).map_err(failed(""))?;
    let mut seals = Vec::new();
    for top in ["rootfs", "etc"] {
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
