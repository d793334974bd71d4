//! Where workspaces lie, and how a revision becomes durable.
//!
//! ```text
//!  <coding root>/                    0700, the operator's
//!    ws-…/                           one workspace
//!      r00001/ r00002/ …             published revisions, never rewritten
//!      .staging-r00001/              an import, written aside; renamed when synced
//!      .staging-app-…/               an application's revision, written aside, or kept (`revise`)
//!      .staging-bad-app-…/           one that could not be synced, on its way out
//!    .removing-ws-…/                 a workspace on its way out
//! ```
//! Publish = write aside, one syncfs, rename to a name that must be new, sync the parent. A crash
//! leaves at most a staging directory: an import's is removed by [`Store::sweep_staging`], an
//! application's is decided on by the journal that names it, and no sweep touches it. An import holds a
//! shared lock on the coding root (flock(2), freed by the kernel when its holder dies), and a sweep needs
//! it alone, so services that share a coding root do not sweep each other's imports.

use super::aside::AsideError;
use super::coding_root::{CodingRoot, RootError, check_root};
use super::durable;
use super::import::{ImportError, Imported, import};
use super::observe::ObserveError;
use super::policy::Limits;
use super::refused::Refusals;
use crate::domain::ids::{ApplicationId, WorkspaceId};
use crate::domain::refusal::{Code, Refusal};
use crate::fault::{self, Side};
use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const STAGING: &str = ".staging-";
const REMOVING: &str = ".removing-";
/// Longest wait for a sweep of another process to end.
const LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_STEP: Duration = Duration::from_millis(20);
/// Most entries that are counted or swept in one go; far above 33 revisions of 2,048 entries.
const COUNTED: u64 = 200_000;

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The coding root, or the project's place relative to it.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The project.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// A revision to be.
    #[error(transparent)]
    Aside(#[from] AsideError),
    /// What a directory holds cannot be told.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The name of the revision to be is in use.
    #[error("there is another directory at {}, where the next revision goes", path.display())]
    Taken {
        /// The name.
        path: PathBuf,
    },
    /// A tree that may not be a revision.
    #[error("the tree cannot be a revision:\n{refused}")]
    Refused {
        /// Which paths, and why.
        refused: Refusals,
    },
    /// The revision number is 0 or past the limit.
    #[error("workspace {id} cannot have a revision {revision}; the limit is {limit}")]
    Revisions {
        /// The workspace.
        id: WorkspaceId,
        /// The number asked for.
        revision: u32,
        /// [`Limits::revisions`].
        limit: u32,
    },
    /// The directories of the workspace hold too much.
    #[error("workspace {id} keeps {kept} bytes in {}; with one more revision it may pass the limit of {limit}", path.display())]
    Kept {
        /// The workspace.
        id: WorkspaceId,
        /// Its directory.
        path: PathBuf,
        /// Bytes in all its directories.
        kept: u64,
        /// [`Limits::kept_bytes`].
        limit: u64,
        /// What is kept there of changes that were blocked.
        blocked: Vec<PathBuf>,
    },
    /// Another process sweeps the coding root and does not end.
    #[error("another process has locked the coding root {} for 5 seconds", path.display())]
    Locked {
        /// The coding root.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl From<&StoreError> for Refusal {
    fn from(error: &StoreError) -> Self {
        let (code, hint) = match error {
            StoreError::Root(root) => return root.into(),
            StoreError::Import(import) => return import.into(),
            StoreError::Aside(aside) if aside.is_conflict() => {
                (Code::WorkspaceChanged, "adopt the edits with `sal workspace refresh`, or undo them")
            }
            StoreError::Aside(AsideError::Inconsistent { .. }) => {
                (Code::Internal, "this is a fault of the program; please report it with the service's log")
            }
            StoreError::Aside(_) => (Code::Internal, "check the disk of the coding root, then try again"),
            StoreError::Refused { refused } if refused.only_limits() => {
                (Code::LimitExceeded, "make the change smaller")
            }
            StoreError::Refused { .. } => (Code::Invalid, "change the paths as listed"),
            StoreError::Revisions { .. } => {
                (Code::LimitExceeded, "apply the diff to your checkout and create a new session from it")
            }
            StoreError::Kept { blocked, .. } => {
                let editors = "move what editors left in older revisions out of the workspace";
                let hint = match &blocked[..] {
                    [] => editors.to_owned(),
                    some => format!("delete what is kept of blocked changes ({}), or {editors}", named(some)),
                };
                return Self::new(Code::LimitExceeded, error.to_string(), hint);
            }
            StoreError::Observe(observe) => return observe.into(),
            StoreError::Taken { .. } => (Code::Conflict, "move it away, then repeat the change"),
            StoreError::Locked { .. } => (Code::NotReady, "end the other process, or try again"),
            StoreError::Io { .. } => (Code::Internal, "check the disk and the coding root, then try again"),
        };
        Self::new(code, error.to_string(), hint)
    }
}

/// Most directories that a hint names.
const NAMED: usize = 3;

fn named(paths: &[PathBuf]) -> String {
    let mut names: Vec<_> = paths.iter().take(NAMED).map(|path| path.display().to_string()).collect();
    if paths.len() > NAMED {
        names.push(format!("and {} more", paths.len() - NAMED));
    }
    names.join(", ")
}

/// The workspaces below a coding root.
#[derive(Clone, Debug)]
pub struct Store {
    root: CodingRoot,
    limits: Limits,
}

impl Store {
    /// Opens the store of a coding root, under the limits of WS.3.
    ///
    /// # Errors
    /// What [`check_root`] refuses.
    pub fn open(coding_root: &Path) -> Result<Self, RootError> {
        Ok(Self { root: check_root(coding_root)?, limits: Limits::fixed() })
    }

    /// The coding root.
    pub fn coding_root(&self) -> &CodingRoot {
        &self.root
    }

    /// The limits that it keeps.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Checks that `project` and the coding root are not nested.
    ///
    /// # Errors
    /// See [`CodingRoot::outside`].
    pub fn outside(&self, project: &Path) -> Result<(), RootError> {
        self.root.outside(project)
    }

    /// The directory of a revision, whether or not it exists.
    pub fn root(&self, id: &WorkspaceId, revision: u32) -> PathBuf {
        self.workspace(id).join(format!("r{revision:05}"))
    }

    pub(super) fn workspace(&self, id: &WorkspaceId) -> PathBuf {
        self.root.path().join(id.as_str())
    }

    /// Imports `project` as revision 1 of the new workspace `id`, durably.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is left of the workspace.
    pub fn create_workspace(&self, id: &WorkspaceId, project: &Path) -> Result<Created, StoreError> {
        self.outside(project)?;
        let _lock = self.share()?;
        let directory = self.workspace(id);
        rustix::fs::mkdir(&directory, Mode::RWXU).map_err(io("creating", &directory))?;
        let created = self.fill(id, project, &directory);
        if created.is_err()
            && let Err(error) = std::fs::remove_dir_all(&directory)
        {
            tracing::warn!(path = %directory.display(), %error, "a failed workspace could not be removed");
        }
        created
    }

    fn fill(&self, id: &WorkspaceId, project: &Path, directory: &Path) -> Result<Created, StoreError> {
        // The umask may have taken bits; uid 65532 reaches a revision through this directory.
        let mode = Mode::from_raw_mode(0o755);
        durable::open_directory(directory)
            .and_then(|fd| rustix::fs::fchmod(fd, mode))
            .map_err(io("setting the mode of", directory))?;
        let (staged, root) = (directory.join(format!("{STAGING}r00001")), self.root(id, 1));
        let imported = at("import", &staged, || Ok(import(project, &staged, &self.limits)?))?;
        at("import.sync", &staged, || durable::sync_tree(&staged).map_err(io("syncing", &staged)))?;
        at("import.rename", &staged, || {
            durable::rename_new(&staged, &root).map_err(io("publishing", &root))
        })?;
        at("import.done", self.root.path(), || {
            [directory, self.root.path()]
                .into_iter()
                .try_for_each(|parent| durable::sync_directory(parent).map_err(io("syncing", parent)))
        })?;
        Ok(Created { root, imported })
    }

    /// Sums the bytes in all directories of a workspace, older revisions and editors' files included.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn kept_bytes(&self, id: &WorkspaceId) -> Result<u64, StoreError> {
        let (mut bytes, mut counted) = (0u64, 0u64);
        let mut pending = vec![self.workspace(id)];
        while let Some(directory) = pending.pop() {
            for entry in list(&directory)? {
                counted += 1;
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.is_dir() {
                    pending.push(entry.path());
                } else {
                    bytes = bytes.saturating_add(metadata.len());
                }
            }
            if counted > COUNTED {
                return Ok(u64::MAX);
            }
        }
        Ok(bytes)
    }

    /// Removes a workspace with all its revisions; `false` when there was none.
    ///
    /// # Errors
    /// A failed file operation; what is left is removed by the next [`Store::sweep_staging`].
    pub fn remove_workspace(&self, id: &WorkspaceId) -> Result<bool, StoreError> {
        let directory = self.workspace(id);
        let aside = self.root.path().join(format!("{REMOVING}{id}"));
        remove(&aside)?;
        let found = at("remove.rename", &directory, || match durable::rename_new(&directory, &aside) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(io("removing", &directory)(errno)),
        })?;
        if !found {
            return Ok(false);
        }
        at("remove.tree", &aside, || remove(&aside))?;
        durable::sync_directory(self.root.path()).map_err(io("syncing", self.root.path()))?;
        Ok(true)
    }

    /// Removes what dead imports and removals have left, and gives the removed paths.
    ///
    /// Names that are not the store's own are never touched. Nothing is swept while another process
    /// imports below the same coding root; that is no error.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn sweep_staging(&self) -> Result<Vec<PathBuf>, StoreError> {
        let root = self.root.path();
        let fd = durable::open_directory(root).map_err(io("opening", root))?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(Vec::new()),
            Err(errno) => return Err(io("locking", root)(errno)),
        }
        let mut removed = Vec::new();
        for entry in list(root)? {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.strip_prefix(REMOVING).is_some_and(|id| WorkspaceId::parse(id).is_ok()) {
                at("unstage", &entry.path(), || remove(&entry.path()))?;
                removed.push(entry.path());
            } else if WorkspaceId::parse(name).is_ok() {
                sweep_workspace(&entry.path(), &mut removed)?;
            }
        }
        if !removed.is_empty() {
            durable::sync_directory(root).map_err(io("syncing", root))?;
        }
        Ok(removed)
    }

    /// Takes the shared lock of everyone who imports.
    fn share(&self) -> Result<OwnedFd, StoreError> {
        let root = self.root.path();
        let fd = durable::open_directory(root).map_err(io("opening", root))?;
        let mut waited = Duration::ZERO;
        loop {
            match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockShared) {
                Ok(()) => return Ok(fd),
                Err(Errno::WOULDBLOCK | Errno::INTR) if waited < LOCK_WAIT => {
                    std::thread::sleep(LOCK_STEP);
                    waited += LOCK_STEP;
                }
                Err(Errno::WOULDBLOCK) => return Err(StoreError::Locked { path: root.to_owned() }),
                Err(errno) => return Err(io("locking", root)(errno)),
            }
        }
    }
}

