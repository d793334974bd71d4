//! The one walk over a tree, for import and for observation (WS.1 to WS.5).
//!
//! ```text
//!  names of a directory ─▶ excluded? ─▶ name allowed? ─▶ twin? ─▶ open beneath ─▶ fstat ─▶ read ─▶ fstat
//!                            │ listed       │ refused     │ refused    │ refused                 │ refused
//! ```
//! Everything it holds is bounded: names by the entry limit, contents by the limits for one file and
//! for all, open descriptors by the depth. It writes nothing below its root; a [`Sink`] may write elsewhere.

use super::policy::{Limits, collision_key, printable};
use super::refused::{Kind, LimitName, Refusals, Special};
use super::{beneath, exclusion, hashing};
use crate::domain::manifest::{FileEntry, TreeManifest};
use crate::domain::relpath::{BadPath, MAX_COMPONENT_BYTES, RelPath};
use crate::domain::session::Excluded;
use rustix::fs::{AtFlags, Dir, FileType, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// What is done with each admitted entry.
pub(super) trait Sink {
    /// Why an entry could not be taken; it ends the walk.
    type Error;

    /// True when files are read even after something was refused.
    const READS_ON: bool;

    /// Enters the directory `name` below the current one.
    fn enter(&mut self, name: &str) -> Result<(), Self::Error>;

    /// Takes the file `name` of the current directory.
    fn file(&mut self, name: &str, executable: bool, content: &[u8]) -> Result<(), Self::Error>;

    /// Goes back to the directory above.
    fn leave(&mut self) -> Result<(), Self::Error>;
}

/// What a walk found.
pub(super) struct Walked {
    /// The admitted files that were read.
    pub manifest: TreeManifest,
    /// What was left out by name.
    pub excluded: Vec<Excluded>,
    /// What may not be in a tree.
    pub refused: Refusals,
}

/// Walks the directory `root`.
pub(super) fn walk<S: Sink>(root: OwnedFd, limits: &Limits, sink: &mut S) -> Result<Walked, S::Error> {
    let mut walk = Walk {
        limits,
        sink,
        files: Vec::new(),
        contents: Vec::new(),
        empty_dirs: Vec::new(),
        excluded: Vec::new(),
        refused: Refusals::default(),
        entries: 0,
        seen_files: 0,
        seen_bytes: 0,
        over_files: None,
        over_bytes: None,
        stopped: false,
    };
    walk.directory(root, &RelPath::default(), 0)?;
    Ok(walk.finish())
}

struct Walk<'a, S> {
    limits: &'a Limits,
    sink: &'a mut S,
    /// Path and executable bit of each file that was read.
    files: Vec<(RelPath, bool)>,
    /// Their contents, in the same order; hashed when the walk has ended.
    contents: Vec<Vec<u8>>,
    empty_dirs: Vec<RelPath>,
    excluded: Vec<Excluded>,
    refused: Refusals,
    entries: u64,
    seen_files: u64,
    seen_bytes: u64,
    /// The file that passed the limit; the figures are known when the walk ends.
    over_files: Option<RelPath>,
    over_bytes: Option<RelPath>,
    stopped: bool,
}

