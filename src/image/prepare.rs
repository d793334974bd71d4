//! What the profile's mounts need of a root file system: sound mount points, and a shell.
//!
//! A mount point that is a symlink would put a mount where it leads, so a root file system with one
//! is refused by its name before anything is mounted.

use super::error::ImageError;
use super::root::{Root, file_type, look_at, make_dir, make_file};
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Directories that are mounted on or hold files that are, with the mode of a missing one.
const DIRECTORIES: [(&str, u32); 8] = [
    ("proc", 0o755),
    ("sys", 0o755),
    ("dev", 0o755),
    ("source", 0o755),
    ("work", 0o755),
    ("tmp", 0o1777),
    ("etc", 0o755),
    (".salaam", 0o755),
];

/// Files that are mounted on, with the mode of a missing one.
const FILES: [(&str, &str, u32); 6] = [
    ("etc", "passwd", 0o644),
    ("etc", "group", 0o644),
    ("etc", "hosts", 0o644),
    ("etc", "hostname", 0o644),
    ("etc", "resolv.conf", 0o644),
    (".salaam", "probe", 0o755),
];

/// Entries directly in the root. The record of an image has a line on each.
const TOP_ENTRIES: usize = 256;

/// Checks the root and makes the mount points that are missing.
///
/// A file among them that is a symlink (images of systemd hosts have `/etc/resolv.conf` so) becomes
/// an empty file: it is mounted over, and a symlink would be followed.
pub(super) fn prepare(root: &Root) -> Result<(), ImageError> {
    // The directories first: nothing may be made below one that is not sound.
    for (name, mode) in DIRECTORIES {
        directory(root, name, mode)?;
    }
    for (dir, name, mode) in FILES {
        file(root, dir, name, mode)?;
    }
    let top = super::root::names(root.fd()).map_err(failed("list", "/"))?.len();
    if top > TOP_ENTRIES {
        return Err(ImageError::Limit {
            what: format!("a root directory with {top} entries"),
            limit: TOP_ENTRIES as u64,
            unit: "entries",
        });
    }
    shell(root)
}

fn directory(root: &Root, name: &str, mode: u32) -> Result<(), ImageError> {
    let path = format!("/{name}");
    match look_at(root.fd(), name.as_bytes()).map_err(failed("stat", &path))?.map(|s| file_type(&s)) {
        Some(FileType::Directory) => Ok(()),
        Some(FileType::Symlink) => Err(wrong(path, "is a symlink, so it cannot be mounted on")),
        Some(_) => Err(wrong(path, "is not a directory, so it cannot be mounted on")),
        None => make_dir(root.fd(), name.as_bytes(), mode).map(|_| ()).map_err(failed("make", &path)),
    }
}

fn file(root: &Root, dir: &str, name: &str, mode: u32) -> Result<(), ImageError> {
    let path = format!("/{dir}/{name}");
    let parent = super::root::child(root.fd(), dir.as_bytes()).map_err(failed("open", &path))?;
    match look_at(&parent, name.as_bytes()).map_err(failed("stat", &path))?.map(|s| file_type(&s)) {
        Some(FileType::RegularFile) => return Ok(()),
        Some(FileType::Symlink) => {
            rustix::fs::unlinkat(&parent, name, AtFlags::empty()).map_err(failed("remove", &path))?;
        }
        Some(_) => return Err(wrong(path, "is not a file, so it cannot be mounted on")),
        None => {}
    }
    let made = make_file(parent.as_fd(), name.as_bytes()).map_err(failed("make", &path))?;
    rustix::fs::fchmod(&made, Mode::from_raw_mode(mode)).map_err(failed("chmod", &path))
}

/// Commands are run by `/bin/sh` (CMD.1).
fn shell(root: &Root) -> Result<(), ImageError> {
    let path = "/bin/sh".to_owned();
    let fd = match root.look(b"bin/sh") {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
            return Err(wrong(path, "is missing, and commands are run by it"));
        }
        other => other.map_err(failed("open", &path))?,
    };
    let stat = rustix::fs::fstat(&fd).map_err(failed("stat", &path))?;
    if file_type(&stat) == FileType::RegularFile && stat.st_mode & 0o001 != 0 {
        Ok(())
    } else {
        Err(wrong(path, "is not a program that everyone may run, and commands are run by it"))
    }
}

fn wrong(path: String, problem: &str) -> ImageError {
    ImageError::Rootfs { path, problem: problem.to_owned() }
}

fn failed(doing: &'static str, path: &str) -> impl FnOnce(Errno) -> ImageError {
    move |errno| ImageError::Io { doing, path: path.into(), source: errno.into() }
}
