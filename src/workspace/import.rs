//! Import: an owned copy of a project (WS.1 to WS.4). The project itself is only read.

use super::policy::Limits;
use super::refused::Refusals;
use super::walk::{self, Sink};
use super::{aside, beneath, durable};
use crate::domain::manifest::TreeManifest;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::session::Excluded;
use crate::fault::{self, Side};
use rustix::fs::Mode;
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// What was copied, and what was left out by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The copied tree.
    pub manifest: TreeManifest,
    /// What was left out, in the order of the walk.
    pub excluded: Vec<Excluded>,
}

/// Why nothing was imported. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Paths of the project may not enter a workspace.
    #[error("the project {} cannot be imported:\n{refused}", project.display())]
    Refused {
        /// The project.
        project: PathBuf,
        /// Which paths, and why.
        refused: Refusals,
    },
    /// The project cannot be opened as a directory.
    #[error("the project {} cannot be opened: {source}", path.display())]
    Project {
        /// The project.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The system lacks openat2(2).
    #[error("this kernel has no openat2, which safe imports need")]
    NoOpenat2,
    /// The copy would not fit.
    #[error("the file system of {} has {free} bytes and {free_inodes} inodes free; the copy needs \
             {needed} bytes and {needed_inodes} inodes", path.display())]
    NoSpace {
        /// Where the copy would lie.
        path: PathBuf,
        /// Free bytes.
        free: u64,
        /// Needed bytes.
        needed: u64,
        /// Free inodes.
        free_inodes: u64,
        /// Needed inodes.
        needed_inodes: u64,
    },
    /// The copy could not be written.
    #[error("the copy {} could not be written: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl From<&ImportError> for Refusal {
    fn from(error: &ImportError) -> Self {
        let (code, hint) = match error {
            ImportError::Refused { refused, .. } if refused.only_limits() => {
                (Code::LimitExceeded, "make the project smaller, or import a directory of it")
            }
            ImportError::Refused { .. } => {
                (Code::ImportRefused, "change the paths as listed, then create the session again")
            }
            ImportError::Project { .. } => {
                (Code::ImportRefused, "give an existing directory that you may read")
            }
            ImportError::NoOpenat2 => (Code::Host, "use Linux 5.6 or later"),
            ImportError::NoSpace { .. } => {
                (Code::LimitExceeded, "free space there, or use another coding root")
            }
            ImportError::Write { .. } => {
                (Code::Internal, "check the disk of the coding root, then try again")
            }
        };
        Self::new(code, error.to_string(), hint)
    }
}

/// Copies the directory `project` to `into`, which must not exist yet but whose parent must.
///
/// Directories get mode 0755, files 0644, or 0755 when their owner may execute them; times and
/// owners are not kept. A symlink in the path of `project` itself is resolved once. Nothing is
/// synced: publishing does that for the whole tree.
///
/// # Errors
/// [`ImportError`]; `into` is removed again, unless it existed before.
pub fn import(project: &Path, into: &Path, limits: &Limits) -> Result<Imported, ImportError> {
    let unopened = |source| ImportError::Project { path: project.to_owned(), source };
    let canonical = project.canonicalize().map_err(unopened)?;
    let root = match beneath::root(&canonical) {
        Ok(root) => root,
        Err(Errno::NOSYS) => return Err(ImportError::NoOpenat2),
        Err(errno) => return Err(unopened(errno.into())),
    };
    // The project's size is not known yet, so there must be room for the largest tree.
    check_space(into.parent().unwrap_or(into), limits.total_bytes, limits.entries)?;

    let mut copy = Copy::begin(into)?;
    let walked = walk::walk(root, limits, &mut copy)?;
    if !walked.refused.is_empty() {
        return Err(ImportError::Refused { project: canonical, refused: walked.refused });
    }
    copy.keep();
    Ok(Imported { manifest: walked.manifest, excluded: walked.excluded })
}

