//! The image store: a private directory of blobs, records and bundles.
//!
//! ```text
//!  lock                      flock(2): exclusive to change anything, shared to verify
//!  blobs/sha256/<hex>        content by digest
//!  images/<manifest>.json    one record an image; written last, so what has none does not exist
//!  layers/<chain id>/        fs/, tree.json, layer.json: an unpacked layer, shared
//!  bundles/<manifest>/       top/, etc/, tree.json; an image that was unpacked flat has rootfs/ for top/
//!  uses/<hex>-<manifest>.json   a mark for each state directory that needs an image; uses.lock is theirs
//!  default                   the reference that runs use unless told otherwise
//!  tmp/                      whatever is being written; swept by the next import
//! ```

use super::error::ImageError;
use super::layers::FS;
use super::limits::Limits;
use super::record::{FORMATS, ImageRecord};
use super::reference::Reference;
use crate::domain::digest::Digest;
use crate::domain::job::Bundle;
use rustix::fs::FlockOperation;
use std::fs::{DirBuilder, File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Fewest hex digits that name an image by a prefix of its manifest digest.
const PREFIX: usize = 12;
/// Bytes of a record or of the default file.
const RECORD_BYTES: u64 = 1024 * 1024;

/// The store, opened and found private.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    limits: Limits,
    flat: bool,
}

/// The store's lock, held until dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Lock {
    _file: File,
}

impl Store {
    /// Opens the store at `dir`; a missing one is made with mode 0700, its missing parents too.
    ///
    /// # Errors
    /// [`ImageError::UnsafeStore`] if it is a symlink, another user's, or open to group or others.
    pub fn open(dir: &Path) -> Result<Self, ImageError> {
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        if let Err(e) = std::fs::symlink_metadata(dir)
            && e.kind() == ErrorKind::NotFound
        {
            builder.recursive(true).create(dir).map_err(ImageError::io("create", dir))?;
        }
        check_private(dir)?;
        let dir = dir.canonicalize().map_err(ImageError::io("resolve", dir))?;
        for below in ["blobs", "blobs/sha256", "images", "layers", "bundles", "uses", "tmp"] {
            let path = dir.join(below);
            builder.recursive(true).create(&path).map_err(ImageError::io("create", &path))?;
        }
        Ok(Self { dir, limits: Limits::default(), flat: false })
    }

    /// The same store with other bounds for imports.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The same store, which unpacks flat, as where layers cannot be stacked.
    #[must_use]
    pub fn unstacked(self) -> Self {
        Self { flat: true, ..self }
    }

    /// The store's absolute directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// All images, sorted by name, then by manifest digest.
    ///
    /// # Errors
    /// [`ImageError::Record`] for a record that cannot be read; nothing is skipped in silence.
    pub fn list(&self) -> Result<Vec<ImageRecord>, ImageError> {
        let images = self.dir.join("images");
        let mut records = Vec::new();
        for file in std::fs::read_dir(&images).map_err(ImageError::io("list", &images))? {
            let path = file.map_err(ImageError::io("list", &images))?.path();
            if let Some(record) = read_record(&path)? {
                records.push(record);
            }
        }
        records.sort_by(|a, b| (&a.name, &a.pin.manifest).cmp(&(&b.name, &b.pin.manifest)));
        Ok(records)
    }

    /// The image that `reference` means: its name, and the digest of its manifest or of the index it
    /// was imported through.
    ///
    /// # Errors
    /// [`ImageError::NotFound`].
    pub fn inspect(&self, reference: &Reference) -> Result<ImageRecord, ImageError> {
        let direct = self.record(reference.digest())?.filter(|r| r.answers(reference));
        let found = match direct {
            Some(record) => Some(record),
            None => self.list()?.into_iter().find(|r| r.answers(reference)),
        };
        found.ok_or_else(|| self.not_found(&reference.to_string()))
    }

