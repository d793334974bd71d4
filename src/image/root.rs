//! A root file system on the host, touched only through directory descriptors.
//!
//! Paths of the image are resolved by openat2(2) with RESOLVE_IN_ROOT: symlinks, absolute ones and
//! `..` included, lead where they would inside the container and never out of the root.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Retries of openat2(2), which answers EAGAIN while anything on the host is renamed.
const TRIES: u32 = 128;

/// Flags of a directory descriptor.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An open root directory.
#[derive(Debug)]
pub(super) struct Root {
    fd: OwnedFd,
    /// The mount namespace that keeps it, if it is a mount of its own.
    _namespace: Option<OwnedFd>,
}

impl Root {
    /// Opens the directory at `path`, whose last component must not be a symlink.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let fd = rustix::fs::open(path, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Self { fd, _namespace: None })
    }

    /// The root `fd` of a mount in `namespace`.
    pub fn of_mount(fd: OwnedFd, namespace: OwnedFd) -> Self {
        Self { fd, _namespace: Some(namespace) }
    }

    /// The root directory itself.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens a directory of the image, following symlinks inside the root.
    pub fn directory(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.resolve(path, DIRECTORY)
    }

    /// Opens anything of the image for a look (O_PATH), following symlinks inside the root.
    pub fn look(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.resolve(path, OFlags::PATH | OFlags::CLOEXEC)
    }

    /// Opens a file of the image for reading, following symlinks inside the root.
    pub fn read(&self, path: &[u8]) -> Result<File, Errno> {
        let fd = self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC)?;
        match file_type(&rustix::fs::fstat(&fd)?) {
            FileType::RegularFile => Ok(File::from(fd)),
            _ => Err(Errno::INVAL),
        }
    }

    fn resolve(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let path = if path.is_empty() { b"." } else { path };
        let mut last = Errno::AGAIN;
        for _ in 0..TRIES {
            match rustix::fs::openat2(&self.fd, path, flags, Mode::empty(), how) {
                Err(e @ (Errno::AGAIN | Errno::INTR)) => last = e,
                other => return other,
            }
        }
        Err(last)
    }
}

/// The type of what was looked at.
pub(super) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Looks at `name` in `dir` without following it.
pub(super) fn look_at(dir: impl AsFd, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Opens the directory `name` in `dir`, which must not be a symlink.
pub(super) fn child(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// Makes the directory `name` in `dir` with exactly `mode`, and opens it.
pub(super) fn make_dir(dir: impl AsFd, name: &[u8], mode: u32) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o700))?;
    let fd = child(dir, name)?;
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
    Ok(fd)
}

/// Makes the file `name` in `dir`, which must not exist, readable by its owner only.
pub(super) fn make_file(dir: impl AsFd, name: &[u8]) -> Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600)).map(File::from)
}

/// The names in a directory, sorted, `.` and `..` left out.
pub(super) fn names(dir: impl AsFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Removes `name` in `dir` with all below it, and tells `gone` the inode of each: it may be given to
/// the next file. A missing one is no error. The depth is bounded by what the unpacker makes.
pub(super) fn remove_tree(dir: BorrowedFd<'_>, name: &[u8], gone: &mut dyn FnMut(u64)) -> Result<(), Errno> {
    let Some(stat) = look_at(dir, name)? else { return Ok(()) };
    gone(stat.st_ino);
    if file_type(&stat) != FileType::Directory {
        return rustix::fs::unlinkat(dir, name, AtFlags::empty());
    }
    let inner = child(dir, name)?;
    for below in names(&inner)? {
        remove_tree(inner.as_fd(), &below, gone)?;
    }
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}
