//! The manifest of an unpacked bundle, `tree.json`: everything in it, and how to find a difference.

use super::blob::pump;
use super::error::{ImageError, path_text};
use super::root::{Root, child, file_type, look_at, names};
use super::unpack::Hashes;
use crate::domain::digest::Digest;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

/// Most bytes of the names of a file's extended attributes (XATTR_LIST_MAX of linux/limits.h).
const XATTR_LIST: usize = 65_536;
/// Most bytes of one (XATTR_SIZE_MAX).
const XATTR_VALUE: usize = 65_536;
/// Directories that a walk goes down at most; more than the unpacker makes (rootfs included).
const DEPTH: u32 = 160;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Directory,
    File,
    Symlink,
    /// An overlay's mark of what a layer removes: a character device 0:0.
    Whiteout,
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
    /// Digest of its extended attributes: an overlay keeps its own marks there. Labels that the host's
    /// security modules set are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Digest>,
}

/// Holds the list of [`TreeEntry`] of a layer or a bundle.
pub(super) const TREE_FILE: &str = "tree.json";

/// Lists the directories `tops` of `dir` in its [`TREE_FILE`], which is not synced yet; gives that
/// file's digest and the bytes that all of it has on disk.
pub(super) fn write(dir: &Path, tops: &[&str], known: &Hashes) -> Result<(Digest, u64), ImageError> {
    let (entries, disk) = walk(dir, tops, known)?;
    let path = dir.join(TREE_FILE);
    let json = serde_json::to_vec(&entries).map_err(|e| ImageError::io("write", &path)(e.into()))?;
    std::fs::write(&path, &json).map_err(ImageError::io("write", &path))?;
    Ok((Digest::of(&json), disk + json.len() as u64))
}

/// Lists the given directories of the bundle at `bundle`, each before what is in it, names sorted.
/// Files whose inode is in `known` are not read again. Also gives the bytes that they have on disk.
pub(super) fn walk(
    bundle: &Path,
    tops: &[&str],
    known: &Hashes,
) -> Result<(Vec<TreeEntry>, u64), ImageError> {
    let root = Root::open(bundle).map_err(ImageError::errno("open", bundle))?;
    let mut walk = Walk { bundle, known, out: Vec::new(), disk: 0, linked: HashSet::new() };
    for top in tops {
        walk.visit(root.fd(), top.as_bytes(), "", 0)?;
    }
    Ok((walk.out, walk.disk))
}

struct Walk<'a> {
    bundle: &'a Path,
    known: &'a Hashes,
    out: Vec<TreeEntry>,
    disk: u64,
    /// Inodes with several names that were counted.
    linked: HashSet<u64>,
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
        if stat.st_nlink == 1 || file_type(&stat) == FileType::Directory || self.linked.insert(stat.st_ino) {
            self.disk += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        }
        let mut entry = entry(path.clone(), &stat);
        entry.attributes = attributes(dir, name).map_err(ImageError::errno("read the attributes", &at))?;
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
            Kind::Directory | Kind::Whiteout | Kind::Other => {}
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
        FileType::CharacterDevice if stat.st_rdev == 0 => Kind::Whiteout,
        _ => Kind::Other,
    };
    let (mode, uid, gid) = (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid);
    TreeEntry { path, kind, mode, uid, gid, size: None, target: None, content: None, attributes: None }
}

/// Digest of what extended attributes `name` in `dir` has, if it has any.
fn attributes(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Digest>, Errno> {
    // There is no listxattrat(2) before Linux 6.13; the descriptor's path resolves to itself.
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    let mut list = vec![0; 1024];
    let length = loop {
        match rustix::fs::llistxattr(&path, &mut list[..]) {
            Err(Errno::RANGE) if list.len() < XATTR_LIST => list.resize(XATTR_LIST, 0),
            Err(Errno::NOTSUP) => return Ok(None),
            other => break other?,
        }
    };
    let label = |name: &&[u8]| name.starts_with(b"security.") && *name != b"security.capability";
    let names = list.get(..length).unwrap_or_default().split(|b| *b == 0);
    let mut names: Vec<&[u8]> = names.filter(|name| !name.is_empty() && !label(name)).collect();
    if names.is_empty() {
        return Ok(None);
    }
    names.sort_unstable();
    let (mut all, mut value) = (Vec::new(), vec![0; XATTR_VALUE]);
    for name in names {
        let length = rustix::fs::lgetxattr(&path, name, &mut value[..])?;
        all.extend_from_slice(name);
        all.push(0);
        all.extend_from_slice(&(length as u64).to_le_bytes());
        all.extend_from_slice(value.get(..length).unwrap_or_default());
    }
    Ok(Some(Digest::of(&all)))
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
    } else if old.attributes != new.attributes {
        "has other extended attributes".to_owned()
    } else if old.mode != new.mode {
        format!("has mode {:o}, was {:o}", new.mode, old.mode)
    } else {
        format!("is owned by {}:{}, was by {}:{}", new.uid, new.gid, old.uid, old.gid)
    }
}
