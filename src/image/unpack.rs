//! Unpacks layers into a fresh root (OCI image specification, "Image Layer Filesystem Changeset").
//!
//! Every entry is made by name in a directory descriptor that was resolved inside the root
//! ([`Root`]); nothing is followed, written through or linked outside it. Device nodes, FIFOs,
//! extended attributes and setuid/setgid bits are left out: the profile has no use for them.

use super::blob::pump;
use super::entry::{Done, METADATA, Meta, Metered, Problem, limit, named, refuse_sparse, refused};
use super::error::{ImageError, path_text, printable};
use super::limits::Limits;
use super::root::{Root, child, file_type, look_at, make_dir, make_file, names, remove_tree};
use crate::domain::digest::Digest;
use rustix::fs::{AtFlags, FileType, Mode, Timespec, Timestamps};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use tar::{Archive, Entry, EntryType, Header};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const AUFS: &[u8] = b".wh..wh.";

/// Content digests of the files that were written, by inode.
pub(super) type Hashes = HashMap<u64, Digest>;

/// Applies layers, lowest first.
pub(super) struct Unpacker<'a> {
    root: &'a Root,
    limits: &'a Limits,
    entries: u64,
    hashes: Hashes,
    /// Directories above each directory, by inode.
    depths: HashMap<u64, u32>,
    /// Inodes that the current layer made or touched: its whiteouts spare them.
    fresh: HashSet<u64>,
    /// The parent of the last entry.
    parent: Option<(Vec<u8>, Rc<OwnedFd>)>,
    /// Whether owners can be set.
    privileged: bool,
}

impl<'a> Unpacker<'a> {
    /// Starts with what is in `root`, `entries` of the image's archive entries being made already.
    pub fn new(root: &'a Root, limits: &'a Limits, entries: u64) -> Result<Self, Errno> {
        let inode = rustix::fs::fstat(root.fd())?.st_ino;
        Ok(Self {
            root,
            limits,
            entries,
            hashes: HashMap::new(),
            depths: HashMap::from([(inode, 0)]),
            fresh: HashSet::new(),
            parent: None,
            privileged: nix::unistd::geteuid().is_root(),
        })
    }

    /// The digests of all files, for the tree manifest, and the number of archive entries so far.
    pub fn finish(self) -> (Hashes, u64) {
        (self.hashes, self.entries)
    }

    /// Applies one layer, an uncompressed archive.
    pub fn layer(&mut self, layer: &Digest, from: impl Read) -> Result<(), ImageError> {
        let broken = |e: io::Error| ImageError::Layer {
            layer: layer.clone(),
            // The crate's errors hold bytes of the archive.
            problem: format!("its archive is broken ({})", printable(&e.to_string())),
        };
        self.fresh.clear();
        self.parent = None;
        let allowance = Rc::new(Cell::new(METADATA));
        let mut archive = Archive::new(Metered { from, allowance: Rc::clone(&allowance) });
        let mut entries = archive.entries().map_err(broken)?;
        loop {
            // The crate reads names and PAX records whole, so what it may read before it hands out
            // an entry is bounded here.
            allowance.set(METADATA);
            let Some(entry) = entries.next() else { return Ok(()) };
            let mut entry = entry.map_err(broken)?;
            allowance.set(u64::MAX);
            let path = entry.path_bytes().into_owned();
            self.entry(&mut entry, &path).map_err(|problem| named(problem, layer, &path))?;
            io::copy(&mut entry, &mut io::sink()).map_err(broken)?;
        }
    }

    fn entry<R: Read>(&mut self, entry: &mut Entry<'_, R>, path: &[u8]) -> Done {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(limit("the number of archive entries", self.limits.entries, "entries"));
        }
        let mut kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        refuse_sparse(entry)?;
        let parts = self.parts(path)?;
        if kind.is_file() && path.ends_with(b"/") {
            kind = EntryType::Directory;
        }
        let Some((name, above)) = parts.split_last() else {
            // The root itself: it stays root's, mode 0755.
            return if kind.is_dir() { Ok(()) } else { refused("would replace the root directory") };
        };
        if name.starts_with(WHITEOUT) {
            return self.whiteout(name, above);
        }
        match kind {
            EntryType::Regular | EntryType::Continuous => self.file(entry, name, above),
            EntryType::Directory => self.directory(entry.header(), name, above),
            EntryType::Symlink => {
                let target = self.link_target(entry)?;
                self.symlink(entry.header(), name, above, &target)
            }
            EntryType::Link => {
                let target = self.link_target(entry)?;
                self.hardlink(name, above, &target)
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => Ok(()),
            other => refused(format!("has the unknown entry type {:#04x}", other.as_byte())),
        }
    }

