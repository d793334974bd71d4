//! Removes whatever still bears a container's id when its supervisor is gone, or ends the supervisor.
//!
//! The sweep takes the supervisor's place: it holds the liveness lock, and leaves a record file behind,
//! so that a supervisor which is only now starting finds its job taken and never runs the command.

use super::cgroup::{Groups, Host};
use super::lock;
use super::record::Recorder;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Longest that the end of a killed supervisor is waited for.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

/// Kills and removes by name, then prints the JSON list of what is left.
pub fn main(run_dir: &Path, container: &str) -> ExitCode {
    let left = match take_over(run_dir) {
        Ok(_lock) => remove(container),
        Err(e) => vec![format!("the supervisor of {}: {e}", run_dir.display())],
    };
    println!("{}", serde_json::to_string(&left).unwrap_or_else(|_| "[\"unknown\"]".into()));
    ExitCode::SUCCESS
}

fn take_over(run_dir: &Path) -> std::io::Result<Option<File>> {
    if !run_dir.exists() {
        return Ok(None);
    }
    let end = Instant::now() + LOCK_LIMIT;
    let held = loop {
        match lock::take(run_dir) {
            Ok(held) => break held,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < end => {
                kill_holder(run_dir);
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(e) => return Err(e),
        }
    };
    match Recorder::create(run_dir) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(Some(held)),
    }
}

fn kill_holder(run_dir: &Path) {
    let Some(pid) = lock::holder(run_dir) else { return };
    let Some(Ok(pidfd)) = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return };
    // Still the holder now that the descriptor is open: the id was not reused in between.
    if lock::holder(run_dir) == Some(pid) {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
}

fn remove(container: &str) -> Vec<String> {
    match Host::detect() {
        Ok(host) => host
            .everywhere(container)
            .into_iter()
            .flat_map(|host| {
                let groups = Groups::of(host, container);
                groups.kill_all();
                groups.remove()
            })
            .collect(),
        Err(e) => vec![e.to_string()],
    }
}
