//! Pulls an image: documents first, then the layers that are missing, then into the store.

use super::super::blob::Blob;
use super::super::error::ImageError;
use super::super::record::ImageRecord;
use super::super::reference::Reference;
use super::super::resolve::{self, Kind, Resolved};
use super::super::source::Blobs;
use super::super::store::Store;
use super::super::verify;
use super::access::{Access, Progress};
use super::kind::media_type;
use super::sources::{Line, Sources};
use crate::domain::digest::Digest;
use rustix::fs::FlockOperation;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Layers that are downloaded at a time.
const AT_ONCE: usize = 4;
/// How long the rest of a broken pull is kept for its next attempt.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What a pull did.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// The image.
    pub image: ImageRecord,
    /// Layers that were downloaded.
    pub layers: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Store {
    /// Pulls the image that `reference` names from its registry, unless it is here.
    ///
    /// A pull that was broken off leaves what it has under `partial/` of the store, and the next one goes
    /// on from there. Pulls into one store go one after the other.
    ///
    /// # Errors
    /// [`ImageError::Registry`], [`ImageError::Logins`] or [`ImageError::Helper`] for what is wrong outside;
    /// else as an import. Nothing unverified is in the store afterwards.
    pub fn pull(
        &self,
        reference: &Reference,
        access: &Access,
        progress: &dyn Progress,
    ) -> Result<Pulled, ImageError> {
        if let Some(here) = self.here(reference)? {
            return Ok(here);
        }
        let partial = Partial::open(self.dir(), progress)?;
        // Another pull may have brought it meanwhile.
        if let Some(here) = self.here(reference)? {
            return Ok(here);
        }
        let sources = Sources::new(reference, access, progress)?;
        let line = sources.line()?;
        let limit = self.limits().document_bytes;
        let top = line.manifest(reference.digest(), limit)?;
        let blob = Blob { digest: reference.digest().clone(), size: top.bytes.len() as u64 };
        let kind = media_type(&top.bytes, &top.media_type)
            .map_err(|problem| ImageError::Document { blob: blob.digest.clone(), problem })?;
        let descriptor = resolve::descriptor(kind, &blob.digest, blob.size)?;
        let documents = RefCell::new(HashMap::from([(blob.digest, top.bytes)]));
        let name = match reference.tag() {
            Some(tag) => format!("{}:{tag}", reference.name()),
            None => reference.name().to_owned(),
        };
        let resolved = resolve::resolve(&[descriptor], Some(&name), self.limits(), &|kind, blob| {
            if let Some(known) = documents.borrow().get(&blob.digest) {
                return Ok(known.clone());
            }
            let bytes = match kind {
                Kind::Configuration => line.blob(blob)?,
                Kind::Index | Kind::Manifest => {
                    let bytes = line.manifest(&blob.digest, blob.size)?.bytes;
                    if bytes.len() as u64 != blob.size {
                        let (blob, expected) = (blob.digest.clone(), blob.size);
                        let path = PathBuf::from(reference.name());
                        return Err(ImageError::BlobSize { blob, path, expected, found: bytes.len() as u64 });
                    }
                    bytes
                }
            };
            documents.borrow_mut().insert(blob.digest.clone(), bytes.clone());
            Ok(bytes)
        })?;
        let missing = self.missing(&resolved)?;
        partial.sweep(&missing)?;
        download(&sources, &missing, &partial)?;
        progress.unpacking();
        let fetched = Fetched {
            documents: documents.into_inner(),
            partial: &partial,
            store: self,
            line: Mutex::new(line),
        };
        let image = self.admit(&resolved, &fetched)?;
        let bytes = missing.iter().map(|b| b.size).sum();
        let layers = missing.len();
        // A layer that the store had no use for.
        partial.remove(&missing);
        Ok(Pulled { image, layers, bytes })
    }

    /// The image, if it is here and looks unchanged.
    fn here(&self, reference: &Reference) -> Result<Option<Pulled>, ImageError> {
        match self.inspect(reference) {
            Ok(image) => {
                verify::check_record(self, &image)?;
                Ok(Some(Pulled { image, layers: 0, bytes: 0 }))
            }
            Err(ImageError::NotFound { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// The layers that have to be downloaded, each once.
    fn missing<'r>(&self, resolved: &'r Resolved) -> Result<Vec<&'r Blob>, ImageError> {
        if self.record(&resolved.manifest.digest)?.is_some() {
            return Ok(Vec::new());
        }
        let is_layer = |blob: &Blob| resolved.layers.iter().any(|layer| layer.blob == *blob);
        let here = |blob: &Blob| std::fs::metadata(blob.path(self.dir())).is_ok_and(|m| m.len() == blob.size);
        Ok(resolved.blobs().filter(|blob| is_layer(blob) && !here(blob)).collect())
    }
}

/// Downloads the blobs, some at a time; the first error ends all.
fn download(sources: &Sources<'_>, blobs: &[&Blob], partial: &Partial) -> Result<(), ImageError> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let first_error = Mutex::new(None);
    let work = || -> Result<(), ImageError> {
        let line = sources.line()?;
        while !stop.load(Ordering::Relaxed) {
            let Some(blob) = blobs.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            line.download(blob, &partial.path(blob), &stop)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for _ in 0..blobs.len().min(AT_ONCE) {
            let started = std::thread::Builder::new().name("download".to_owned()).spawn_scoped(scope, || {
                if let Err(error) = work() {
                    stop.store(true, Ordering::Relaxed);
                    first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            });
            started.map_err(ImageError::io("start a thread for", Path::new("a download")))?;
        }
        Ok::<(), ImageError>(())
    })?;
    first_error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// `partial/` of the store: what is being downloaded, by digest. Its lock is held.
struct Partial {
    dir: PathBuf,
    _lock: File,
}

impl Partial {
    fn open(store: &Path, progress: &dyn Progress) -> Result<Self, ImageError> {
        let dir = store.join("partial");
        DirBuilder::new().mode(0o700).recursive(true).create(&dir).map_err(ImageError::io("create", &dir))?;
        let path = dir.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(ImageError::io("open", &path))?;
        let mut how = FlockOperation::NonBlockingLockExclusive;
        loop {
            match rustix::fs::flock(&lock, how) {
                Ok(()) => return Ok(Self { dir, _lock: lock }),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    progress.note("another pull is at work in this store; waiting for its end");
                    how = FlockOperation::LockExclusive;
                }
                Err(errno) => return Err(ImageError::errno("lock", &path)(errno)),
            }
        }
    }

    fn path(&self, blob: &Blob) -> PathBuf {
        self.dir.join(blob.digest.hex())
    }

    /// Removes what nobody came back for.
    fn sweep(&self, wanted: &[&Blob]) -> Result<(), ImageError> {
        let now = SystemTime::now();
        for file in std::fs::read_dir(&self.dir).map_err(ImageError::io("list", &self.dir))? {
            let file = file.map_err(ImageError::io("list", &self.dir))?;
            let name = file.file_name();
            let kept = name == "lock" || wanted.iter().any(|blob| name == blob.digest.hex());
            let modified = file.metadata().and_then(|m| m.modified());
            let old = modified.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > KEPT));
            if old && !kept {
                std::fs::remove_file(file.path()).map_err(ImageError::io("remove", &file.path()))?;
            }
        }
        Ok(())
    }

    fn remove(&self, blobs: &[&Blob]) {
        for blob in blobs {
            // Most are gone: moved into the store. One that stays is swept when it is old.
            let _ = std::fs::remove_file(self.path(blob));
        }
    }
}

/// What a pull has brought, as the store takes it.
struct Fetched<'a> {
    documents: HashMap<Digest, Vec<u8>>,
    partial: &'a Partial,
    store: &'a Store,
    line: Mutex<Line<'a>>,
}

impl Blobs for Fetched<'_> {
    fn fetch(&self, blob: &Blob, to: &Path) -> Result<(), ImageError> {
        if let Some(bytes) = self.documents.get(&blob.digest) {
            let write = File::create_new(to).and_then(|mut file| file.write_all(bytes));
            return write.map_err(ImageError::io("write", to));
        }
        let partial = self.partial.path(blob);
        if !std::fs::exists(&partial).map_err(ImageError::io("stat", &partial))? {
            // It was in the store. Should it be gone or damaged there, it is downloaded after all.
            if blob.copy(self.store.dir(), to).is_ok() {
                return Ok(());
            }
            let _ = std::fs::remove_file(to);
            let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
            line.download(blob, &partial, &AtomicBool::new(false))?;
        }
        std::fs::rename(&partial, to).map_err(ImageError::io("move", &partial))
    }
}
