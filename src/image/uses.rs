//! Who uses an image: a mark for each state directory whose service, runs or proof need it, so that no
//! other process removes it under them.
//!
//! A mark outlives its service, because runs do. Whether its state directory is still busy is the
//! caller's to say: a mark of one that is not is forgotten.

use super::error::ImageError;
use super::reference::Reference;
use super::store::{Lock, Store, read_bounded};
use crate::domain::digest::Digest;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Format version of [`Use`].
const FORMAT: u32 = 1;
/// File name of the lock of the marks. Not the store's own: a service must not wait for an import.
const LOCK: &str = "uses.lock";

/// A mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    format: u32,
    /// Absolute path of the state directory.
    pub state: PathBuf,
    /// Digest of the image's manifest.
    pub manifest: Digest,
}

impl Store {
    /// Marks the image as used by the state directory `state`, durably. `alone` forgets its other marks:
    /// nothing of it needs another image.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], or that of writing the mark.
    pub fn mark(&self, state: &Path, reference: &Reference, alone: bool) -> Result<(), ImageError> {
        let manifest = self.inspect(reference)?.pin.manifest;
        let _lock = match self.lock_uses() {
            // Nobody removes an image by way of a mount that is read-only.
            Err(ImageError::Io { source, .. }) if source.kind() == ErrorKind::ReadOnlyFilesystem => {
                return Ok(());
            }
            other => other?,
        };
        // Looked up again: it may have been removed while this waited.
        self.inspect(reference)?;
        if alone {
            self.drop_uses(|used| used.state == state && used.manifest != manifest)?;
        }
        let place = Digest::of(state.as_os_str().as_encoded_bytes());
        let path = self.uses_dir().join(format!("{}-{}.json", place.hex(), manifest.hex()));
        let used = Use { format: FORMAT, state: state.to_owned(), manifest };
        if read_use(&path)?.is_some_and(|there| there == used) {
            return Ok(());
        }
        let json = serde_json::to_vec(&used).map_err(|e| ImageError::io("write", &path)(e.into()))?;
        self.write_aside_in(&self.uses_dir(), &path, &json)
    }

    /// All marks.
    ///
    /// # Errors
    /// [`ImageError::Record`] for one that cannot be read.
    pub fn uses(&self) -> Result<Vec<Use>, ImageError> {
        let dir = self.uses_dir();
        let mut uses = Vec::new();
        for file in std::fs::read_dir(&dir).map_err(ImageError::io("list", &dir))? {
            let path = file.map_err(ImageError::io("list", &dir))?.path();
            // Others are being written.
            if path.extension().is_some_and(|e| e == "json") {
                uses.extend(read_use(&path)?);
            }
        }
        Ok(uses)
    }

    /// Forgets the marks of state directories that are not `busy`.
    ///
    /// # Errors
    /// As [`Store::uses`], or that of the removal.
    pub fn forget_uses(&self, busy: &dyn Fn(&Path) -> bool) -> Result<(), ImageError> {
        let _lock = self.lock_uses()?;
        self.drop_uses(|used| !busy(&used.state))
    }

    pub(super) fn lock_uses(&self) -> Result<Lock, ImageError> {
        self.lock_file(LOCK, FlockOperation::LockExclusive)
    }

    fn uses_dir(&self) -> PathBuf {
        self.dir().join("uses")
    }

    fn drop_uses(&self, dropped: impl Fn(&Use) -> bool) -> Result<(), ImageError> {
        let dir = self.uses_dir();
        for file in std::fs::read_dir(&dir).map_err(ImageError::io("list", &dir))? {
            let path = file.map_err(ImageError::io("list", &dir))?.path();
            let partial = path.extension().is_none_or(|e| e != "json");
            if partial || read_use(&path)?.is_some_and(|used| dropped(&used)) {
                std::fs::remove_file(&path).map_err(ImageError::io("remove", &path))?;
            }
        }
        Ok(())
    }
}

fn read_use(path: &Path) -> Result<Option<Use>, ImageError> {
    let Some(bytes) = read_bounded(path)? else { return Ok(None) };
    let bad = |problem: String| ImageError::Record { path: path.to_owned(), problem };
    let used: Use = serde_json::from_slice(&bytes).map_err(|e| bad(format!("is not a mark of use ({e})")))?;
    match used.format {
        FORMAT => Ok(Some(used)),
        other => Err(bad(format!("has format {other}, this version reads {FORMAT}"))),
    }
}
