//! The native executor: writes a run directory, starts one supervisor for it, and watches.
//!
//! It never links a container into the service: what it knows of a run it reads from the
//! supervisor's records, first through the supervisor's standard output, after a restart from the
//! record file.

use super::{ExecError, Executor, Fut, Observed};
use crate::domain::ids::{ContainerId, RunId};
use crate::domain::job::{JOB_FILE, Job, LOCK_FILE, RECORDS_FILE};
use crate::domain::record::{Record, start_ticks};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// How often the records of an adopted run are looked at.
const POLL: Duration = Duration::from_millis(20);

/// Starts supervisors and watches them.
#[derive(Clone)]
pub struct NativeExecutor {
    exe: PathBuf,
    runs: PathBuf,
    /// Supervisors started by this process whose output nobody reads yet.
    fresh: Arc<Mutex<HashMap<RunId, Child>>>,
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> ExecError + '_ {
    move |source| ExecError::Io { path: path.to_owned(), source }
}

impl NativeExecutor {
    /// Uses `exe` (our own executable) as the supervisor, and `runs` for run directories.
    pub fn new(exe: PathBuf, runs: PathBuf) -> Self {
        Self { exe, runs, fresh: Arc::default() }
    }

    /// Makes room for containers beside this process in a cgroup subtree that is delegated to it.
    ///
    /// # Errors
    /// [`ExecError::Host`] naming what the host refuses.
    pub async fn settle(&self) -> Result<(), ExecError> {
        let mut command = Command::new(&self.exe);
        command.arg("supervise").arg("--settle").arg(std::process::id().to_string());
        let output = command.env_clear().stdin(Stdio::null()).output().await.map_err(ExecError::Spawn)?;
        if output.status.success() {
            return Ok(());
        }
        Err(ExecError::Host {
            what: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            hint: "delegate memory, pids and cpu to the service's cgroup (Delegate=yes in a systemd unit)"
                .into(),
        })
    }

    fn dir(&self, run: &RunId) -> PathBuf {
        self.runs.join(run.as_str())
    }

    fn prepare(&self, job: &Job) -> Result<(PathBuf, File), ExecError> {
        let dir = self.dir(&job.run_id);
        DirBuilder::new().mode(0o700).create(&dir).map_err(io_error(&dir))?;
        let path = dir.join(JOB_FILE);
        let text = serde_json::to_vec(job).map_err(|e| io_error(&path)(e.into()))?;
        std::fs::write(&path, text).map_err(io_error(&path))?;
        let path = dir.join("log");
        let log = File::create(&path).map_err(io_error(&path))?;
        Ok((dir, log))
    }

    fn spawn(&self, job: &Job) -> Result<(), ExecError> {
        let (dir, log) = self.prepare(job)?;
        let child = Command::new(&self.exe)
            .arg("supervise")
            .arg(&dir)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(false)
            .spawn()
            .map_err(ExecError::Spawn)?;
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).insert(job.run_id.clone(), child);
        Ok(())
    }

    /// The living supervisor of a run: the process of the recorded id and start time.
    fn supervisor(&self, run: &RunId) -> Option<OwnedFd> {
        let records = read_records(&self.dir(run).join(RECORDS_FILE)).ok()?;
        let Some(Record::Supervising { pid, start_ticks: recorded, .. }) = records.first() else {
            return None;
        };
        let pidfd = pidfd_open(Pid::from_raw(*pid)?, PidfdFlags::empty()).ok()?;
        // Checked after the descriptor is open, so that a reused id is never signalled.
        (start_time(*pid) == Some(*recorded)).then_some(pidfd)
    }
}

