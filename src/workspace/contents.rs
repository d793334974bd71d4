//! The bytes of published files, read beneath the descriptor of their root and checked against the
//! manifest (WS.4, WS.6): what an editor left there is never taken for a revision's content.

use super::beneath::{self, Stack, is_ours, whole};
use super::hashing;
use super::observe::ObserveError;
use crate::domain::manifest::FileEntry;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::os::fd::AsFd as _;
use std::path::Path;

/// Reads each of `wanted` below `root`, in order; `None` for one that is not there as published, because
/// an editor wrote into the directory. Whatever is raced or swapped meanwhile, the bytes given are those
/// of the entry's digest.
///
/// # Errors
/// [`ObserveError`].
pub fn contents(root: &Path, wanted: &[&FileEntry]) -> Result<Vec<Option<Vec<u8>>>, ObserveError> {
    Ok(each(root, wanted)?.into_iter().map(|one| one.ok().map(|(content, _)| content)).collect())
}

/// A content, and what fstat(2) said of its file before it was read; or why it is not to be had.
pub(super) type Read = Result<(Vec<u8>, Stat), String>;

/// Reads each of `wanted` below `root`: its published bytes, or why they are not there.
///
/// # Errors
/// [`ObserveError`].
pub(super) fn each(root: &Path, wanted: &[&FileEntry]) -> Result<Vec<Read>, ObserveError> {
    let mut below = Stack::new(beneath::revision(root).map_err(|errno| ObserveError::of(root, errno))?);
    let mut read = Vec::with_capacity(wanted.len());
    for entry in wanted {
        let content = content(&mut below, entry);
        let ours = |errno| ObserveError::of(&root.join(entry.path.as_str()), errno);
        read.push(content.map_err(ours)?);
    }
    Ok(checked(wanted, read))
}

/// Takes away what is not an entry's content.
fn checked(wanted: &[&FileEntry], read: Vec<Read>) -> Vec<Read> {
    let had: Vec<&[u8]> = read.iter().flatten().map(|(content, _)| content.as_slice()).collect();
    let mut digests = hashing::hash_all(&had).into_iter();
    let check = |(entry, content): (&&FileEntry, Read)| {
        let content = content?;
        // One digest for each content, whatever its length: a file may shrink while it is read.
        let same = digests.next().as_ref() == Some(&entry.content);
        if same { Ok(content) } else { Err("it holds something else".to_owned()) }
    };
    wanted.iter().zip(read).map(check).collect()
}

/// Reads a file if it is a regular one of the published length. The outer error says nothing about it.
fn content(below: &mut Stack, entry: &FileEntry) -> Result<Read, Errno> {
    match regular(below, entry) {
        Err(errno) if is_ours(errno) => Err(errno),
        Err(Errno::LOOP | Errno::NOTDIR) => Ok(Err("a name of its path is a symlink or no directory".into())),
        Err(Errno::NOENT) => Ok(Err("it is not there".into())),
        Err(other) => Ok(Err(std::io::Error::from(other).to_string())),
        Ok(read) => Ok(read),
    }
}

fn regular(below: &mut Stack, entry: &FileEntry) -> Result<Read, Errno> {
    let mut names: Vec<_> = entry.path.as_str().split('/').collect();
    let name = names.pop().unwrap_or_default();
    let file = beneath::file(below.find(&names)?.as_fd(), name)?;
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(Err("it is no regular file".into()));
    }
    if u64::try_from(stat.st_size) != Ok(entry.length) {
        return Ok(Err(format!("it has {} bytes; {} were published", stat.st_size, entry.length)));
    }
    Ok(Ok((whole(&file, entry.length)?, stat)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::digest::Digest;
    use crate::domain::relpath::RelPath;

    #[test]
    fn ws4_a_file_that_shrinks_while_it_is_read_says_nothing_of_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let stat = rustix::fs::stat(dir.path()).unwrap();
        let entry = |name: &str| FileEntry {
            path: RelPath::parse(name).unwrap(),
            executable: false,
            length: 5,
            content: Digest::of(b"whole"),
        };
        let files = ["absent", "shrunk", "kept", "other", "last"].map(entry);
        let wanted: Vec<&FileEntry> = files.iter().collect();
        let had = |content: &[u8]| Ok((content.to_vec(), stat));
        let read =
            vec![Err("it is not there".to_owned()), had(b"who"), had(b"whole"), had(b"WHOLE"), had(b"whole")];
        let got = checked(&wanted, read);
        let got: Vec<_> = got.iter().map(|one| one.as_ref().ok().map(|(content, _)| &content[..])).collect();
        assert_eq!(got, [None, None, Some(&b"whole"[..]), None, Some(b"whole")]);
    }
}
