//! The bytes of published files, read beneath the descriptor of their root and checked against the
//! manifest (WS.4, WS.6).

use super::{beneath, hashing};
use crate::domain::manifest::FileEntry;
use crate::domain::relpath::RelPath;
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A published root that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the workspace root {} cannot be opened: {source}", path.display())]
pub struct ContentsError {
    /// The root.
    pub path: PathBuf,
    /// The system's error.
    pub source: std::io::Error,
}

/// Reads each of `wanted` below `root`, in order; `None` for one that is not there as published, because
/// an editor wrote into the directory. Whatever is raced or swapped meanwhile, the bytes given are those
/// of the entry's digest.
///
/// # Errors
/// [`ContentsError`].
pub fn contents(root: &Path, wanted: &[&FileEntry]) -> Result<Vec<Option<Vec<u8>>>, ContentsError> {
    let unopened = |source| ContentsError { path: root.to_owned(), source };
    let (Some(parent), Some(name)) = (root.parent(), root.file_name()) else {
        return Err(unopened(Errno::INVAL.into()));
    };
    // The last component is ours and never a symlink; those above belong to the operator.
    let path = parent.canonicalize().map_err(unopened)?.join(name);
    let root = beneath::root(&path).map_err(|errno| unopened(errno.into()))?;
    let mut below = Below::of(root.as_fd());
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
    let checked = wanted.iter().zip(present).zip(digests);
    let checked = checked.map(|((entry, bytes), digest)| {
        (entry.length == bytes.len() as u64 && entry.content == digest).then_some(bytes)
    });
    Ok(checked.collect())
}

/// True for an error that says nothing about the file.
fn is_ours(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO | Errno::NOSYS)
}

/// An open root, and the open directories on the way to the file that was read last.
pub(super) struct Below<'a> {
    root: BorrowedFd<'a>,
    open: Vec<(String, OwnedFd)>,
}

impl<'a> Below<'a> {
    pub(super) fn of(root: BorrowedFd<'a>) -> Self {
        Self { root, open: Vec::new() }
    }

    /// Opens a file for reading; it may be anything.
    pub(super) fn file(&mut self, path: &RelPath) -> Result<OwnedFd, Errno> {
        let (directory, name) = split(path);
        beneath::file(self.directory(directory)?, name)
    }

    /// What lies under the name of `path`, not followed.
    pub(super) fn stat(&mut self, path: &RelPath) -> Result<Stat, Errno> {
        let (directory, name) = split(path);
        rustix::fs::statat(self.directory(directory)?, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Gives at most one byte more than the entry has; `None` for what is no regular file.
    fn read(&mut self, entry: &FileEntry) -> Result<Option<Vec<u8>>, Errno> {
        let file = self.file(&entry.path)?;
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

    fn directory(&mut self, path: &str) -> Result<BorrowedFd<'_>, Errno> {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let shared = self.open.iter().zip(&names).take_while(|((open, _), name)| open == *name).count();
        self.open.truncate(shared);
        for name in names.get(shared..).unwrap_or_default() {
            let parent = self.open.last().map_or(self.root, |(_, fd)| fd.as_fd());
            let opened = beneath::directory(parent, name)?;
            self.open.push(((*name).to_owned(), opened));
        }
        Ok(self.open.last().map_or(self.root, |(_, fd)| fd.as_fd()))
    }
}

/// The directory of a path, and its last name.
fn split(path: &RelPath) -> (&str, &str) {
    path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()))
}
