//! The next revision, written aside from its base: unchanged files are copied from the base's directory
//! and checked against the manifest while they are copied, the others come from the change (FT.4, WS.5).
//!
//! The base is only read, one name at a time beneath its descriptor. A copy shares the base's blocks
//! where the file system can clone them (FICLONE); it is never a hardlink, so nothing that is written to
//! one revision shows in another.

use super::{beneath, durable, hashing};
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
    let mut aside = Aside {
        base: base
            .parent()
            .and_then(|p| Some(p.canonicalize().ok()?.join(base.file_name()?)))
            .and_then(|path| beneath::root(&path).ok())
            .map(|root| Stack { root, open: Vec::new() }),
        into: Stack { root, open: Vec::new() },
        clones: true,
    };
    let mut written: BTreeMap<_, _> = change.written.iter().map(|(path, bytes)| (path, bytes)).collect();
    let (mut changed, mut contents, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for file in change.target.files() {
        let at = into.join(file.path.as_str());
        let failed = |source| AsideError::Write { path: at.clone(), source };
        fault::reach("stage.file", Side::Before, file.path.as_str()).map_err(failed)?;
        let given = written.remove(&file.path);
        match aside.file(file, given.map(Vec::as_slice)).map_err(|errno| failed(errno.into()))? {
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
        aside.into.make(&names).map_err(|errno| AsideError::Write {
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

struct Aside {
    /// `None` when it cannot be opened: then every file of it counts as changed.
    base: Option<Stack>,
    into: Stack,
    /// False once the file system has refused to clone.
    clones: bool,
}

impl Aside {
    /// Writes a file and answers what was written; `None` when the base does not have it as it should.
    fn file(&mut self, file: &FileEntry, given: Option<&[u8]>) -> Result<Option<Vec<u8>>, Errno> {
        let mut names: Vec<_> = file.path.as_str().split('/').collect();
        let name = names.pop().ok_or(Errno::INVAL)?;
        let source = match given {
            Some(_) => None,
            None => match self.source(&names, name, file.length) {
                Some(source) => Some(source),
                None => return Ok(None),
            },
        };
        let copy = beneath::create(self.into.make(&names)?.as_fd(), name)?;
        rustix::fs::fchmod(&copy, if file.executable { EXECUTABLE } else { PLAIN })?;
        let content = match (given, source) {
            (Some(bytes), _) => bytes.to_vec(),
            (None, Some(source)) => {
                if self.clones && file.length > 0 && self.clone(&copy, &source)? {
                    // What was cloned is what is checked.
                    return whole(&copy, file.length).map(Some);
                }
                whole(&source, file.length)?
            }
            (None, None) => return Ok(None),
        };
        put(&copy, &content)?;
        Ok(Some(content))
    }

    /// Opens a file of the base, if it is one of its own.
    fn source(&mut self, names: &[&str], name: &str, length: u64) -> Option<OwnedFd> {
        let parent = self.base.as_mut()?.find(names).ok()?;
        let fd = beneath::file(parent.as_fd(), name).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        let own = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1;
        (own && u64::try_from(stat.st_size).is_ok_and(|size| size == length)).then_some(fd)
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

/// A directory and those below it that lead to the current one.
struct Stack {
    root: OwnedFd,
    open: Vec<(String, OwnedFd)>,
}

impl Stack {
    /// Goes to a directory that exists.
    fn find(&mut self, names: &[&str]) -> Result<&OwnedFd, Errno> {
        self.go(names, |parent, name| beneath::directory(parent.as_fd(), name))
    }

    /// Goes to a directory, and makes what is missing of its path.
    fn make(&mut self, names: &[&str]) -> Result<&OwnedFd, Errno> {
        self.go(names, |parent, name| {
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

    fn go(
        &mut self,
        names: &[&str],
        enter: impl Fn(&OwnedFd, &str) -> Result<OwnedFd, Errno>,
    ) -> Result<&OwnedFd, Errno> {
        let common = self.open.iter().zip(names).take_while(|((open, _), name)| open == **name).count();
        self.open.truncate(common);
        for name in &names[common..] {
            let parent = self.open.last().map_or(&self.root, |(_, fd)| fd);
            let fd = enter(parent, name)?;
            self.open.push(((*name).to_owned(), fd));
        }
        Ok(self.open.last().map_or(&self.root, |(_, fd)| fd))
    }
}

/// Reads a file from its start, at most one byte past `length`, which shows growth.
fn whole(fd: &OwnedFd, length: u64) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0u8; usize::try_from(length).map_err(|_| Errno::FBIG)? + 1];
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(fd, &mut buffer[filled..], filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
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
