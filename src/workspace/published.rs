//! Reading files of a published revision, and nothing else than what was published (FT.1).
//!
//! Names are opened one at a time beneath the revision's directory, as in a walk, and what was read is
//! held against the manifest: what an editor left there is never shown as the revision's content.

use super::beneath;
use super::hashing;
use super::observe::{self, ObserveError};
use super::policy::printable;
use crate::domain::manifest::FileEntry;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::relpath::RelPath;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

/// Reads `files` of the revision in `root`; each by itself is its content, or why it is not to be had.
///
/// # Errors
/// [`ObserveError`] when `root` itself cannot be opened.
pub fn read(root: &Path, files: &[FileEntry]) -> Result<Vec<Result<Vec<u8>, Refusal>>, ObserveError> {
    let root = observe::open(root)?;
    let raw: Vec<_> = files.iter().map(|file| content(&root, file)).collect();
    let had: Vec<&[u8]> = raw.iter().flatten().map(Vec::as_slice).collect();
    let mut digests = hashing::hash_all(&had).into_iter();
    let verified = files.iter().zip(raw).map(|(file, content)| match content {
        Ok(content) if digests.next().is_some_and(|digest| digest == file.content) => Ok(content),
        Ok(_) => Err(changed(&file.path, "it holds something else")),
        Err(why) => Err(changed(&file.path, &why)),
    });
    Ok(verified.collect())
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
fn content(root: &OwnedFd, file: &FileEntry) -> Result<Vec<u8>, String> {
    let said = |errno: Errno| match errno {
        Errno::LOOP | Errno::NOTDIR => "a name of its path is a symlink or no directory".to_owned(),
        Errno::NOENT => "it is not there".to_owned(),
        other => std::io::Error::from(other).to_string(),
    };
    let fd = open(root, &file.path).map_err(said)?;
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
    Ok(buffer)
}

fn open(root: &OwnedFd, path: &RelPath) -> Result<OwnedFd, Errno> {
    let mut names = path.as_str().split('/');
    let last = names.next_back().unwrap_or_default();
    let mut at: Option<OwnedFd> = None;
    for name in names {
        at = Some(beneath::directory(at.as_ref().unwrap_or(root).as_fd(), name)?);
    }
    beneath::file(at.as_ref().unwrap_or(root).as_fd(), last)
}

fn changed(path: &RelPath, why: &str) -> Refusal {
    Refusal::new(
        Code::WorkspaceChanged,
        format!("'{}' was changed in the workspace's directory: {why}", printable(path.as_str().as_bytes())),
        "`sal workspace inspect` shows every such change; undo it there, or adopt it with `sal workspace refresh`",
    )
}
