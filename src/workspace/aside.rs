//! The next revision, written aside from its base: unchanged files are copied from the base's directory
//! and checked against the manifest while they are copied, the others come from the change (FT.4, WS.5).
//!
//! The base is only read, one name at a time beneath its descriptor. A copy shares the base's blocks
//! where the file system can clone them (FICLONE); it is never a hardlink, so nothing that is written to
//! one revision shows in another.

use super::beneath::{self, Stack, is_ours, whole};
use super::{durable, hashing};
use crate::domain::change::TreeChange;
use crate::domain::manifest::FileEntry;
use crate::fault::{self, Side};
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

const DIRECTORY: Mode = Mode::from_raw_mode(0o755);
const PLAIN: Mode = Mode::from_raw_mode(0o644);
const EXECUTABLE: Mode = Mode::from_raw_mode(0o755);

/// Why a revision could not be written aside. What was written stays for the caller to remove.
#[derive(Debug, thiserror::Error)]
pub enum AsideError {
    /// Files of the base are not what the manifest says.
    #[error("the base {} is not what the change was made from: {}", base.display(), paths.join(", "))]
    Changed {
        /// The base's directory.
        base: PathBuf,
        /// The first of them, and how many more there are.
        paths: Vec<String>,
    },
    /// The change carries bytes that its own manifest does not name.
    #[error("the change is not consistent: '{path}' is not what its manifest says")]
    Inconsistent {
        /// The path.
        path: String,
    },
    /// The base could not be read, which says nothing about what it holds.
    #[error("the base {} could not be read: {source}", base.display())]
    Read {
        /// The base's directory.
        base: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file or directory could not be written.
    #[error("the revision could not be written at {}: {source}", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Most changed paths that an error names.
const NAMED: usize = 10;

/// Writes the target of `change` to `into`, which must not exist yet but whose parent must. Nothing is
/// synced. A file's mode is set before its content, so a whole tree has its final modes.
pub(super) fn write(base: &Path, change: &TreeChange, into: &Path) -> Result<(), AsideError> {
    let failed = |errno: Errno| AsideError::Write { path: into.to_owned(), source: errno.into() };
    rustix::fs::mkdir(into, Mode::RWXU).map_err(failed)?;
    let root = durable::open_directory(into).map_err(failed)?;
    rustix::fs::fchmod(&root, DIRECTORY).map_err(failed)?;
    let unread = |errno: Errno| AsideError::Read { base: base.to_owned(), source: errno.into() };
    let from = match beneath::revision(base) {
        Err(errno) if is_ours(errno) => return Err(unread(errno)),
        opened => opened.ok().map(Stack::new),
    };
    let mut aside = Aside { base: from, into: Stack::new(root), clones: true };
    let mut written: BTreeMap<_, _> = change.written.iter().map(|(path, bytes)| (path, bytes)).collect();
    let (mut changed, mut contents, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for file in change.target.files() {
        let at = into.join(file.path.as_str());
        let failed = |source| AsideError::Write { path: at.clone(), source };
        fault::reach("stage.file", Side::Before, file.path.as_str()).map_err(failed)?;
        let given = written.remove(&file.path);
        let source = match given {
            Some(_) => None,
            None => aside.source(file).map_err(unread)?,
        };
        let content = match (given, source) {
            (None, None) => None,
            (given, source) => Some(
                aside.file(file, given.map(Vec::as_slice), source).map_err(|errno| failed(errno.into()))?,
            ),
        };
        match content {
            Some(content) => {
                contents.push(content);
                read.push((file, given.is_some()));
            }
            None => changed.push(file.path.to_string()),
        }
        fault::reach("stage.file", Side::After, file.path.as_str()).map_err(failed)?;
    }
    for directory in change.target.empty_dirs() {
        let names: Vec<_> = directory.as_str().split('/').collect();
        make(&mut aside.into, &names).map_err(|errno| AsideError::Write {
            path: into.join(directory.as_str()),
            source: errno.into(),
        })?;
    }
    if let Some(path) = written.keys().next() {
        return Err(AsideError::Inconsistent { path: path.to_string() });
    }
    for ((file, given), (digest, content)) in
        read.iter().zip(hashing::hash_all(&contents).iter().zip(&contents))
    {
        if *digest == file.content && content.len() as u64 == file.length {
            continue;
        }
        if *given {
            return Err(AsideError::Inconsistent { path: file.path.to_string() });
        }
        changed.push(file.path.to_string());
    }
    if changed.is_empty() {
        return Ok(());
    }
    changed.sort();
    let more = changed.len().saturating_sub(NAMED);
    changed.truncate(NAMED);
    if more > 0 {
        changed.push(format!("and {more} more"));
    }
    Err(AsideError::Changed { base: base.to_owned(), paths: changed })
}

/// True when each file and directory of a tree of ours has its final mode.
pub(super) fn modes_are_final(root: &Path) -> std::io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let meta = path.symlink_metadata()?;
        let mode = meta.mode() & 0o7777;
        if mode != 0o755 && (meta.is_dir() || mode != 0o644) {
            return Ok(false);
        }
        if meta.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                pending.push(entry?.path());
            }
        }
    }
    Ok(true)
}