/// Asks for room for a tree of so many bytes and entries.
pub(super) fn check_space(parent: &Path, bytes: u64, entries: u64) -> Result<(), ImportError> {
    let stat = rustix::fs::statvfs(parent)
        .map_err(|errno| ImportError::Write { path: parent.to_owned(), source: errno.into() })?;
    let block = stat.f_frsize.max(1);
    let needed = bytes.saturating_add(entries.saturating_mul(block));
    let free = stat.f_bavail.saturating_mul(block);
    // btrfs and others report no inode count at all: they have no such limit.
    let free_inodes = if stat.f_files == 0 { u64::MAX } else { stat.f_favail };
    if free < needed || free_inodes < entries {
        let (path, needed_inodes) = (parent.to_owned(), entries);
        return Err(ImportError::NoSpace { path, free, needed, free_inodes, needed_inodes });
    }
    Ok(())
}

/// A copy under way; dropped before [`Copy::keep`], it is removed.
struct Copy {
    into: PathBuf,
    open: Vec<OwnedFd>,
    /// Names of the open directories, for error messages.
    at: PathBuf,
    kept: bool,
}

const DIRECTORY: Mode = Mode::from_raw_mode(0o755);
const PLAIN: Mode = Mode::from_raw_mode(0o644);
const EXECUTABLE: Mode = Mode::from_raw_mode(0o755);

impl Copy {
    fn begin(into: &Path) -> Result<Self, ImportError> {
        let failed = |errno: Errno| ImportError::Write { path: into.to_owned(), source: errno.into() };
        rustix::fs::mkdir(into, Mode::RWXU).map_err(failed)?;
        let mut copy = Self { into: into.to_owned(), open: Vec::new(), at: into.to_owned(), kept: false };
        let root = durable::open_directory(into).map_err(failed)?;
        rustix::fs::fchmod(&root, DIRECTORY).map_err(failed)?;
        copy.open.push(root);
        Ok(copy)
    }

    fn keep(mut self) {
        self.kept = true;
    }

    fn top(&self) -> Result<&OwnedFd, Errno> {
        self.open.last().ok_or(Errno::BADF)
    }

    fn failed(&self, name: &str) -> impl FnOnce(Errno) -> ImportError {
        let path = self.at.join(name);
        move |errno| ImportError::Write { path, source: errno.into() }
    }

    fn make_directory(&self, name: &str) -> Result<OwnedFd, Errno> {
        let top = self.top()?;
        rustix::fs::mkdirat(top, name, Mode::RWXU)?;
        let made = beneath::directory(top.as_fd(), name)?;
        // By descriptor, since the umask of the caller takes bits from the mode of mkdir and open.
        rustix::fs::fchmod(&made, DIRECTORY)?;
        Ok(made)
    }

    fn make_file(&self, name: &str, executable: bool, content: &[u8]) -> Result<(), Errno> {
        let file = beneath::create(self.top()?.as_fd(), name)?;
        aside::put(&file, content)?;
        rustix::fs::fchmod(&file, if executable { EXECUTABLE } else { PLAIN })
    }
}

impl Sink for Copy {
    type Error = ImportError;
    const READS_ON: bool = false;

    fn enter(&mut self, name: &str) -> Result<(), ImportError> {
        let made = self.make_directory(name).map_err(self.failed(name))?;
        self.open.push(made);
        self.at.push(name);
        Ok(())
    }

    fn file(&mut self, name: &str, executable: bool, content: &[u8]) -> Result<(), ImportError> {
        let point = |side| {
            fault::reach("import.file", side, name)
                .map_err(|source| ImportError::Write { path: self.at.join(name), source })
        };
        point(Side::Before)?;
        self.make_file(name, executable, content).map_err(self.failed(name))?;
        point(Side::After)
    }

    fn leave(&mut self) -> Result<(), ImportError> {
        self.open.pop();
        self.at.pop();
        Ok(())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = std::fs::remove_dir_all(&self.into)
        {
            tracing::warn!(path = %self.into.display(), %error, "a refused copy could not be removed");
        }
    }
}
