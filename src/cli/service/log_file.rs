//! The log of a service in the background: `service.log` in the state directory.

use crate::domain::refusal::{Code, Refusal};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A log larger than this is put aside at the next start; one is kept.
const MAX_LOG: u64 = 8 * 1024 * 1024;

/// Where the log lies.
pub(super) fn path(state: &Path) -> PathBuf {
    state.join("service.log")
}

/// Opens the log for appending, mode 0600. A missing state directory is made, 0700 (SVC.2).
///
/// # Errors
/// `unsafe_path` when the directory is not the caller's alone, or the log is a symlink.
pub(super) fn open(state: &Path) -> Result<File, Refusal> {
    DirBuilder::new().recursive(true).mode(0o700).create(state).map_err(|e| failed("make", state, &e))?;
    let meta = std::fs::symlink_metadata(state).map_err(|e| failed("look at", state, &e))?;
    if !meta.is_dir() || meta.uid() != nix::unistd::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
        return Err(Refusal::new(
            Code::UnsafePath,
            format!("the state directory {} is not a private directory of yours", state.display()),
            format!("make it yours and private: chmod 700 {}", state.display()),
        ));
    }
    let path = path(state);
    if std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() > MAX_LOG) {
        let aside = state.join("service.log.1");
        std::fs::rename(&path, &aside).map_err(|e| failed("put aside", &path, &e))?;
    }
    File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
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
