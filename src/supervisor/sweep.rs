//! Removes whatever still bears a container's id when its supervisor is gone, or ends the supervisor.
//!
//! The sweep takes the supervisor's place: it holds the liveness lock, and leaves a record file behind,
//! so that a supervisor which is only now starting finds its job taken and never runs the command.

use super::cgroup::{Groups, Host};
use super::record::Recorder;
use crate::domain::ids::ContainerId;
use crate::exec::lock;
use crate::fault::{self, Side};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Longest that the end of a killed supervisor is waited for.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

/// Reads a JSON list of (run directory, container id) from standard input, kills and removes each by name,
/// then prints the JSON list of what is left of each.
pub fn main() -> ExitCode {
    let mut text = String::new();
    let asked = std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|e| e.to_string())
        .and_then(|_| serde_json::from_str::<Vec<(PathBuf, ContainerId)>>(&text).map_err(|e| e.to_string()));
    let asked = match asked {
        Ok(asked) => asked,
        Err(e) => {
            eprintln!("sweep: {e}");
            return ExitCode::from(2);
        }
    };
    let all: Vec<Vec<String>> = asked
        .iter()
        .map(|(run_dir, container)| match take_over(run_dir) {
            Ok(_lock) => remove(container.as_str()),
            Err(e) => vec![format!("the supervisor of {}: {e}", run_dir.display())],
        })
        .collect();
    answer(&all)
}

/// Prints the JSON list of what lives of a run: its supervisor and the processes of its container. Nothing
/// is changed.
pub fn look(run_dir: &Path, container: &str) -> ExitCode {
    // Anything else could name a group that is not a container's.
    let Ok(container) = ContainerId::parse(container) else {
        eprintln!("look: '{container}' is not a container id");
        return ExitCode::from(2);
    };
    let container = container.as_str();
    let mut alive: Vec<String> =
        lock::holder(run_dir).into_iter().map(|pid| format!("supervisor {pid}")).collect();
    match Host::detect() {
        Ok(host) => {
            let mut pids: Vec<i32> = host
                .everywhere(container)
                .into_iter()
                .flat_map(|host| Groups::of(host, container).processes())
                .collect();
            pids.sort_unstable();
            pids.dedup();
            alive.extend(pids.into_iter().map(|pid| format!("process {pid}")));
        }
        Err(e) => {
            eprintln!("look: {e}");
            return ExitCode::FAILURE;
        }
    }
    answer(&alive)
}

/// Prints the answer. Whoever asked may be dead; what was done stands all the same.
fn answer(value: &impl serde::Serialize) -> ExitCode {
    let text = serde_json::to_vec(value).unwrap_or_default();
    match std::io::stdout().write_all(&text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
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
    if let Err(e) = fault::reach("sweep", Side::Before, container) {
        return vec![format!("unknown ({e})")];
    }
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