    /// The image that a person names: a whole reference, a manifest digest, or at least 12 hex digits
    /// of one. A name or tag alone is refused, as everywhere.
    ///
    /// # Errors
    /// [`ImageError::Reference`], [`ImageError::NotFound`] or [`ImageError::Ambiguous`].
    pub fn find(&self, text: &str) -> Result<ImageRecord, ImageError> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if digits.len() < PREFIX || !digits.bytes().all(is_hex) {
            return self.inspect(&Reference::parse(text)?);
        }
        let mut found: Vec<_> =
            self.list()?.into_iter().filter(|r| r.pin.manifest.hex().starts_with(digits)).collect();
        match (found.pop(), found.len()) {
            (Some(only), 0) => Ok(only),
            (None, _) => Err(self.not_found(text)),
            (Some(_), others) => Err(ImageError::Ambiguous {
                wanted: text.to_owned(),
                count: others + 1,
                store: self.dir.clone(),
            }),
        }
    }

    /// Makes `reference` the default; it must be in the store.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], or that of writing the file.
    pub fn set_default(&self, reference: &Reference) -> Result<(), ImageError> {
        let _lock = self.lock(FlockOperation::LockExclusive)?;
        self.inspect(reference)?;
        self.write_aside(&self.dir.join("default"), format!("{reference}\n").as_bytes())
    }

    /// The default reference, if one was set.
    ///
    /// # Errors
    /// [`ImageError::Record`] if the file holds no reference.
    pub fn default(&self) -> Result<Option<Reference>, ImageError> {
        let path = self.dir.join("default");
        let Some(text) = read_bounded(&path)? else { return Ok(None) };
        let parsed = Reference::parse(String::from_utf8_lossy(&text).trim_end());
        parsed.map(Some).map_err(|e| ImageError::Record { path, problem: e.to_string() })
    }

    /// The bundle that runs share read-only. Its pin bears `reference` as the operator named it.
    ///
    /// Looks up the record only; [`Store::check`] and [`Store::verify`] look at the bundle.
    ///
    /// # Errors
    /// [`ImageError::NotFound`].
    pub fn bundle(&self, reference: &Reference) -> Result<Bundle, ImageError> {
        let record = self.inspect(reference)?;
        let dir = self.bundle_dir(&record.pin.manifest);
        let layers = record.layers.iter().rev().map(|layer| self.layer_dir(&layer.chain).join(FS));
        let lower = std::iter::once(dir.join(record.top())).chain(layers).collect();
        let mut pin = record.pin;
        pin.reference = reference.to_string();
        pin.index = record.index;
        Ok(Bundle { pin, lower, etc: dir.join("etc") })
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn is_flat(&self) -> bool {
        self.flat
    }

    pub(super) fn record_path(&self, manifest: &Digest) -> PathBuf {
        self.dir.join("images").join(format!("{}.json", manifest.hex()))
    }

    pub(super) fn bundle_dir(&self, manifest: &Digest) -> PathBuf {
        self.dir.join("bundles").join(manifest.hex())
    }

    pub(super) fn record(&self, manifest: &Digest) -> Result<Option<ImageRecord>, ImageError> {
        read_record(&self.record_path(manifest))
    }

    /// Waits for the store's lock.
    pub(super) fn lock(&self, how: FlockOperation) -> Result<Lock, ImageError> {
        self.lock_file("lock", how)
    }

    /// Waits for the lock file `name`.
    pub(super) fn lock_file(&self, name: &str, how: FlockOperation) -> Result<Lock, ImageError> {
        let path = self.dir.join(name);
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(ImageError::io("open", &path))?;
        loop {
            match rustix::fs::flock(&file, how) {
                Err(rustix::io::Errno::INTR) => {}
                other => {
                    other.map_err(ImageError::errno("lock", &path))?;
                    return Ok(Lock { _file: file });
                }
            }
        }
    }

    /// Puts `bytes` at `path` as a whole or not at all. The caller holds the store's lock.
    pub(super) fn write_aside(&self, path: &Path, bytes: &[u8]) -> Result<(), ImageError> {
        self.write_aside_in(&self.dir.join("tmp"), path, bytes)
    }

    /// The same by way of a file in `dir`, which whoever holds the lock of `path` sweeps.
    pub(super) fn write_aside_in(&self, dir: &Path, path: &Path, bytes: &[u8]) -> Result<(), ImageError> {
        let aside = dir.join(fresh_name());
        let written = (|| {
            let mut file = File::create_new(&aside)?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&aside, path)
        })();
        if let Err(e) = written {
            // The first error is the one to tell; the next import sweeps what is left.
            let _ = std::fs::remove_file(&aside);
            return Err(ImageError::io("write", path)(e));
        }
        path.parent().map_or(Ok(()), sync_dir)
    }

    fn not_found(&self, wanted: &str) -> ImageError {
        ImageError::NotFound { wanted: wanted.to_owned(), store: self.dir.clone() }
    }
}

pub(super) fn fresh_name() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

pub(super) fn sync_dir(path: &Path) -> Result<(), ImageError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(ImageError::io("sync", path))
}

/// Removes a directory with all below it; a missing one is no error.
pub(super) fn remove_dir(path: &Path) -> Result<(), ImageError> {
    match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(ImageError::io("remove", path)(e)),
        _ => Ok(()),
    }
}

fn check_private(dir: &Path) -> Result<(), ImageError> {
    let unsafe_store = |problem: String| ImageError::UnsafeStore { path: dir.to_owned(), problem };
    let metadata = std::fs::symlink_metadata(dir).map_err(ImageError::io("stat", dir))?;
    let (caller, mode) = (nix::unistd::geteuid().as_raw(), metadata.mode() & 0o7777);
    if metadata.is_symlink() {
        Err(unsafe_store("is a symlink".to_owned()))
    } else if !metadata.is_dir() {
        Err(unsafe_store("is not a directory".to_owned()))
    } else if metadata.uid() != caller {
        Err(unsafe_store(format!("belongs to uid {}, the caller is uid {caller}", metadata.uid())))
    } else if mode & 0o077 != 0 {
        Err(unsafe_store(format!("has mode {mode:04o}")))
    } else {
        Ok(())
    }
}

pub(super) fn read_bounded(path: &Path) -> Result<Option<Vec<u8>>, ImageError> {
    let file = match File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(ImageError::io("open", path))?,
    };
    let mut bytes = Vec::new();
    file.take(RECORD_BYTES).read_to_end(&mut bytes).map_err(ImageError::io("read", path))?;
    Ok(Some(bytes))
}

fn read_record(path: &Path) -> Result<Option<ImageRecord>, ImageError> {
    #[derive(serde::Deserialize)]
    struct Version {
        format: u32,
    }
    let Some(bytes) = read_bounded(path)? else { return Ok(None) };
    let bad = |problem: String| ImageError::Record { path: path.to_owned(), problem };
    let json = |e: serde_json::Error| bad(format!("is not the record of an image ({e})"));
    let Version { format } = serde_json::from_slice(&bytes).map_err(json)?;
    if !FORMATS.contains(&format) {
        let (from, to) = (FORMATS.start(), FORMATS.end());
        return Err(bad(format!("has format {format}, this version reads {from} to {to}")));
    }
    let record: ImageRecord = serde_json::from_slice(&bytes).map_err(json)?;
    let own = format!("{}.json", record.pin.manifest.hex());
    if path.file_name().is_some_and(|name| name == own.as_str()) {
        Ok(Some(record))
    } else {
        Err(bad(format!("is the record of {}", record.pin.manifest)))
    }
}
