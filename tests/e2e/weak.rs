//! Runs a command under any profile, by the executor itself: how a test removes one control.

use crate::host::{Image, image_store};
use salaam::domain::ids::{ContainerId, ExecId, RunId};
use salaam::domain::job::{self, Bundle, Entry, Job};
use salaam::domain::manifest::TreeManifest;
use salaam::domain::outcome::{Outcome, judge};
use salaam::domain::profile::Profile;
use salaam::domain::record::Record;
use salaam::domain::relpath::RelPath;
use salaam::exec::Observed;
use salaam::exec::native::NativeExecutor;
use salaam::image::{Reference, Store};
use salaam::service::Backend;
use salaam::service::clock;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The stored bundle of an image.
pub fn bundle(image: Image) -> Bundle {
    let store = Store::open(&image_store()).unwrap();
    store.bundle(&Reference::parse(&image.pin()).unwrap()).unwrap()
}

/// A bundle with a root file system of its own that a test may change. Copied: hard links would change
/// the stored files' link counts and times, which the store notices.
pub fn own_bundle(image: Image, dir: &Path) -> Bundle {
    let mut bundle = bundle(image);
    let rootfs = dir.join("rootfs");
    std::fs::create_dir(&rootfs).unwrap();
    // Lowest first. Neither recipe has a layer that removes anything of another.
    for layer in bundle.lower.iter().rev() {
        let done = Command::new("cp").arg("-aT").arg(layer).arg(&rootfs).status().unwrap();
        assert!(done.success());
    }
    bundle.lower = vec![rootfs];
    bundle
}

/// An executor with directories of its own.
pub struct Bench {
    pub dir: tempfile::TempDir,
    pub backend: Backend,
}

/// What became of a command.
#[derive(Debug)]
pub struct Weak {
    pub outcome: Option<Outcome>,
    pub start_failed: Option<String>,
    pub output: String,
    pub stored: u64,
    pub left: Vec<String>,
}

impl Weak {
    pub fn code(&self) -> Option<u8> {
        self.outcome.as_ref().and_then(|o| o.exit_code)
    }
}

impl Bench {
    pub fn new(bundle: impl FnOnce(&Path) -> Bundle) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["runs", "outputs", "source"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let exe = PathBuf::from(crate::host::SAL);
        let executor = Arc::new(NativeExecutor::new(exe.clone(), dir.path().join("runs")));
        let backend = Backend { executor, bundle: bundle(dir.path()), probe: exe };
        Self { dir, backend }
    }

    /// Runs `command` under `profile` to its checked removal.
    pub fn run(&self, profile: &Profile, command: &str) -> Weak {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.run_async(profile, command))
    }

    async fn run_async(&self, profile: &Profile, command: &str) -> Weak {
        let run_id = RunId::fresh();
        let output = self.dir.path().join("outputs").join(run_id.as_str());
        let job = Job {
            format: job::FORMAT,
            run_id: run_id.clone(),
            container_id: ContainerId::fresh(),
            exec_id: ExecId::fresh(),
            boot_id: clock::boot_id().unwrap(),
            deadline_ns: clock::boottime_ns().unwrap() + profile.deadline_ms * 1_000_000,
            entry: Entry::Command { text: command.to_owned(), cwd: RelPath::default() },
            profile: profile.clone(),
            bundle: self.backend.bundle.clone(),
            source: self.dir.path().join("source"),
            manifest: TreeManifest::default(),
            output: output.clone(),
            probe: self.backend.probe.clone(),
        };
        let executor = &self.backend.executor;
        executor.launch(job).await.unwrap();
        let mut records = executor.watch(&run_id);
        let mut weak = Weak {
            outcome: None,
            start_failed: None,
            output: String::new(),
            stored: 0,
            left: vec!["no end".into()],
        };
        while let Some(Observed::Record(record)) = records.recv().await {
            match record {
                Record::Exited { ending, evidence } => {
                    weak.stored = evidence.stored_bytes;
                    weak.outcome = Some(judge(ending, &evidence, profile.file_size));
                }
                Record::StartFailed { stage, detail, .. } => {
                    weak.start_failed = Some(format!("{stage}: {detail}"));
                }
                Record::Removed { left } => weak.left = left,
                _ => {}
            }
        }
        executor.forget(&run_id).await.unwrap();
        weak.output = String::from_utf8_lossy(&std::fs::read(&output).unwrap_or_default()).into_owned();
        weak
    }
}

/// The fixed profile with a change.
pub fn with(change: impl FnOnce(&mut Profile)) -> Profile {
    let mut profile = Profile::fixed();
    change(&mut profile);
    profile
}
