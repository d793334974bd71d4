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