    fn file<R: Read>(&mut self, entry: &mut Entry<'_, R>, name: &[u8], above: &[&[u8]]) -> Done {
        let meta = Meta::of(entry.header(), 0o777)?;
        let parent = self.parent(above)?;
        self.clear(parent.as_fd(), name)?;
        let mut file = make_file(&*parent, name)?;
        let (digest, length) = pump(entry, &mut file).map_err(Problem::Host)?;
        if length != entry.size() {
            return refused(format!("ends after {length} of {} bytes", entry.size()));
        }
        if self.privileged {
            rustix::fs::fchown(&file, Some(meta.uid), Some(meta.gid))?;
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(meta.mode))?;
        let time = Timespec { tv_sec: meta.mtime, tv_nsec: 0 };
        rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
        let inode = rustix::fs::fstat(&file)?.st_ino;
        self.hashes.insert(inode, digest);
        self.fresh.insert(inode);
        Ok(())
    }

    fn directory(&mut self, header: &Header, name: &[u8], above: &[&[u8]]) -> Done {
        let meta = Meta::of(header, 0o1777)?;
        let parent = self.parent(above)?;
        let there = look_at(&*parent, name)?;
        let fd = if there.is_some_and(|s| file_type(&s) == FileType::Directory) {
            child(&*parent, name)?
        } else {
            self.clear(parent.as_fd(), name)?;
            self.new_dir(parent.as_fd(), name)?
        };
        // Without privilege a directory must stay writable for what comes below it.
        let mode = if self.privileged { meta.mode } else { meta.mode | 0o700 };
        if self.privileged {
            rustix::fs::fchown(&fd, Some(meta.uid), Some(meta.gid))?;
        }
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
        self.fresh.insert(rustix::fs::fstat(&fd)?.st_ino);
        Ok(())
    }

