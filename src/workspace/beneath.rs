//! Opening one name below a directory descriptor so that a rename race cannot lead elsewhere (WS.4).
//!
//! Only single names are opened, each below a descriptor that was opened in the same way, so `..` and
//! the text of a longer path never take part. O_NONBLOCK keeps a FIFO that is swapped in from
//! blocking; O_NOCTTY keeps a terminal from becoming ours.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Opens the canonical `path` as a directory; fails if a component has become a symlink.
pub(super) fn root(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = READ.union(OFlags::DIRECTORY);
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve)
    }
    #[cfg(not(target_os = "linux"))]
    rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty())
}

/// Opens the directory `name` in `parent`.
pub(super) fn directory(parent: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    open(parent, name, READ.union(OFlags::DIRECTORY))
}

/// Opens the file `name` in `parent` for reading. The caller checks by fstat that it is regular.
pub(super) fn file(parent: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    open(parent, name, READ)
}

/// Makes the file `name` in `parent` for writing, and for reading what was written; it must not exist.
pub(super) fn create(parent: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))
}

#[cfg(target_os = "linux")]
fn open(parent: BorrowedFd<'_>, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    use rustix::fs::ResolveFlags;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(parent.as_fd(), name, flags, Mode::empty(), resolve) {
            // openat2(2): EAGAIN when a rename anywhere raced with the resolution.
            Err(Errno::AGAIN | Errno::INTR) if tries < 16 => tries += 1,
            other => return other,
        }
    }
}

/// One name and O_NOFOLLOW leave nothing to resolve; openat2 is Linux's own.
#[cfg(not(target_os = "linux"))]
fn open(parent: BorrowedFd<'_>, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(parent.as_fd(), name, flags, Mode::empty())
}

/// True for an error that says nothing about the name: no descriptor or memory is left, the disk fails, or
/// the kernel lacks the call. It is never evidence of a change.
pub(super) fn is_ours(errno: Errno) -> bool {
    // What ext4, xfs and btrfs say of metadata that is damaged or fails its checksum.
    #[cfg(target_os = "linux")]
    let damaged = matches!(errno, Errno::UCLEAN | Errno::BADMSG);
    #[cfg(not(target_os = "linux"))]
    let damaged = errno == Errno::BADMSG;
    damaged || matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO | Errno::NOSYS)
}

/// Opens the directory of a revision. Its last component is ours and never a symlink; those above belong to
/// the operator.
pub(super) fn revision(path: &Path) -> Result<OwnedFd, Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL) };
    let parent = parent.canonicalize().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    root(&parent.join(name))
}

/// A directory and those below it that lead to the current one.
pub(super) struct Stack {
    root: OwnedFd,
    open: Vec<(String, OwnedFd)>,
}

impl Stack {
    /// A stack at `root`.
    pub(super) fn new(root: OwnedFd) -> Self {
        Self { root, open: Vec::new() }
    }

    /// Goes to a directory that exists.
    pub(super) fn find(&mut self, names: &[&str]) -> Result<&OwnedFd, Errno> {
        self.go(names, |parent, name| directory(parent.as_fd(), name))
    }

    /// Goes to a directory; `enter` opens each that is not open yet.
    pub(super) fn go(
        &mut self,
        names: &[&str],
        enter: impl Fn(&OwnedFd, &str) -> Result<OwnedFd, Errno>,
    ) -> Result<&OwnedFd, Errno> {
        let common = self.open.iter().zip(names).take_while(|((open, _), name)| open == **name).count();
        self.open.truncate(common);
        for name in &names[common..] {
            let parent = self.open.last().map_or(&self.root, |(_, fd)| fd);
            let fd = enter(parent, name)?;
            self.open.push(((*name).to_owned(), fd));
        }
        Ok(self.open.last().map_or(&self.root, |(_, fd)| fd))
    }
}

/// Reads a file from its start, at most one byte past `length`, which shows growth.
pub(super) fn whole(fd: &OwnedFd, length: u64) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0u8; usize::try_from(length).map_err(|_| Errno::FBIG)? + 1];
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(fd, &mut buffer[filled..], filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ft4_a_failing_disk_says_nothing_about_a_name_and_an_editor_does() {
        use Errno as E;
        for errno in [E::MFILE, E::NFILE, E::NOMEM, E::IO, E::NOSYS, E::UCLEAN, E::BADMSG] {
            assert!(is_ours(errno), "{errno:?}");
        }
        for errno in [E::NOENT, E::NOTDIR, E::ISDIR, E::LOOP, E::ACCESS, E::XDEV, E::NXIO, E::NAMETOOLONG] {
            assert!(!is_ours(errno), "{errno:?}");
        }
    }
}
