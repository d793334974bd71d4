//! Reading files of a published revision, and nothing else than what was published (FT.1).
//!
//! Names are opened one at a time beneath the revision's directory, as in a walk, and what was read is
//! held against the manifest: what an editor left there is never shown as the revision's content.

use super::contents::Below;
use super::observe::{self, ObserveError};
use super::policy::printable;
use crate::domain::digest::Digest;
use crate::domain::manifest::FileEntry;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::relpath::RelPath;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

/// Half as many bytes are not worth a thread.
const SMALL: u64 = 64 << 10;

/// Reads `files` of the revision in `root`; each by itself is its content, or why it is not to be had.
///
/// # Errors
/// [`ObserveError`] when `root` itself cannot be opened.
pub fn read(root: &Path, files: &[FileEntry]) -> Result<Vec<Result<Vec<u8>, Refusal>>, ObserveError> {
    let root = observe::open(root)?;
    Ok(verified(root.as_fd(), files).into_iter().map(|one| one.map(|(content, _)| content)).collect())
}

/// A content, and what fstat(2) said of its file before it was read.
pub(super) type Verified = Result<(Vec<u8>, Stat), Refusal>;

/// [`read`] below an open root, by two threads where that is worth it.
pub(super) fn verified(root: BorrowedFd<'_>, files: &[FileEntry]) -> Vec<Verified> {
    let one = |files: &[FileEntry]| -> Vec<Verified> {
        let mut below = Below::of(root);
        files.iter().map(|file| checked(&mut below, file)).collect()
    };
    let half = files.iter().map(|file| file.length).sum::<u64>() / 2;
    let alone = std::thread::available_parallelism().is_ok_and(|threads| threads.get() < 2);
    if alone || half < SMALL || files.len() < 2 {
        return one(files);
    }
    let mut bytes = 0;
    let middle = files.iter().position(|file| {
        bytes += file.length;
        bytes >= half
    });
    let (front, back) = files.split_at(middle.map_or(1, |at| (at + 1).min(files.len() - 1)));
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new().spawn_scoped(scope, || one(back));
        let mut all = one(front);
        // Where no thread can be had, this one does the work of both.
        all.extend(other.ok().and_then(|thread| thread.join().ok()).unwrap_or_else(|| one(back)));
        all
    })
}

fn checked(below: &mut Below<'_>, file: &FileEntry) -> Verified {
    match content(below, file) {
        Ok(content) if Digest::of(&content.0) == file.content => Ok(content),
        Ok(_) => Err(changed(&file.path, "it holds something else")),
        Err(why) => Err(changed(&file.path, &why)),
    }
}

/// [`read`] for one file.
///
/// # Errors
/// `workspace_changed`, naming the file or the root.
pub fn read_one(root: &Path, file: &FileEntry) -> Result<Vec<u8>, Refusal> {
    let mut all = read(root, std::slice::from_ref(file)).map_err(|e| Refusal::from(&e))?;
    all.pop().unwrap_or_else(|| Err(changed(&file.path, "it could not be read")))
}

/// Reads a file if it is a regular one of the published length.
fn content(below: &mut Below<'_>, file: &FileEntry) -> Result<(Vec<u8>, Stat), String> {
    let said = |errno: Errno| match errno {
        Errno::LOOP | Errno::NOTDIR => "a name of its path is a symlink or no directory".to_owned(),
        Errno::NOENT => "it is not there".to_owned(),
        other => std::io::Error::from(other).to_string(),
    };
    let fd = below.file(&file.path).map_err(said)?;
    let stat = rustix::fs::fstat(&fd).map_err(said)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("it is no regular file".to_owned());
    }
    let length = usize::try_from(file.length).unwrap_or(usize::MAX);
    if u64::try_from(stat.st_size) != Ok(file.length) {
        return Err(format!("it has {} bytes; {length} were published", stat.st_size));
    }
    // The length is that of the manifest, which the limits bound. One byte more shows a file that grows.
    let mut buffer = vec![0u8; length + 1];
    let mut filled = 0;
    loop {
        match rustix::io::read(&fd, &mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(said(errno)),
        }
    }
    buffer.truncate(filled);
    Ok((buffer, stat))
}

pub(super) fn changed(path: &RelPath, why: &str) -> Refusal {
    Refusal::new(
        Code::WorkspaceChanged,
        format!("'{}' was changed in the workspace's directory: {why}", printable(path.as_str().as_bytes())),
        "`sal workspace inspect` shows every such change; undo it there, or adopt it with `sal workspace refresh`",
    )
}