impl<S: Sink> Walk<'_, S> {
    fn finish(mut self) -> Walked {
        let at_least = self.stopped;
        let totals = [
            (self.over_files.take(), LimitName::Files, self.seen_files, self.limits.files),
            (self.over_bytes.take(), LimitName::TotalBytes, self.seen_bytes, self.limits.total_bytes),
        ];
        for (path, name, figure, limit) in totals {
            if let Some(path) = path {
                let kind = Kind::Limit { name, figure, at_least, limit };
                self.refused.push(printable(path.as_str().as_bytes()), kind);
            }
        }
        let digests = hashing::hash_all(&self.contents);
        let entries = self.files.into_iter().zip(self.contents.iter().zip(digests));
        let files = entries
            .map(|((path, executable), (bytes, content))| FileEntry {
                path,
                executable,
                length: bytes.len() as u64,
                content,
            })
            .collect();
        Walked {
            manifest: TreeManifest::new(files, self.empty_dirs),
            excluded: self.excluded,
            refused: self.refused,
        }
    }

    /// Walks one directory; `depth` is the number of components of `at`.
    fn directory(&mut self, fd: OwnedFd, at: &RelPath, depth: usize) -> Result<(), S::Error> {
        let names = match self.names(&fd, at) {
            Ok(names) => names,
            Err(errno) => {
                self.refuse(at, unreadable(errno));
                return Ok(());
            }
        };
        let dir = fd.as_fd();
        let mut seen: HashMap<String, String> = HashMap::with_capacity(names.len());
        let mut held = false;
        for (raw, file_type) in names {
            if self.stopped {
                break;
            }
            let Some(path) = self.admit_name(at, raw.to_bytes(), depth, &mut seen) else { continue };
            let name = path.as_str().rsplit('/').next().unwrap_or_default().to_owned();
            held = true;
            match self.file_type(dir, &name, file_type) {
                Ok(FileType::Directory) => self.subdirectory(dir, &name, &path, depth + 1)?,
                Ok(FileType::RegularFile) => self.file(dir, &name, &path)?,
                Ok(other) => self.refuse(&path, of_type(other)),
                Err(errno) => self.refuse(&path, of_errno(errno)),
            }
        }
        if !held && depth > 0 {
            self.empty_dirs.push(at.clone());
        }
        Ok(())
    }

    /// Lists a directory, sorted by bytes, as far as the entry limit allows.
    fn names(&mut self, fd: &OwnedFd, at: &RelPath) -> Result<Vec<(CString, FileType)>, Errno> {
        let mut dir = Dir::read_from(fd)?;
        let mut names = Vec::new();
        while let Some(entry) = dir.read() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.entries += 1;
            if self.entries > self.limits.entries {
                self.stopped = true;
                let (figure, limit) = (self.entries, self.limits.entries);
                let name = LimitName::Entries;
                self.refuse(at, Kind::Limit { name, figure, at_least: true, limit });
                break;
            }
            names.push((name.to_owned(), entry.file_type()));
        }
        names.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(names)
    }

    /// Judges a name before anything of that name is touched.
    fn admit_name(
        &mut self,
        at: &RelPath,
        raw: &[u8],
        depth: usize,
        seen: &mut HashMap<String, String>,
    ) -> Option<RelPath> {
        let shown = || join(at, &printable(raw));
        if let Some(reason) = exclusion::of_name(at, &String::from_utf8_lossy(raw)) {
            self.excluded.push(Excluded { path: shown(), reason: reason.to_owned() });
            return None;
        }
        let Ok(name) = std::str::from_utf8(raw) else {
            self.refused.push(shown(), Kind::NotUtf8);
            return None;
        };
        let limit = |name, figure: usize, limit: usize| Kind::Limit {
            name,
            figure: figure as u64,
            at_least: name == LimitName::Components,
            limit: limit as u64,
        };
        let too_deep = limit(LimitName::Components, depth + 1, self.limits.components);
        let bad = match at.join(name) {
            Ok(_) if depth >= self.limits.components => too_deep,
            Ok(path) => {
                let Some(twin) = seen.insert(collision_key(name), name.to_owned()) else { return Some(path) };
                Kind::Collision { twin: join(at, &printable(twin.as_bytes())) }
            }
            Err(BadPath::TooDeep) => too_deep,
            Err(BadPath::Control) => Kind::ControlCharacter,
            Err(BadPath::NameTooLong) => limit(LimitName::NameBytes, name.len(), MAX_COMPONENT_BYTES),
            Err(BadPath::Traversal | BadPath::Absolute) => Kind::Traversal,
        };
        self.refused.push(shown(), bad);
        None
    }

    /// Gives the type from the listing, or asks where the file system does not list it.
    fn file_type(&self, dir: BorrowedFd<'_>, name: &str, listed: FileType) -> Result<FileType, Errno> {
        if listed != FileType::Unknown {
            return Ok(listed);
        }
        rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| FileType::from_raw_mode(stat.st_mode))
    }

    fn subdirectory(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &str,
        path: &RelPath,
        depth: usize,
    ) -> Result<(), S::Error> {
        let fd = match beneath::directory(dir, name) {
            Ok(fd) => fd,
            Err(errno) => {
                self.refuse(path, of_errno(errno));
                return Ok(());
            }
        };
        let take = self.reads();
        if take {
            self.sink.enter(name)?;
        }
        self.directory(fd, path, depth)?;
        if take { self.sink.leave() } else { Ok(()) }
    }

    fn file(&mut self, dir: BorrowedFd<'_>, name: &str, path: &RelPath) -> Result<(), S::Error> {
        let (fd, stat, size) = match self.open(dir, name) {
            Ok(opened) => opened,
            Err(kind) => {
                self.refuse(path, kind);
                return Ok(());
            }
        };
        self.seen_files += 1;
        self.seen_bytes = self.seen_bytes.saturating_add(size);
        if self.seen_files > self.limits.files {
            self.over_files.get_or_insert_with(|| path.clone());
        }
        if self.seen_bytes > self.limits.total_bytes {
            self.over_bytes.get_or_insert_with(|| path.clone());
        }
        if !self.reads() {
            return Ok(());
        }
        match read_unchanged(&fd, &stat, size) {
            Ok(content) => {
                let executable = stat.st_mode & 0o100 != 0;
                self.sink.file(name, executable, &content)?;
                self.files.push((path.clone(), executable));
                self.contents.push(content);
            }
            Err(kind) => self.refuse(path, kind),
        }
        Ok(())
    }

    /// Opens a file and gives what fstat says of it and its size, if it may enter by itself.
    fn open(&self, dir: BorrowedFd<'_>, name: &str) -> Result<(OwnedFd, Stat, u64), Kind> {
        let fd = beneath::file(dir, name).map_err(of_errno)?;
        let stat = rustix::fs::fstat(&fd).map_err(unreadable)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        match self.judge(&stat, size) {
            None => Ok((fd, stat, size)),
            Some(kind) => Err(kind),
        }
    }

    fn judge(&self, stat: &Stat, figure: u64) -> Option<Kind> {
        let limit = self.limits.file_bytes;
        match (FileType::from_raw_mode(stat.st_mode), stat.st_nlink) {
            (FileType::RegularFile, 0) => Some(Kind::Changed),
            (FileType::RegularFile, 1) if figure > limit => {
                Some(Kind::Limit { name: LimitName::FileBytes, figure, at_least: false, limit })
            }
            (FileType::RegularFile, 1) => None,
            #[allow(clippy::useless_conversion)] // st_nlink has another width on other systems.
            (FileType::RegularFile, links) => Some(Kind::Hardlink { links: links.into() }),
            (FileType::Directory, _) => Some(Kind::Changed),
            (other, _) => Some(of_type(other)),
        }
    }

    /// True while content is still wanted: never past a total limit, and for a sink that gives up at
    /// the first refusal, only until then.
    fn reads(&self) -> bool {
        self.over_files.is_none() && self.over_bytes.is_none() && (S::READS_ON || self.refused.is_empty())
    }

    fn refuse(&mut self, path: &RelPath, kind: Kind) {
        self.refused.push(printable(path.to_string().as_bytes()), kind);
    }
}

