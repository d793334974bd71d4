//! The liveness lock of a run directory: held by its supervisor, or by the sweep that takes its place.
//!
//! fcntl(2), because an flock(2) would be inherited by the container's init and outlive the holder.

use crate::domain::job::LOCK_FILE;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

fn whole(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Takes the lock; it is free again when the answer is dropped or the process ends.
///
/// # Errors
/// `WouldBlock` when someone holds it, else the system's error.
pub fn take(dir: &Path) -> std::io::Result<File> {
    let file = File::options().write(true).create(true).truncate(false).open(dir.join(LOCK_FILE))?;
    match fcntl(file.as_raw_fd(), FcntlArg::F_SETLK(&whole(libc::F_WRLCK))) {
        Ok(_) => Ok(file),
        Err(Errno::EACCES | Errno::EAGAIN) => Err(std::io::ErrorKind::WouldBlock.into()),
        Err(e) => Err(e.into()),
    }
}

/// The process that holds the lock now.
pub fn holder(dir: &Path) -> Option<i32> {
    let file = File::options().write(true).open(dir.join(LOCK_FILE)).ok()?;
    let mut region = whole(libc::F_WRLCK);
    fcntl(file.as_raw_fd(), FcntlArg::F_GETLK(&mut region)).ok()?;
    (region.l_type != libc::F_UNLCK as libc::c_short).then_some(region.l_pid)
}