/// The directories that lead to a file, and its name.
fn split(file: &FileEntry) -> Result<(Vec<&str>, &str), Errno> {
    let mut names: Vec<_> = file.path.as_str().split('/').collect();
    let name = names.pop().ok_or(Errno::INVAL)?;
    Ok((names, name))
}

struct Aside {
    /// `None` when it cannot be opened: then every file of it counts as changed.
    base: Option<Stack>,
    into: Stack,
    /// False once the file system has refused to clone.
    clones: bool,
}

impl Aside {
    /// Writes a file, from what is given or from `source`, and answers what was written.
    fn file(
        &mut self,
        file: &FileEntry,
        given: Option<&[u8]>,
        source: Option<OwnedFd>,
    ) -> Result<Vec<u8>, Errno> {
        let (names, name) = split(file)?;
        let copy = beneath::create(make(&mut self.into, &names)?.as_fd(), name)?;
        rustix::fs::fchmod(&copy, if file.executable { EXECUTABLE } else { PLAIN })?;
        let content = match (given, source) {
            (Some(bytes), _) => bytes.to_vec(),
            (None, Some(source)) => {
                if self.clones && file.length > 0 && self.clone(&copy, &source)? {
                    // What was cloned is what is checked.
                    return whole(&copy, file.length);
                }
                whole(&source, file.length)?
            }
            (None, None) => return Err(Errno::INVAL),
        };
        put(&copy, &content)?;
        Ok(content)
    }

    /// Opens a file of the base; `None` when the base does not have it as it should, as one of its own.
    fn source(&mut self, file: &FileEntry) -> Result<Option<OwnedFd>, Errno> {
        let Some(base) = &mut self.base else { return Ok(None) };
        let (names, name) = split(file)?;
        let fd = match base.find(&names).and_then(|parent| beneath::file(parent.as_fd(), name)) {
            Ok(fd) => fd,
            Err(errno) if is_ours(errno) => return Err(errno),
            Err(_) => return Ok(None),
        };
        let stat = rustix::fs::fstat(&fd)?;
        let own = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1;
        Ok((own && u64::try_from(stat.st_size) == Ok(file.length)).then_some(fd))
    }

    /// Shares the blocks of `source` with `copy`; false where that cannot be had.
    fn clone(&mut self, copy: &OwnedFd, source: &OwnedFd) -> Result<bool, Errno> {
        #[cfg(target_os = "linux")]
        match rustix::fs::ioctl_ficlone(copy, source) {
            Ok(()) => return Ok(true),
            Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => return Err(errno),
            Err(_) => {}
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (copy, source);
        self.clones = false;
        Ok(false)
    }
}

/// Goes to a directory of ours, and makes what is missing of its path.
fn make<'a>(into: &'a mut Stack, names: &[&str]) -> Result<&'a OwnedFd, Errno> {
    into.go(names, |parent, name| {
        match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let made = beneath::directory(parent.as_fd(), name)?;
        // By descriptor, since the umask of the caller takes bits from the mode of mkdir.
        rustix::fs::fchmod(&made, DIRECTORY)?;
        Ok(made)
    })
}

/// Writes a whole content.
pub(super) fn put(file: &OwnedFd, mut rest: &[u8]) -> Result<(), Errno> {
    while !rest.is_empty() {
        match rustix::io::write(file, rest) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
