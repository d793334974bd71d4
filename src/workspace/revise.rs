//! The directories of an application: written aside under its own name, synced, renamed to the revision's
//! (FT.4). Each step can be done again after a crash; none touches another revision.

use super::admission;
use super::aside::{self, AsideError};
use super::beneath::is_ours;
use super::durable;
use super::import::check_space;
use super::observe::{ObserveError, observe};
use super::store::{STAGING, Store, StoreError, io, list, remove, swept};
use crate::domain::application::{Found, Intent, Survey};
use crate::domain::change::TreeChange;
use crate::domain::ids::{ApplicationId, WorkspaceId};
use crate::domain::manifest::TreeManifest;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

impl Store {
    /// The directory in which an application is written aside.
    pub fn aside(&self, id: &WorkspaceId, application: &ApplicationId) -> PathBuf {
        self.workspace(id).join(format!("{STAGING}{application}"))
    }

    /// Gives the directory of a revision to be, if a tree like `target` may be one and there is room.
    ///
    /// # Errors
    /// [`StoreError::Revisions`], [`StoreError::Refused`], [`StoreError::Kept`], [`StoreError::Taken`], or no
    /// free space.
    pub fn room(
        &self,
        id: &WorkspaceId,
        revision: u32,
        target: &TreeManifest,
    ) -> Result<PathBuf, StoreError> {
        let limits = self.limits();
        if revision == 0 || revision > limits.revisions {
            return Err(StoreError::Revisions { id: id.clone(), revision, limit: limits.revisions });
        }
        let refused = admission::judge(target, limits);
        if !refused.is_empty() {
            return Err(StoreError::Refused { refused });
        }
        let (kept, limit) = (self.kept_bytes(id)?, limits.kept_bytes);
        if kept.saturating_add(target.total_bytes()) > limit {
            return Err(self.kept_too_much(id, kept)?);
        }
        let files = target.files().len() as u64;
        // Each file may need a directory of its own for each component of its path, but no more than the
        // entry limit allows.
        check_space(&self.workspace(id), target.total_bytes(), limits.entries.min(files * 16 + 64))?;
        let root = self.root(id, revision);
        match root.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(root),
            Ok(_) => Err(StoreError::Taken { path: root }),
            Err(error) => Err(io("publishing", &root)(error)),
        }
    }

    /// Writes the target of `change` aside, from the base's directory; nothing is synced.
    ///
    /// # Errors
    /// [`StoreError::Aside`]; what was written stays until [`Store::discard_aside`].
    pub fn write_aside(&self, intent: &Intent, change: &TreeChange) -> Result<(), StoreError> {
        let into = self.aside(&intent.workspace_id, &intent.id);
        Ok(aside::write(Path::new(&intent.base.root), change, &into)?)
    }

    /// Makes what was written aside durable.
    ///
    /// # Errors
    /// A failed syncfs(2).
    pub fn sync_aside(&self, intent: &Intent) -> Result<(), StoreError> {
        let path = self.aside(&intent.workspace_id, &intent.id);
        durable::sync_tree(&path).map_err(io("syncing", &path))
    }

    /// Renames what was written aside to the revision's name, durably. If that is done already, only its
    /// durability is made sure.
    ///
    /// # Errors
    /// [`StoreError::Taken`], or the disk failed; whether the rename is durable is then unknown.
    pub fn publish_aside(&self, intent: &Intent) -> Result<(), StoreError> {
        let (from, to) = self.names(intent);
        match durable::rename_new(&from, &to) {
            Ok(()) => {}
            Err(Errno::NOENT) if to.is_dir() => {}
            Err(Errno::EXIST) => return Err(StoreError::Taken { path: to }),
            Err(errno) => return Err(io("publishing", &to)(errno)),
        }
        self.sync_workspace(intent)
    }

    /// Renames what was written aside and could not be synced: the system may hold its bytes in memory
    /// alone, and tells of that once. Under its new name a survey finds nothing of it.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn condemn_aside(&self, intent: &Intent) -> Result<(), StoreError> {
        let (aside, condemned) = (self.aside(&intent.workspace_id, &intent.id), self.condemned(intent));
        match durable::rename_new(&aside, &condemned) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(io("putting aside", &aside)(errno)),
        }
    }

    /// Removes what was written aside, condemned or not; there may be nothing.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn discard_aside(&self, intent: &Intent) -> Result<(), StoreError> {
        remove(&self.condemned(intent))?;
        remove(&self.aside(&intent.workspace_id, &intent.id))
    }

    /// Where what could not be synced lies until it is removed. A sweep may remove it too.
    fn condemned(&self, intent: &Intent) -> PathBuf {
        self.workspace(&intent.workspace_id).join(format!("{STAGING}bad-{}", intent.id))
    }

    /// Sees that what was written for an application lies under the application's own name, out of the
    /// way of other revisions, and gives that directory.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn keep_aside(&self, intent: &Intent) -> Result<PathBuf, StoreError> {
        let (aside, target) = self.names(intent);
        if !aside.exists() {
            durable::rename_new(&target, &aside).map_err(io("keeping", &target))?;
        }
        self.sync_workspace(intent)?;
        Ok(aside)
    }

    /// Looks where what was written for an application is.
    ///
    /// # Errors
    /// Why that cannot be told: the system failed.
    pub fn survey(&self, intent: &Intent) -> Result<Survey, StoreError> {
        let (aside, target) = self.names(intent);
        Ok(Survey { staged: self.found(&aside)?, target: self.found(&target)? })
    }

    fn found(&self, path: &Path) -> Result<Found, StoreError> {
        let unfit = |error: std::io::Error| match Errno::from_io_error(&error) {
            Some(errno) if !is_ours(errno) => Ok(Found::Unfit(format!("{}: {error}", path.display()))),
            _ => Err(io("looking at", path)(error)),
        };
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Absent),
            Err(error) => return unfit(error),
            Ok(_) => {}
        }
        let seen = match observe(path, self.limits()) {
            Ok(seen) => seen,
            Err(error @ ObserveError::Root { .. }) => return Ok(Found::Unfit(error.to_string())),
            Err(error @ ObserveError::Fault { .. }) => return Err(error.into()),
        };
        match aside::modes_are_final(path) {
            Ok(true) if seen.refused.is_empty() && seen.excluded.is_empty() => Ok(Found::Tree(seen.manifest)),
            Ok(_) => Ok(Found::Unfit(format!("{} is not whole: {}", path.display(), seen.refused))),
            Err(error) => unfit(error),
        }
    }

    /// The error when a workspace keeps `kept` bytes. Asked while nothing of it is undecided, so whatever
    /// bears an application's name is kept of a blocked one.
    fn kept_too_much(&self, id: &WorkspaceId, kept: u64) -> Result<StoreError, StoreError> {
        let (path, limit) = (self.workspace(id), self.limits().kept_bytes);
        let aside = |name: &std::ffi::OsStr| {
            let name = name.to_str().and_then(|name| name.strip_prefix(STAGING));
            name.is_some_and(|name| !swept(name))
        };
        let mut blocked: Vec<_> =
            list(&path)?.iter().filter(|e| aside(&e.file_name())).map(std::fs::DirEntry::path).collect();
        blocked.sort();
        Ok(StoreError::Kept { id: id.clone(), path, kept, limit, blocked })
    }

    fn names(&self, intent: &Intent) -> (PathBuf, PathBuf) {
        let id = &intent.workspace_id;
        (self.aside(id, &intent.id), self.root(id, intent.target.revision))
    }

    fn sync_workspace(&self, intent: &Intent) -> Result<(), StoreError> {
        let path = self.workspace(&intent.workspace_id);
        durable::sync_directory(&path).map_err(io("syncing", &path))
    }
}

impl AsideError {
    /// True when the base is what changed.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Changed { .. })
    }
}