    fn symlink(&mut self, header: &Header, name: &[u8], above: &[&[u8]], target: &[u8]) -> Done {
        let meta = Meta::of(header, 0o777)?;
        let parent = self.parent(above)?;
        self.clear(parent.as_fd(), name)?;
        rustix::fs::symlinkat(target, &*parent, name)?;
        if self.privileged {
            let (uid, gid) = (Some(meta.uid), Some(meta.gid));
            rustix::fs::chownat(&*parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        self.touch(parent.as_fd(), name)
    }

    fn hardlink(&mut self, name: &[u8], above: &[&[u8]], target: &[u8]) -> Done {
        let parts = self.parts(target).map_err(|problem| match problem {
            Problem::Refused(why) => Problem::Refused(format!("is a hard link whose target {why}")),
            other => other,
        })?;
        let gone = || format!("is a hard link to '{}', which is not in the image", path_text(target));
        let Some((target_name, target_above)) = parts.split_last() else {
            return refused("is a hard link to the root directory");
        };
        let from = match self.root.directory(&target_above.join(&b'/')) {
            Err(Errno::NOENT | Errno::NOTDIR) => return refused(gone()),
            other => other?,
        };
        let Some(source) = look_at(&from, target_name)? else { return refused(gone()) };
        if file_type(&source) == FileType::Directory {
            return refused("is a hard link to a directory");
        }
        let parent = self.parent(above)?;
        if look_at(&*parent, name)?.is_some_and(|s| s.st_ino == source.st_ino) {
            return self.touch(parent.as_fd(), name);
        }
        self.clear(parent.as_fd(), name)?;
        match rustix::fs::linkat(&from, *target_name, &*parent, name, AtFlags::empty()) {
            Err(Errno::NOENT) => refused(gone()),
            other => Ok(other?),
        }?;
        self.touch(parent.as_fd(), name)
    }

    /// Removes what lower layers have under the hidden name, or everything of theirs in the directory.
    fn whiteout(&mut self, name: &[u8], above: &[&[u8]]) -> Done {
        let dir = match self.root.directory(&above.join(&b'/')) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            other => other?,
        };
        self.parent = None;
        if name == OPAQUE {
            return self.clear_lower(dir.as_fd());
        }
        if name.starts_with(AUFS) {
            return Ok(());
        }
        match name.strip_prefix(WHITEOUT) {
            None | Some(b"" | b"." | b"..") => refused("is a whiteout of nothing"),
            Some(hidden) => self.remove_lower(dir.as_fd(), hidden),
        }
    }

    fn clear_lower(&mut self, dir: BorrowedFd<'_>) -> Done {
        for name in names(dir)? {
            self.remove_lower(dir, &name)?;
        }
        Ok(())
    }

    fn remove_lower(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> Done {
        let Some(stat) = look_at(dir, name)? else { return Ok(()) };
        if !self.fresh.contains(&stat.st_ino) {
            self.remove(dir, name)
        } else if file_type(&stat) == FileType::Directory {
            self.clear_lower(child(dir, name)?.as_fd())
        } else {
            Ok(())
        }
    }

    /// Makes room for a new `name`.
    fn clear(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> Done {
        match look_at(dir, name)? {
            None => Ok(()),
            Some(_) => {
                self.parent = None;
                self.remove(dir, name)
            }
        }
    }

    fn remove(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> Done {
        let (hashes, fresh) = (&mut self.hashes, &mut self.fresh);
        Ok(remove_tree(dir, name, &mut |inode| {
            hashes.remove(&inode);
            fresh.remove(&inode);
        })?)
    }

    fn touch(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> Done {
        if let Some(stat) = look_at(dir, name)? {
            self.fresh.insert(stat.st_ino);
        }
        Ok(())
    }

    /// Opens the directory that an entry goes to, making what is missing of it.
    fn parent(&mut self, above: &[&[u8]]) -> Done<Rc<OwnedFd>> {
        let path = above.join(&b'/');
        if let Some((last, fd)) = &self.parent
            && *last == path
        {
            return Ok(Rc::clone(fd));
        }
        let mut dir = self.root.directory(b"")?;
        for (i, name) in above.iter().enumerate() {
            let prefix = above.get(..=i).unwrap_or_default().join(&b'/');
            dir = match self.root.directory(&prefix) {
                // Only a symlink that leads nowhere can be there and yet not be found.
                Err(Errno::NOENT) if look_at(&dir, name)?.is_some() => {
                    return refused("lies below a symlink that leads nowhere");
                }
                Err(Errno::NOENT) => self.new_dir(dir.as_fd(), name)?,
                other => other?,
            };
            self.fresh.insert(rustix::fs::fstat(&dir)?.st_ino);
        }
        let fd = Rc::new(dir);
        self.parent = Some((path, Rc::clone(&fd)));
        Ok(fd)
    }

    fn new_dir(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> Done<OwnedFd> {
        let depth = self.depth(dir)? + 1;
        if depth > self.limits.depth {
            return Err(limit("the nesting of directories", self.limits.depth.into(), "levels"));
        }
        let fd = make_dir(dir, name, 0o755)?;
        self.depths.insert(rustix::fs::fstat(&fd)?.st_ino, depth);
        Ok(fd)
    }

    /// Directories above `dir`, which may come from a layer below.
    fn depth(&mut self, dir: BorrowedFd<'_>) -> Done<u32> {
        let own = rustix::fs::fstat(dir)?.st_ino;
        if let Some(depth) = self.depths.get(&own) {
            return Ok(*depth);
        }
        let (mut up, mut above) = (child_above(dir)?, 1);
        let depth = loop {
            if let Some(depth) = self.depths.get(&rustix::fs::fstat(&up)?.st_ino) {
                break depth + above;
            }
            if above > self.limits.depth {
                break above;
            }
            (up, above) = (child_above(up.as_fd())?, above + 1);
        };
        self.depths.insert(own, depth);
        Ok(depth)
    }

    fn link_target<R: Read>(&self, entry: &Entry<'_, R>) -> Done<Vec<u8>> {
        match entry.link_name_bytes() {
            Some(target) if target.len() > self.limits.path_bytes => {
                Err(limit("the length of a link target", self.limits.path_bytes as u64, "bytes"))
            }
            Some(target) if !target.is_empty() && !target.contains(&0) => Ok(target.into_owned()),
            _ => refused("is a link without a target"),
        }
    }

    /// Splits a path into names; `.` and doubled slashes vanish.
    fn parts<'p>(&self, path: &'p [u8]) -> Done<Vec<&'p [u8]>> {
        if path.len() > self.limits.path_bytes {
            return Err(limit("the length of a path", self.limits.path_bytes as u64, "bytes"));
        }
        if path.is_empty() || path.contains(&0) {
            return refused("is an empty path or holds a NUL");
        }
        if path.starts_with(b"/") {
            return refused("is absolute");
        }
        let parts: Vec<_> = path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
        if parts.contains(&&b".."[..]) { refused("has a '..'") } else { Ok(parts) }
    }
}

/// Opens the directory above; the root's own is the root.
fn child_above(dir: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    child(dir, b"..")
}
