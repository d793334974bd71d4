//! The state directory: private, the caller's own, and held by one service at a time (SVC.2, SVC.3).

use crate::domain::ids::RunId;
use crate::domain::refusal::{Code, Refusal};
use crate::ledger::schema::LEDGER_FILE;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// File name of the lock; it holds the process id of the service as text.
pub const LOCK_FILE: &str = "lock";
/// Longest process id text that is read back.
const PID_TEXT: u64 = 16;

/// A locked state directory. The lock is released by [`StateDir::release`] or with the process.
#[derive(Debug)]
pub struct StateDir {
    root: PathBuf,
    lock: Mutex<Option<File>>,
}

impl StateDir {
    /// Makes the directory if it is missing (0700, with its parents), checks it and locks it. Blocks.
    ///
    /// # Errors
    /// `unsafe_path` for a wrong type, owner or mode; `already_running`, naming the process id, when
    /// another service holds it; nothing is written then.
    pub fn lock(root: &Path) -> Result<Self, Refusal> {
        if !root.is_absolute() {
            return Err(Refusal::new(
                Code::Invalid,
                format!("the state directory '{}' is not an absolute path", root.display()),
                "give it from the root on",
            ));
        }
        if let Err(e) = std::fs::symlink_metadata(root) {
            if e.kind() != ErrorKind::NotFound {
                return Err(io(root, "read", &e));
            }
            DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(|e| io(root, "made", &e))?;
        }
        check_private(root)?;
        let lock = take_lock(root)?;
        for name in ["runs", "outputs"] {
            let path = root.join(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(io(&path, "made", &e)),
                _ => check_private(&path)?,
            }
        }
        Ok(Self { root: root.to_owned(), lock: Mutex::new(Some(lock)) })
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Path of the ledger.
    pub fn ledger(&self) -> PathBuf {
        self.root.join(LEDGER_FILE)
    }

    /// The directory of the run directories.
    pub fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// Path of a run's kept output.
    pub fn output(&self, run: &RunId) -> PathBuf {
        self.root.join("outputs").join(run.as_str())
    }

    /// Releases the lock before the process ends. Idempotent.
    pub fn release(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// True while a service holds the state directory `root`, or may have left runs that are not settled: their
/// directories, or a ledger that was not closed. What cannot be looked at counts as busy.
pub fn is_busy(root: &Path) -> bool {
    match File::open(root.join(LOCK_FILE)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return false,
        Err(_) => return true,
        // Held for an instant only; shared, so that two who look do not mistake each other for a service.
        Ok(lock) if lock.try_lock_shared().is_err() => return true,
        Ok(_) => {}
    }
    let unsettled = std::fs::read_dir(root.join("runs"))
        .map_or_else(|e| e.kind() != ErrorKind::NotFound, |mut runs| runs.next().is_some());
    let mut log = root.join(LEDGER_FILE).into_os_string();
    log.push("-wal");
    unsettled || std::fs::symlink_metadata(log).is_ok_and(|log| log.len() > 0)
}

fn io(path: &Path, what: &str, error: &std::io::Error) -> Refusal {
    Refusal::new(
        Code::UnsafePath,
        format!("{} cannot be {what}: {error}", path.display()),
        "check the path and its owner, or give another --state",
    )
}

/// Checks that `path` is a directory of the caller that nobody else can enter.
///
/// # Errors
/// `unsafe_path`, naming what is wrong.
pub fn check_private(path: &Path) -> Result<(), Refusal> {
    let meta = std::fs::symlink_metadata(path).map_err(|e| io(path, "read", &e))?;
    let unsafe_path = |what: String, hint: String| Err(Refusal::new(Code::UnsafePath, what, hint));
    let (name, me) = (path.display(), nix::unistd::geteuid().as_raw());
    if meta.file_type().is_symlink() {
        return unsafe_path(format!("{name} is a symbolic link"), "give the directory it leads to".into());
    }
    if !meta.is_dir() {
        return unsafe_path(format!("{name} is not a directory"), "give a directory, or a new path".into());
    }
    if meta.uid() != me {
        return unsafe_path(
            format!("{name} belongs to user {}, not to the caller, {me}", meta.uid()),
            "give a directory of your own, or a new path".into(),
        );
    }
    if meta.mode() & 0o077 != 0 {
        return unsafe_path(
            format!("{name} is open to others (mode {:04o}; it must be 0700)", meta.mode() & 0o7777),
            format!("chmod 700 {name}"),
        );
    }
    Ok(())
}

fn take_lock(root: &Path) -> Result<File, Refusal> {
    let path = root.join(LOCK_FILE);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(&path)
        .map_err(|e| io(&path, "opened", &e))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.take(PID_TEXT).read_to_string(&mut pid);
            let who = match pid.trim() {
                "" => "another process".to_owned(),
                pid => format!("process {pid}"),
            };
            return Err(Refusal::new(
                Code::AlreadyRunning,
                format!("{who} serves the state directory {} already", root.display()),
                "use it, stop it with `sal service stop`, or give another --state",
            ));
        }
        Err(TryLockError::Error(e)) => return Err(io(&path, "locked", &e)),
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(|e| io(&path, "written", &e))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn code(result: Result<StateDir, Refusal>) -> Code {
        result.map(|_| ()).unwrap_err().code
    }

    #[test]
    fn svc2_a_missing_directory_is_made_private_with_its_parents() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("a/b");
        let state = StateDir::lock(&path).unwrap();
        for dir in [tmp.path().join("a"), path.clone(), state.runs(), path.join("outputs")] {
            assert_eq!(dir.metadata().unwrap().mode() & 0o7777, 0o700, "{}", dir.display());
        }
        assert_eq!(path.join(LOCK_FILE).metadata().unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn svc2_open_foreign_linked_or_relative_paths_are_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let open = tmp.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(code(StateDir::lock(&open)), Code::UnsafePath);
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o700)).unwrap();
        let link = tmp.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert_eq!(code(StateDir::lock(&link)), Code::UnsafePath);
        let file = tmp.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(code(StateDir::lock(&file)), Code::UnsafePath);
        assert_eq!(code(StateDir::lock(Path::new("relative"))), Code::Invalid);
        // Only root can give a directory away, so the foreign owner is checked where that is possible.
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&open, Some(65532), None).unwrap();
            assert_eq!(code(StateDir::lock(&open)), Code::UnsafePath);
        }
    }

    #[test]
    fn svc3_one_of_twenty_wins_and_the_rest_name_it() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("state");
        let results: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..20).map(|_| scope.spawn(|| StateDir::lock(&path))).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1);
        let late = StateDir::lock(&path).unwrap_err();
        assert_eq!(late.code, Code::AlreadyRunning);
        assert!(late.message.contains(&std::process::id().to_string()), "{}", late.message);
        drop(results);
        assert!(StateDir::lock(&path).is_ok());
    }

    #[test]
    fn img2_a_state_directory_is_busy_while_it_is_served_or_something_is_unsettled() {
        let tmp = tempfile::tempdir().unwrap();
        let root = tmp.path().join("state");
        assert!(!is_busy(&root), "it is not there");
        let state = StateDir::lock(&root).unwrap();
        assert!(is_busy(&root));
        state.release();
        assert!(!is_busy(&root));
        let run = state.runs().join("run-1");
        std::fs::create_dir(&run).unwrap();
        assert!(is_busy(&root));
        std::fs::remove_dir(&run).unwrap();
        let log = root.join("ledger.db-wal");
        std::fs::write(&log, "").unwrap();
        assert!(!is_busy(&root));
        std::fs::write(&log, "not closed").unwrap();
        assert!(is_busy(&root));
    }
}
