//! Space left in the container's tmpfs mounts, read through descriptors that keep them alive until
//! after the last process is gone.

use crate::domain::outcome::SpaceLeft;
use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, SFlag, fstatat};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// Open directories of the writable mounts.
pub struct Mounts {
    work: OwnedFd,
    scratch: OwnedFd,
}

/// Most directory entries looked at when a file of the largest size is sought.
const WALK_BOUND: usize = 8_192;

impl Mounts {
    /// Opens `/work` and `/tmp` of a container through its first process.
    ///
    /// # Errors
    /// The errno of open(2).
    pub fn open(pid: i32) -> nix::Result<Self> {
        let open = |path: &str| -> nix::Result<OwnedFd> {
            let fd = nix::fcntl::open(
                format!("/proc/{pid}/root{path}").as_str(),
                OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW,
                Mode::empty(),
            )?;
            Ok(owned(fd))
        };
        Ok(Self {
            work: open(crate::domain::profile::WORK)?,
            scratch: open(crate::domain::profile::SCRATCH)?,
        })
    }

    /// Free space of `/work`.
    pub fn work(&self) -> Option<SpaceLeft> {
        space(&self.work)
    }

    /// Free space of `/tmp`.
    pub fn scratch(&self) -> Option<SpaceLeft> {
        space(&self.scratch)
    }

    /// Whether a regular file in either mount has exactly `size` bytes. Symlinks are not followed.
    pub fn has_file_of(&self, size: u64) -> bool {
        let mut budget = WALK_BOUND;
        [&self.work, &self.scratch].iter().any(|dir| holds(dir.as_raw_fd(), size, &mut budget))
    }
}

fn owned(fd: RawFd) -> OwnedFd {
    super::sys::own(fd)
}

fn space(dir: &OwnedFd) -> Option<SpaceLeft> {
    let fs = nix::sys::statfs::fstatfs(dir.as_fd()).ok()?;
    Some(SpaceLeft { bytes: fs.blocks_free() * fs.block_size() as u64, inodes: fs.files_free() })
}

fn holds(dir: RawFd, size: u64, budget: &mut usize) -> bool {
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let Ok(mut open) = Dir::openat(Some(dir), ".", flags, Mode::empty()) else { return false };
    let own = open.as_raw_fd();
    let mut below = Vec::new();
    for entry in open.iter().flatten() {
        if *budget == 0 {
            return false;
        }
        *budget -= 1;
        let name = entry.file_name();
        if name.to_bytes() == b"." || name.to_bytes() == b".." {
            continue;
        }
        let Ok(stat) = fstatat(Some(own), name, AtFlags::AT_SYMLINK_NOFOLLOW) else { continue };
        match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFREG if stat.st_size as u64 == size => return true,
            SFlag::S_IFDIR => below.push(name.to_owned()),
            _ => {}
        }
    }
    below.iter().any(|name| {
        nix::fcntl::openat(Some(own), name.as_c_str(), flags, Mode::empty())
            .is_ok_and(|fd| holds(owned(fd).as_raw_fd(), size, budget))
    })
}
