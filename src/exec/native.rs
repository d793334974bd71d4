//! The native executor: writes a run directory, starts one supervisor for it, and watches.
//!
//! It never links a container into the service: what it knows of a run it reads from the
//! supervisor's records, first through the supervisor's standard output, after a restart from the
//! record file.

use super::{ExecError, Executor, Fut, Observed, Survey, lock};
use crate::domain::ids::{ContainerId, RunId};
use crate::domain::job::{JOB_FILE, Job, RECORDS_FILE};
use crate::domain::record::{Record, start_ticks};
use crate::fault::{self, Side};
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
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
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
        let mut command = self.supervise();
        command.arg("--settle").arg(std::process::id().to_string());
        let output = command.stdin(Stdio::null()).output().await.map_err(ExecError::Spawn)?;
        if output.status.success() {
            return Ok(());
        }
        Err(ExecError::Host {
            what: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            hint: "delegate memory, pids and cpu to the service's cgroup (Delegate=yes in a systemd unit)"
                .into(),
        })
    }

    fn supervise(&self) -> Command {
        let mut command = Command::new(&self.exe);
        command.arg("supervise").env_clear().envs(fault::environment());
        command
    }

    fn dir(&self, run: &RunId) -> PathBuf {
        self.runs.join(run.as_str())
    }

    fn prepare(&self, job: &Job) -> Result<(PathBuf, File), ExecError> {
        let dir = self.dir(&job.run_id);
        fault::reach("rundir", Side::Before, job.run_id.as_str()).map_err(io_error(&dir))?;
        DirBuilder::new().mode(0o700).create(&dir).map_err(io_error(&dir))?;
        let path = dir.join(JOB_FILE);
        let text = serde_json::to_vec(job).map_err(|e| io_error(&path)(e.into()))?;
        std::fs::write(&path, text).map_err(io_error(&path))?;
        let path = dir.join("log");
        let log = File::create(&path).map_err(io_error(&path))?;
        fault::reach("rundir", Side::After, job.run_id.as_str()).map_err(io_error(&dir))?;
        Ok((dir, log))
    }

    fn spawn(&self, job: &Job) -> Result<(), ExecError> {
        let (dir, log) = self.prepare(job)?;
        let child = self
            .supervise()
            .arg(&dir)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(false)
            .spawn()
            .map_err(ExecError::Spawn)?;
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).insert(job.run_id.clone(), child);
        fault::reach("spawn", Side::After, job.run_id.as_str()).map_err(ExecError::Spawn)
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
                Some(child) => watch_child(child, &dir, &tell).await,
                None => watch_file(&dir, 0, &tell).await,
            };
            if told.is_some() {
                let _ = tell.send(Observed::Gone).await;
            }
        });
        seen
    }

    fn survey(&self, run: &RunId) -> Survey {
        let dir = self.dir(run);
        // Asked before reading, so that the last record is read after the last writer is gone.
        let supervised = lock::holder(&dir).is_some();
        Survey { supervised, records: read_records(&dir.join(RECORDS_FILE)).unwrap_or_default() }
    }

    fn alive(&self, run: &RunId, container: &ContainerId) -> Fut<'_, Result<Vec<String>, ExecError>> {
        let mut command = self.supervise();
        command.arg("--look").arg(self.dir(run)).arg(container.as_str()).stdin(Stdio::null());
        Box::pin(async move {
            let output = command.kill_on_drop(true).output().await.map_err(ExecError::Spawn)?;
            if !output.status.success() {
                let what = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(ExecError::Host { what, hint: "mount what is missing".into() });
            }
            serde_json::from_slice(&output.stdout).map_err(|e| ExecError::Spawn(e.into()))
        })
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

    fn sweep(&self, runs: Vec<(RunId, ContainerId)>) -> Fut<'_, Result<Vec<Vec<String>>, ExecError>> {
        Box::pin(async move {
            let list: Vec<_> = runs.iter().map(|(run, container)| (self.dir(run), container)).collect();
            let list = serde_json::to_vec(&list).map_err(|e| ExecError::Spawn(e.into()))?;
            let mut child = self
                .supervise()
                .arg("--sweep")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                // Whoever gives it up sweeps again; two at a time would find each other's lock.
                .kill_on_drop(true)
                .spawn()
                .map_err(ExecError::Spawn)?;
            if let Some(mut stdin) = child.stdin.take() {
                // The sweep reads all before it answers, so neither can wait for the other.
                stdin.write_all(&list).await.map_err(ExecError::Spawn)?;
            }
            let output = child.wait_with_output().await.map_err(ExecError::Spawn)?;
            let left: Vec<Vec<String>> =
                serde_json::from_slice(&output.stdout).map_err(|e| ExecError::Spawn(e.into()))?;
            if left.len() == runs.len() {
                Ok(left)
            } else {
                Err(ExecError::Spawn(io::Error::other("the sweep answered for other runs")))
            }
        })
    }

    fn forget(&self, run: &RunId) -> Fut<'_, Result<(), ExecError>> {
        let (dir, run) = (self.dir(run), run.clone());
        Box::pin(async move {
            fault::reach("forget", Side::Before, run.as_str()).map_err(io_error(&dir))?;
            match std::fs::remove_dir_all(&dir) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error(&dir)(e)),
                _ => Ok(()),
            }
        })
    }
}

/// Tells the records that a supervisor of ours writes to its standard output; `None` when nobody
/// listens any more.
async fn watch_child(mut child: Child, dir: &Path, tell: &mpsc::Sender<Observed>) -> Option<()> {
    let mut told = 0;
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Ok(record) = serde_json::from_str(&line) {
                told += 1;
                tell.send(Observed::Record(record)).await.ok()?;
            }
        }
    }
    let _ = child.wait().await;
    // It may have ended between a record and its telling.
    watch_file(dir, told, tell).await
}

/// Tells the records of a run that stand in its file, but for the first `told`.
async fn watch_file(dir: &Path, mut told: usize, tell: &mpsc::Sender<Observed>) -> Option<()> {
    let path = dir.join(RECORDS_FILE);
    loop {
        // Asked before reading, so that the last record is read after the last writer is gone.
        let supervised = lock::holder(dir).is_some();
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

fn start_time(pid: i32) -> Option<u64> {
    start_ticks(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}
