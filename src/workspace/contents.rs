//! The bytes of published files, read beneath the descriptor of their root and checked against the
//! manifest (WS.4, WS.6).

use super::{beneath, hashing};
use crate::domain::manifest::FileEntry;
use crate::domain::relpath::RelPath;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// Why the bytes of a published root could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// The root cannot be opened.
    #[error("the workspace root {} cannot be opened: {source}", path.display())]
    Root {
        /// The root.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Files are not there, or not as published: an editor wrote into the directory.
    #[error("{} no longer holds {} of its files as published", path.display(), files.len())]
    Changed {
        /// The root.
        path: PathBuf,
        /// Which files, in the order asked for.
        files: Vec<RelPath>,
    },
}

/// Reads each of `wanted` below `root`, in order. Whatever is raced or swapped meanwhile, the bytes
/// given are those of the entry's digest.
///
/// # Errors
/// [`ContentsError`].
pub fn contents(root: &Path, wanted: &[&FileEntry]) -> Result<Vec<Vec<u8>>, ContentsError> {
    let unopened = |source| ContentsError::Root { path: root.to_owned(), source };
    let (Some(parent), Some(name)) = (root.parent(), root.file_name()) else {
        return Err(unopened(Errno::INVAL.into()));
    };
    // The last component is ours and never a symlink; those above belong to the operator.
    let path = parent.canonicalize().map_err(unopened)?.join(name);
    let mut below =
        Below { root: beneath::root(&path).map_err(|errno| unopened(errno.into()))?, open: Vec::new() };
    let mut read = Vec::with_capacity(wanted.len());
    for entry in wanted {
        match below.read(entry) {
            Ok(bytes) => read.push(bytes),
            Err(errno) if is_ours(errno) => return Err(unopened(errno.into())),
            // Nothing has the digest of a published file but its own content.
            Err(_) => read.push(None),
        }
    }
    let present: Vec<Vec<u8>> = read.iter_mut().map(|bytes| bytes.take().unwrap_or_default()).collect();
    let digests = hashing::hash_all(&present);
    let off =
        wanted.iter().zip(&present).zip(&digests).filter(|((entry, bytes), digest)| {
            entry.length != bytes.len() as u64 || entry.content != **digest
        });
    let files: Vec<RelPath> = off.map(|((entry, _), _)| entry.path.clone()).collect();
    if files.is_empty() { Ok(present) } else { Err(ContentsError::Changed { path, files }) }
}

/// True for an error that says nothing about the file.
fn is_ours(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO | Errno::NOSYS)
}

/// An open root, and the open directories on the way to the file that was read last.
struct Below {
    root: OwnedFd,
    open: Vec<(String, OwnedFd)>,
}

impl Below {
    /// Gives at most one byte more than the entry has; `None` for what is no regular file.
    fn read(&mut self, entry: &FileEntry) -> Result<Option<Vec<u8>>, Errno> {
        let path = entry.path.as_str();
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let file = beneath::file(self.directory(directory)?.as_fd(), name)?;
        if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let most = usize::try_from(entry.length).unwrap_or(usize::MAX).saturating_add(1);
        let mut buffer = vec![0; most];
        let mut filled = 0;
        while filled < most {
            match rustix::io::read(&file, buffer.get_mut(filled..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        buffer.truncate(filled);
        Ok(Some(buffer))
    }

    fn directory(&mut self, path: &str) -> Result<&OwnedFd, Errno> {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let shared = self.open.iter().zip(&names).take_while(|((open, _), name)| open == *name).count();
        self.open.truncate(shared);
        for name in names.get(shared..).unwrap_or_default() {
            let parent = self.open.last().map_or(&self.root, |(_, fd)| fd);
            let opened = beneath::directory(parent.as_fd(), name)?;
            self.open.push(((*name).to_owned(), opened));
        }
        Ok(self.open.last().map_or(&self.root, |(_, fd)| fd))
    }
}
