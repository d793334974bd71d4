//! The command's output: drained without end, kept up to the bound (CMD.7).
//!
//! One pipe serves stdout and stderr, so the kept bytes stand in the order in which they were
//! written; past the bound the command is neither blocked nor signalled.

use nix::errno::Errno;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Reads a pipe into a file of bounded size.
pub struct Drain {
    pipe: OwnedFd,
    file: File,
    bound: u64,
    stored: u64,
    total: u64,
    open: bool,
}

impl Drain {
    /// Creates the output file (0600); it must not exist.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(pipe: OwnedFd, path: &Path, bound: u64) -> std::io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = File::options().append(true).create_new(true).mode(0o600).open(path)?;
        nix::fcntl::fcntl(pipe.as_raw_fd(), nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
        Ok(Self { pipe, file, bound, stored: 0, total: 0, open: true })
    }

    /// The descriptor to poll, while the pipe is open.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.open.then(|| self.pipe.as_fd())
    }

    /// Reads at most `rounds` chunks of 64 KiB that are there now.
    ///
    /// # Errors
    /// The system's error when kept bytes cannot be written; the rest is still drained later.
    pub fn read(&mut self, rounds: usize) -> std::io::Result<()> {
        let mut chunk = [0u8; 65_536];
        for _ in 0..rounds {
            match nix::unistd::read(self.pipe.as_raw_fd(), &mut chunk) {
                Ok(0) => {
                    self.open = false;
                    return Ok(());
                }
                Ok(n) => {
                    let room = (self.bound - self.stored).min(n as u64);
                    self.total += n as u64;
                    if room > 0 {
                        self.file.write_all(&chunk[..room as usize])?;
                        self.stored += room;
                    }
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Syncs what is kept, so that a recorded length is never ahead of the bytes.
    ///
    /// # Errors
    /// The system's error.
    pub fn sync(&self) -> std::io::Result<()> {
        if self.stored > 0 { self.file.sync_data() } else { Ok(()) }
    }

    /// Bytes kept.
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// Bytes read.
    pub fn total(&self) -> u64 {
        self.total
    }
}
