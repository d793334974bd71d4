//! The coding root: the private directory below which every workspace lies (SVC.2).

use super::durable;
use crate::domain::refusal::{Code, Refusal};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// A directory that has passed [`check_root`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodingRoot {
    path: PathBuf,
    volatile: bool,
}

/// Why a directory cannot be the coding root, or a project cannot be imported below it.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// It does not exist.
    #[error("the coding root {} does not exist", path.display())]
    Missing {
        /// The path as given.
        path: PathBuf,
    },
    /// Its name is not UTF-8, and the ledger could not tell it.
    #[error("the coding root {} has a name that is not UTF-8", path.display())]
    NotUtf8 {
        /// The path with every link above it resolved.
        path: PathBuf,
    },
    /// Its last component is a symlink.
    #[error("the coding root {} is a symlink", path.display())]
    Symlink {
        /// The path as given.
        path: PathBuf,
    },
    /// It is something else than a directory.
    #[error("the coding root {} is not a directory", path.display())]
    NotDirectory {
        /// The path as given.
        path: PathBuf,
    },
    /// Other users may reach it, or its owner may not.
    #[error("the coding root {} has mode {mode:04o}; it must be 0700", path.display())]
    Mode {
        /// The path as given.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to somebody else.
    #[error("the coding root {} belongs to uid {owner}; it must belong to uid {caller}", path.display())]
    Owner {
        /// The path as given.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The effective uid of the caller.
        caller: u32,
    },
    /// The coding root lies in the project, or is it.
    #[error("the coding root {} lies inside the project {}", root.display(), project.display())]
    InsideProject {
        /// The coding root.
        root: PathBuf,
        /// The project.
        project: PathBuf,
    },
    /// The project lies in the coding root.
    #[error("the project {} lies inside the coding root {}", project.display(), root.display())]
    ContainsProject {
        /// The coding root.
        root: PathBuf,
        /// The project.
        project: PathBuf,
    },
    /// The system would not let a path be examined.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl From<&RootError> for Refusal {
    fn from(error: &RootError) -> Self {
        let hint = match error {
            RootError::Missing { path } => format!("create it: mkdir -m 700 '{}'", path.display()),
            RootError::NotUtf8 { .. } => "rename it, or give another directory".to_owned(),
            RootError::Symlink { .. } => "give the directory that it points to".to_owned(),
            RootError::NotDirectory { .. } => "give a directory".to_owned(),
            RootError::Mode { path, .. } => format!("make it private: chmod 700 '{}'", path.display()),
            RootError::Owner { .. } => "give a directory of your own".to_owned(),
            RootError::InsideProject { .. } | RootError::ContainsProject { .. } => {
                "use a coding root outside every project".to_owned()
            }
            RootError::Io { .. } => "check the path and its permissions".to_owned(),
        };
        Self::new(Code::UnsafePath, error.to_string(), hint)
    }
}

/// Checks that `path` may be the coding root: an existing directory of mode 0700 that the effective
/// user owns and whose last component is no symlink.
///
/// # Errors
/// The [`RootError`] that applies.
pub fn check_root(path: &Path) -> Result<CodingRoot, RootError> {
    let given = || path.to_owned();
    let io = |source| RootError::Io { path: given(), source };
    // Without this, a trailing slash or `/.` would make the kernel follow a symlink.
    let plain: PathBuf = path.components().collect();
    let fd = match durable::open_directory(&plain) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Err(RootError::Missing { path: given() }),
        Err(errno @ (Errno::LOOP | Errno::NOTDIR)) => {
            let symlink = std::fs::symlink_metadata(&plain).is_ok_and(|m| m.file_type().is_symlink());
            return Err(match errno {
                _ if symlink => RootError::Symlink { path: given() },
                Errno::NOTDIR => RootError::NotDirectory { path: given() },
                _ => io(errno.into()),
            });
        }
        Err(errno) => return Err(io(errno.into())),
    };
    let stat = rustix::fs::fstat(&fd).map_err(|errno| io(errno.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(RootError::NotDirectory { path: given() });
    }
    let caller = rustix::process::geteuid().as_raw();
    if stat.st_uid != caller {
        return Err(RootError::Owner { path: given(), owner: stat.st_uid, caller });
    }
    #[allow(clippy::useless_conversion)] // mode_t is 16 bits wide on macOS.
    let mode = u32::from(stat.st_mode) & 0o7777;
    if mode != 0o700 {
        return Err(RootError::Mode { path: given(), mode });
    }
    let volatile = is_volatile(&fd).map_err(|errno| io(errno.into()))?;
    let parent = match plain.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let path = match plain.components().next_back() {
        Some(Component::Normal(name)) => parent.canonicalize().map_err(io)?.join(name),
        _ => plain.canonicalize().map_err(io)?,
    };
    if path.to_str().is_none() {
        return Err(RootError::NotUtf8 { path });
    }
    Ok(CodingRoot { path, volatile })
}

#[cfg(target_os = "linux")]
fn is_volatile(fd: &std::os::fd::OwnedFd) -> Result<bool, Errno> {
    /// RAMFS_MAGIC of statfs(2), which libc does not name.
    const RAMFS: u64 = 0x8584_58f6;
    let magic = rustix::fs::fstatfs(fd)?.f_type;
    #[allow(clippy::cast_sign_loss)]
    Ok(magic as u64 == nix::libc::TMPFS_MAGIC as u64 || magic as u64 == RAMFS)
}

#[cfg(not(target_os = "linux"))]
fn is_volatile(_fd: &std::os::fd::OwnedFd) -> Result<bool, Errno> {
    Ok(false)
}

impl CodingRoot {
    /// Its absolute path, without symlinks.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A warning for the operator when its content does not survive a reboot (tmpfs, ramfs).
    pub fn warning(&self) -> Option<String> {
        self.volatile.then(|| {
            format!(
                "the coding root {} lies in memory (tmpfs): workspaces are lost at a reboot; use a \
                 directory on a disk to keep them",
                self.path.display()
            )
        })
    }

    /// Checks that neither `project` lies in the coding root nor the coding root in `project`.
    ///
    /// Directories are compared by device and inode up to `/`, so a bind mount or another spelling
    /// does not hide that they are nested.
    ///
    /// # Errors
    /// [`RootError::InsideProject`], [`RootError::ContainsProject`] or [`RootError::Io`].
    pub fn outside(&self, project: &Path) -> Result<(), RootError> {
        let io = |path: &Path, source| RootError::Io { path: path.to_owned(), source };
        let real = project.canonicalize().map_err(|e| io(project, e))?;
        let (root, project) = (self.path.clone(), project.to_owned());
        if is_ancestor(&real, &self.path).map_err(|e| io(&self.path, e))? {
            return Err(RootError::InsideProject { root, project });
        }
        if is_ancestor(&self.path, &real).map_err(|e| io(&real, e))? {
            return Err(RootError::ContainsProject { root, project });
        }
        Ok(())
    }
}

/// True when `upper` is `lower` or a directory above it.
fn is_ancestor(upper: &Path, lower: &Path) -> Result<bool, std::io::Error> {
    let identity = |path: &Path| path.metadata().map(|m| (m.dev(), m.ino()));
    let wanted = identity(upper)?;
    for path in lower.ancestors() {
        if identity(path)? == wanted {
            return Ok(true);
        }
    }
    Ok(false)
}
