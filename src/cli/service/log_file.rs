//! The log of a service in the background: `service.log` in the state directory.

use crate::domain::refusal::{Code, Refusal};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A log larger than this is put aside at the next start; one is kept.
const MAX_LOG: u64 = 8 * 1024 * 1024;

/// Where the log lies.
pub(super) fn path(state: &Path) -> PathBuf {
    state.join("service.log")
}

/// Makes standard error the log. Only who holds the state directory's lock may call this, so that a
/// start that loses leaves the winner's log alone.
///
/// # Errors
/// `unsafe_path` when the log cannot be opened or is a symlink.
pub(super) fn take_standard_error(state: &Path) -> Result<(), Refusal> {
    let log = open(state)?;
    nix::unistd::dup2(log.as_raw_fd(), std::io::stderr().as_raw_fd())
        .map_err(|e| failed("write", &path(state), &e.into()))?;
    Ok(())
}

/// Opens the log for appending, mode 0600.
fn open(state: &Path) -> Result<File, Refusal> {
    let path = path(state);
    if std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() > MAX_LOG) {
        let aside = state.join("service.log.1");
        std::fs::rename(&path, &aside).map_err(|e| failed("put aside", &path, &e))?;
    }
    File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(&path)
        .map_err(|e| failed("open", &path, &e))
}

fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Refusal {
    Refusal::new(
        Code::UnsafePath,
        format!("could not {doing} {}: {error}", path.display()),
        "name another state directory with --state, or mend this one",
    )
}
