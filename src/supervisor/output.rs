//! The command's output: drained without end, kept up to the bound (CMD.7).
//!
//! One pipe serves stdout and stderr, so the kept bytes stand in the order in which they were
//! written; past the bound the command is neither blocked nor signalled.

use crate::domain::digest::Digest;
use crate::domain::outcome::Evidence;
use nix::errno::Errno;
use sha2::{Digest as _, Sha256};
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
    hash: Sha256,
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
        Ok(Self { pipe, file, bound, stored: 0, total: 0, open: true, hash: Sha256::new() })
    }

    /// The descriptor to poll, while the pipe is open.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.open.then(|| self.pipe.as_fd())
    }

    /// Reads at most `rounds` chunks of 64 KiB that are there now; answers whether more may come at
    /// once. Bytes that cannot be kept, past the bound or on a full disk, are counted and dropped: the
    /// command never waits for our disk.
    pub fn read(&mut self, rounds: usize) -> bool {
        let mut chunk = [0u8; 65_536];
        for _ in 0..rounds {
            match nix::unistd::read(self.pipe.as_raw_fd(), &mut chunk) {
                Ok(0) => {
                    self.open = false;
                    return false;
                }
                Ok(n) => self.keep(&chunk[..n]),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return false,
                Err(e) => {
                    tracing::error!("the command's output cannot be read: {e}");
                    self.open = false;
                    return false;
                }
            }
        }
        true
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = (self.bound - self.stored).min(bytes.len() as u64);
        if room == 0 {
            return;
        }
        let kept = &bytes[..room as usize];
        match self.file.write_all(kept) {
            Ok(()) => {
                self.stored += room;
                self.hash.update(kept);
            }
            Err(e) => {
                tracing::error!("the command's output cannot be kept: {e}");
                // What a failed write left behind is cut off; nothing is kept after a gap.
                let _ = self.file.set_len(self.stored);
                self.bound = self.stored;
            }
        }
    }

    /// Syncs what is kept, so that a recorded length is never ahead of the bytes, and tells `evidence` the
    /// bytes kept, their digest and the bytes read.
    pub fn finish(&mut self, evidence: &mut Evidence) {
        evidence.total_bytes = self.total;
        if self.stored > 0
            && let Err(e) = self.file.sync_data()
        {
            tracing::error!("the command's output cannot be synced: {e}");
            (evidence.stored_bytes, evidence.output) = (0, Some(Digest::of(b"")));
            return;
        }
        evidence.stored_bytes = self.stored;
        evidence.output = Some(Digest::from_sha256(&self.hash.clone().finalize()));
    }
}
