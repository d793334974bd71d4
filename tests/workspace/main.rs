//! Workspaces against real trees: what is refused, what is left out, and that nothing is left behind.
//!
//! Run as any user; devices and foreign owners are tested when run as root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admitted;
mod clones;
mod diff;
mod diff_bytes;
mod diff_trees;
#[path = "../fixtures/excluded.rs"]
mod excluded;
mod limits;
mod pages;
mod patches;
mod published;
mod races;
mod refused;
mod revisions;
mod roots;
mod seeds;
mod sequences;

use salaam::domain::ids::WorkspaceId;
use salaam::workspace::import::{ImportError, Imported, import};
use salaam::workspace::policy::Limits;
use salaam::workspace::refused::{Kind, Refusals};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

/// A project, and beside it a place for the copy and one for what it must not reach.
struct Bench {
    _dir: tempfile::TempDir,
    project: PathBuf,
    outside: PathBuf,
    copies: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let bench =
            Self { project: path("project"), outside: path("outside"), copies: path("copies"), _dir: dir };
        std::fs::set_permissions(&bench.copies, PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::write(bench.outside.join("secret"), "canary").unwrap();
        bench
    }

    fn at(&self, path: impl AsRef<OsStr>) -> PathBuf {
        self.project.join(path.as_ref())
    }

    fn write(&self, path: impl AsRef<OsStr>, content: impl AsRef<[u8]>) -> &Self {
        let path = self.at(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    fn copy(&self) -> PathBuf {
        self.copies.join("copy")
    }

    /// Imports, and holds that the project is untouched (WS.8) and that a refusal leaves nothing.
    fn import(&self) -> Result<Imported, ImportError> {
        let before = snapshot(&self.project);
        let got = import(&self.project, &self.copy(), &Limits::fixed());
        assert_eq!(before, snapshot(&self.project), "the project changed");
        if got.is_err() {
            assert_eq!(std::fs::read_dir(&self.copies).unwrap().count(), 0, "something is left");
        }
        got
    }

    fn refused(&self) -> Refusals {
        match self.import() {
            Err(ImportError::Refused { refused, .. }) => refused,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// The one refused path and its kind.
    fn refusal(&self) -> (String, Kind) {
        let refused = self.refused();
        assert_eq!(refused.total(), 1, "{refused}");
        let one = &refused.listed()[0];
        (one.path.clone(), one.kind.clone())
    }
}

fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

fn id() -> WorkspaceId {
    WorkspaceId::fresh()
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Everything but access times below `path`, in order.
fn snapshot(path: &Path) -> Vec<(PathBuf, u32, i64, i64, u64, Vec<u8>)> {
    let mut out = Vec::new();
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        let meta = path.symlink_metadata().unwrap();
        let bytes = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        if meta.is_dir() {
            pending.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        out.push((path, meta.mode(), meta.mtime(), meta.mtime_nsec(), meta.len(), bytes));
    }
    out.sort();
    out
}

/// Runs the test of that name in a process of its own, for what would disturb the others here.
fn alone(test: &str, body: impl FnOnce()) {
    const ALONE: &str = "SAL_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let out = command.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("1 passed"), "{said}{errors}");
}

/// Runs `body` while the process can open `left` descriptors more.
fn with_descriptors<T>(left: u64, body: impl FnOnce() -> T) -> T {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    // Those that are free below the highest open one do not count.
    let held: Vec<_> =
        std::iter::repeat_with(|| std::fs::File::open("/dev/null").unwrap()).take(32).collect();
    let next = u64::try_from(std::os::fd::AsRawFd::as_raw_fd(held.last().unwrap())).unwrap() + 1;
    setrlimit(Resource::RLIMIT_NOFILE, next + left, hard).unwrap();
    let value = body();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    value
}
