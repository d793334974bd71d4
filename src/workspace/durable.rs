//! Making directories and whole trees durable (design rule 6).

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Opens a directory of ours; its last component may not be a symlink.
pub(super) fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(path: &Path) -> Result<(), Errno> {
    rustix::fs::fsync(open_directory(path)?)
}

/// Makes everything that was written to the file system of `path` durable: one syncfs(2) costs a
/// tenth of an fsync for each file.
pub(super) fn sync_tree(path: &Path) -> Result<(), Errno> {
    let directory = open_directory(path)?;
    #[cfg(target_os = "linux")]
    {
        rustix::fs::syncfs(directory)
    }
    #[cfg(not(target_os = "linux"))]
    {
        rustix::fs::sync();
        rustix::fs::fsync(directory)
    }
}

/// Renames `from` to `to`, which must not exist.
pub(super) fn rename_new(from: &Path, to: &Path) -> Result<(), Errno> {
    use rustix::fs::{CWD, RenameFlags};
    rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
}