impl Executor for NativeExecutor {
    fn name(&self) -> &'static str {
        "oci"
    }

    fn identity(&self) -> String {
        let kernel = std::fs::read_to_string("/proc/version").unwrap_or_default();
        format!("salaam {} libcontainer 0.7.0 on {}", env!("CARGO_PKG_VERSION"), kernel.trim())
    }

    fn launch(&self, job: Job) -> Fut<'_, Result<(), ExecError>> {
        Box::pin(async move { self.spawn(&job) })
    }

    fn watch(&self, run: &RunId) -> mpsc::Receiver<Observed> {
        let (tell, seen) = mpsc::channel(16);
        let child = self.fresh.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
        let dir = self.dir(run);
        tokio::spawn(async move {
            let told = match child {
                Some(child) => watch_child(child, &tell).await,
                None => watch_file(&dir, &tell).await,
            };
            if told.is_some() {
                let _ = tell.send(Observed::Gone).await;
            }
        });
        seen
    }

    fn cancel(&self, run: &RunId) -> Fut<'_, Result<(), ExecError>> {
        let run = run.clone();
        Box::pin(async move {
            // The supervisor may not have recorded itself yet; until it has, no command runs.
            for _ in 0..200 {
                if let Some(pidfd) = self.supervisor(&run) {
                    let _ = pidfd_send_signal(&pidfd, Signal::TERM);
                    return Ok(());
                }
                let recorded = read_records(&self.dir(&run).join(RECORDS_FILE));
                if !self.dir(&run).exists() || recorded.is_ok_and(|all| !all.is_empty()) {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        })
    }

    fn sweep(&self, run: &RunId, container: &ContainerId) -> Fut<'_, Result<Vec<String>, ExecError>> {
        let (run, container) = (run.clone(), container.clone());
        Box::pin(async move {
            let output = Command::new(&self.exe)
                .arg("supervise")
                .arg("--sweep")
                .arg(self.dir(&run))
                .arg(container.as_str())
                .env_clear()
                .stdin(Stdio::null())
                .output()
                .await
                .map_err(ExecError::Spawn)?;
            serde_json::from_slice(&output.stdout).map_err(|e| ExecError::Spawn(e.into()))
        })
    }

    fn forget(&self, run: &RunId) -> Fut<'_, Result<(), ExecError>> {
        let dir = self.dir(run);
        Box::pin(async move {
            match std::fs::remove_dir_all(&dir) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error(&dir)(e)),
                _ => Ok(()),
            }
        })
    }
}

/// Tells the records that a supervisor of ours writes to its standard output; `None` when nobody
/// listens any more.
async fn watch_child(mut child: Child, tell: &mpsc::Sender<Observed>) -> Option<()> {
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Ok(record) = serde_json::from_str(&line) {
                tell.send(Observed::Record(record)).await.ok()?;
            }
        }
    }
    let _ = child.wait().await;
    Some(())
}

/// Tells the records of a run that an earlier service started.
async fn watch_file(dir: &Path, tell: &mpsc::Sender<Observed>) -> Option<()> {
    let path = dir.join(RECORDS_FILE);
    let mut told = 0;
    loop {
        // Asked before reading, so that the last record is read after the last writer is gone.
        let supervised = is_locked(&dir.join(LOCK_FILE));
        let records = read_records(&path).unwrap_or_default();
        for record in records.into_iter().skip(told) {
            told += 1;
            tell.send(Observed::Record(record)).await.ok()?;
        }
        if !supervised {
            return Some(());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The whole records of a file; a line cut by a crash is none.
fn read_records(path: &Path) -> io::Result<Vec<Record>> {
    let text = std::fs::read_to_string(path)?;
    Ok(text.split_inclusive('\n').filter_map(|l| serde_json::from_str(l.strip_suffix('\n')?).ok()).collect())
}

/// Whether a process holds the fcntl lock of a file.
fn is_locked(path: &Path) -> bool {
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc;
    use std::os::fd::AsRawFd;
    let Ok(file) = File::options().write(true).open(path) else { return false };
    let mut region = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file.as_raw_fd(), FcntlArg::F_GETLK(&mut region)).is_ok()
        && region.l_type != libc::F_UNLCK as libc::c_short
}

fn start_time(pid: i32) -> Option<u64> {
    start_ticks(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}