/// Removes what imports staged in a workspace, and the workspace itself if no revision was ever published.
/// What an application staged is decided on by its own ledger, which may be another service's.
fn sweep_workspace(directory: &Path, removed: &mut Vec<PathBuf>) -> Result<(), StoreError> {
    for entry in list(directory)? {
        if entry.file_name().to_str().and_then(|name| name.strip_prefix(STAGING)).is_some_and(swept) {
            at("unstage", &entry.path(), || remove(&entry.path()))?;
            removed.push(entry.path());
        }
    }
    match rustix::fs::rmdir(directory) {
        Ok(()) => removed.push(directory.to_owned()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        Err(errno) => return Err(io("removing", directory)(errno)),
    }
    Ok(())
}

pub(super) fn swept(staged: &str) -> bool {
    ApplicationId::parse(staged).is_err()
}

/// A new workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// The directory of revision 1.
    pub root: PathBuf,
    /// What was copied and what was left out.
    pub imported: Imported,
}

pub(super) fn io<E: Into<std::io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> StoreError {
    let path = path.to_owned();
    move |error| StoreError::Io { what, path, source: error.into() }
}

/// Runs a step on a path between its two points of [`fault`].
fn at<T>(
    boundary: &'static str,
    path: &Path,
    step: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let passed =
        |side| fault::reach(boundary, side, &path.to_string_lossy()).map_err(io("at a point of", path));
    passed(Side::Before)?;
    let value = step()?;
    passed(Side::After)?;
    Ok(value)
}

/// Lists a directory of the store's own; its size is bounded by the limits and by what editors add.
pub(super) fn list(directory: &Path) -> Result<Vec<std::fs::DirEntry>, StoreError> {
    std::fs::read_dir(directory)
        .and_then(|entries| entries.take(COUNTED as usize).collect())
        .map_err(io("listing", directory))
}

/// Removes a tree without following symlinks; a missing one is fine.
pub(super) fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io("removing", path)(error)),
        _ => Ok(()),
    }
}
