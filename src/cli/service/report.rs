//! What a detached service tells its waiting parent: one JSON line, then its end of the pipe closes.

use crate::api::wire::{ErrorBody, Status};
use crate::domain::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;

/// The report.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Report {
    /// The start was refused.
    Refused(ErrorBody),
    /// The service accepts clients.
    Started(Box<Status>),
}

impl Report {
    /// Writes the report to standard output, then points that at /dev/null, so that neither the
    /// service nor what it spawns holds the parent's pipe.
    pub(super) fn send(&self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, self)?;
        out.write_all(b"\n")?;
        out.flush()?;
        let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        nix::unistd::dup2(null.as_raw_fd(), out_fd())?;
        Ok(())
    }

    /// What the report says.
    pub(super) fn into_result(self) -> Result<Status, Refusal> {
        match self {
            Self::Started(status) => Ok(*status),
            Self::Refused(error) => Err(error.into()),
        }
    }
}

fn out_fd() -> i32 {
    std::io::stdout().as_raw_fd()
}