/// Reads a whole file of `size` bytes and checks that it is the same before and after.
///
/// The digest is taken from the bytes that are kept, so a change that the kernel's clock is too
/// coarse to show (before 6.13: one tick) still leaves one consistent copy.
fn read_unchanged(fd: &OwnedFd, before: &Stat, size: u64) -> Result<Vec<u8>, Kind> {
    let size = usize::try_from(size).map_err(|_| Kind::Changed)?;
    // One byte more than the size shows growth without reading to the end of a growing file.
    let mut buffer = vec![0u8; size + 1];
    let mut filled = 0;
    loop {
        match rustix::io::read(fd, &mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(unreadable(errno)),
        }
    }
    let after = rustix::fs::fstat(fd).map_err(unreadable)?;
    if filled != size || identity(before) != identity(&after) {
        return Err(Kind::Changed);
    }
    buffer.truncate(size);
    Ok(buffer)
}

#[allow(clippy::useless_conversion)] // These fields have other widths on other systems.
fn identity(stat: &Stat) -> [i128; 7] {
    [
        stat.st_ino.into(),
        stat.st_size.into(),
        stat.st_mode.into(),
        stat.st_mtime.into(),
        stat.st_mtime_nsec.into(),
        stat.st_ctime.into(),
        stat.st_ctime_nsec.into(),
    ]
}

fn join(at: &RelPath, name: &str) -> String {
    if at.is_root() { name.to_owned() } else { format!("{}/{name}", printable(at.as_str().as_bytes())) }
}

fn of_type(file_type: FileType) -> Kind {
    match file_type {
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Special(Special::Fifo),
        FileType::Socket => Kind::Special(Special::Socket),
        FileType::CharacterDevice => Kind::Special(Special::CharacterDevice),
        FileType::BlockDevice => Kind::Special(Special::BlockDevice),
        FileType::RegularFile | FileType::Directory => Kind::Changed,
        FileType::Unknown => Kind::Special(Special::Unknown),
    }
}

/// What an error of openat2(2) says about a name that was listed a moment ago.
fn of_errno(errno: Errno) -> Kind {
    match errno {
        Errno::LOOP => Kind::Symlink,
        Errno::XDEV => Kind::Traversal,
        Errno::NXIO => Kind::Special(Special::Socket),
        Errno::NOENT | Errno::NOTDIR | Errno::AGAIN | Errno::STALE => Kind::Changed,
        other => unreadable(other),
    }
}

fn unreadable(errno: Errno) -> Kind {
    let error = std::io::Error::from(errno).to_string();
    if beneath::is_ours(errno) { Kind::Fault { error } } else { Kind::Unreadable { error } }
}
