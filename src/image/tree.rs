//! The manifest of an unpacked bundle, `tree.json`: everything in it, and how to find a difference.

use super::blob::pump;
use super::error::{ImageError, path_text};
use super::root::{Root, child, file_type, look_at, names};
use super::unpack::Hashes;
use crate::domain::digest::Digest;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Directories that a walk goes down at most; more than the unpacker makes (rootfs included).
const DEPTH: u32 = 160;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Directory,
    File,
    Symlink,
    /// Never made by an import.
    Other,
}

/// One file, directory or symlink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TreeEntry {
    /// Path below the bundle, in the form of [`path_text`].
    pub path: String,
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Bytes of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Target of a symlink, in the form of [`path_text`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Digest of a file's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Digest>,
}

/// Lists the given directories of the bundle at `bundle`, each before what is in it, names sorted.
/// Files whose inode is in `known` are not read again.
pub(super) fn walk(bundle: &Path, tops: &[&str], known: &Hashes) -> Result<Vec<TreeEntry>, ImageError> {
    let root = Root::open(bundle).map_err(ImageError::errno("open", bundle))?;
    let mut walk = Walk { bundle, known, out: Vec::new() };
    for top in tops {
        walk.visit(root.fd(), top.as_bytes(), "", 0)?;
    }
    Ok(walk.out)
}

struct Walk<'a> {
    bundle: &'a Path,
    known: &'a Hashes,
    out: Vec<TreeEntry>,
}

impl Walk<'_> {
    fn visit(&mut self, dir: BorrowedFd<'_>, name: &[u8], above: &str, depth: u32) -> Result<(), ImageError> {
        let path = if above.is_empty() { path_text(name) } else { format!("{above}/{}", path_text(name)) };
        if depth > DEPTH {
            return Err(ImageError::Limit {
                what: format!("the nesting of directories at {}", self.bundle.join(&path).display()),
                limit: DEPTH.into(),
                unit: "levels",
            });
        }
        let at = self.bundle.join(&path);
        let Some(stat) = look_at(dir, name).map_err(ImageError::errno("stat", &at))? else { return Ok(()) };
        let mut entry = entry(path.clone(), &stat);
        match entry.kind {
            Kind::File => {
                entry.size = Some(u64::try_from(stat.st_size).unwrap_or(0));
                entry.content = Some(match self.known.get(&stat.st_ino) {
                    Some(digest) => digest.clone(),
                    None => hash(dir, name, &at)?,
                });
            }
            Kind::Symlink => {
                let target = rustix::fs::readlinkat(dir, name, Vec::new())
                    .map_err(ImageError::errno("read the link", &at))?;
                entry.target = Some(path_text(target.as_bytes()));
            }
            Kind::Directory | Kind::Other => {}
        }
        let is_dir = entry.kind == Kind::Directory;
        self.out.push(entry);
        if is_dir {
            let inner = child(dir, name).map_err(ImageError::errno("open", &at))?;
            for below in names(&inner).map_err(ImageError::errno("list", &at))? {
                self.visit(inner.as_fd(), &below, &path, depth + 1)?;
            }
        }
        Ok(())
    }
}

fn entry(path: String, stat: &Stat) -> TreeEntry {
    let kind = match file_type(stat) {
        FileType::Directory => Kind::Directory,
        FileType::RegularFile => Kind::File,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Other,
    };
    let (mode, uid, gid) = (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid);
    TreeEntry { path, kind, mode, uid, gid, size: None, target: None, content: None }
}

fn hash(dir: BorrowedFd<'_>, name: &[u8], at: &Path) -> Result<Digest, ImageError> {
    // NONBLOCK: it may have become a FIFO since it was looked at.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(ImageError::errno("open", at))?;
    let (digest, _) = pump(&mut File::from(fd), &mut std::io::sink()).map_err(ImageError::io("read", at))?;
    Ok(digest)
}

/// Says how `found` differs from `stored`; both as [`walk`] gives them.
pub(super) fn differences<'a>(
    stored: &'a [TreeEntry],
    found: &'a [TreeEntry],
) -> impl Iterator<Item = (&'a str, String)> {
    let by_path = |list: &'a [TreeEntry]| -> std::collections::BTreeMap<&'a str, &'a TreeEntry> {
        list.iter().map(|e| (e.path.as_str(), e)).collect()
    };
    let (stored_map, mut extra) = (by_path(stored), by_path(found));
    let mut out: Vec<(&str, String)> = Vec::new();
    for (path, old) in stored_map {
        match extra.remove(path) {
            None => out.push((path, "is missing".to_owned())),
            Some(new) if new != old => out.push((path, difference(old, new))),
            Some(_) => {}
        }
    }
    out.extend(extra.into_keys().map(|path| (path, "was not in the image".to_owned())));
    out.into_iter()
}

fn difference(old: &TreeEntry, new: &TreeEntry) -> String {
    if old.kind != new.kind {
        format!("is a {:?}, was a {:?}", new.kind, old.kind).to_lowercase()
    } else if old.content != new.content {
        "has other content".to_owned()
    } else if old.target != new.target {
        "leads elsewhere".to_owned()
    } else if old.mode != new.mode {
        format!("has mode {:o}, was {:o}", new.mode, old.mode)
    } else {
        format!("is owned by {}:{}, was by {}:{}", new.uid, new.gid, old.uid, old.gid)
    }
}
