//! Starts the service in the background and waits for its report.
//!
//! The child is this program with `--foreground --detached`: standard input /dev/null, standard
//! output the report's pipe, standard error a pipe until the child holds the state directory and makes
//! that its log. It makes a session of its own (setsid(2)).

use super::options::Options;
use super::report::Report;
use super::{log_file, text};
use crate::cli::failure::Done;
use crate::cli::output::Output;
use crate::domain::refusal::{Code, Refusal};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Time for the proof and the recovery.
const READY: Duration = Duration::from_secs(60);
/// Most that is kept of what a child says before it has its log.
const LAST_WORDS: usize = 1024;
/// Longest report.
const MAX_REPORT: u64 = 1024 * 1024;

/// Starts the service and waits until it accepts clients or refuses.
pub(super) fn start(options: &Options, out: Output) -> Done {
    let mut child = Command::new(program()?)
        .args(["service", "start", "--foreground", "--detached"])
        .args(options.arguments())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            Refusal::new(
                Code::Host,
                format!("the service's process could not be started: {error}"),
                "check the limits on processes (ulimit -u) and memory",
            )
        })?;
    let status = report(&mut child, &options.state)?.into_result()?;
    out.either(&status, |status| text::full(status, &options.state))?;
    Ok(ExitCode::SUCCESS)
}

/// This very file, even when its name now means a newer one.
fn program() -> Result<std::path::PathBuf, Refusal> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe().map_err(|error| {
        Refusal::new(
            Code::Host,
            format!("the path of this program is not known: {error}"),
            "start it by its whole path",
        )
    })
}

fn report(child: &mut Child, state: &Path) -> Result<Report, Refusal> {
    let early = child.stderr.take().map(|pipe| std::thread::spawn(move || drain(pipe)));
    let line = child.stdout.take().and_then(|pipe| first_line(pipe, READY));
    let log = log_file::path(state);
    match line {
        Some(line) if !line.is_empty() => serde_json::from_str(&line).map_err(|error| {
            Refusal::new(
                Code::Internal,
                format!("the service's report was not understood: {error}"),
                format!("look at {}", log.display()),
            )
        }),
        Some(_) => {
            let how = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            let said = early.and_then(|thread| thread.join().ok()).unwrap_or_default();
            Err(Refusal::new(
                Code::Internal,
                format!(
                    "the service ended before it was ready: {how}; its last words: '{}'",
                    said.trim_end()
                ),
                format!("look at {} if it is there", log.display()),
            ))
        }
        None => {
            // It may be in the middle of a proof: SIGTERM lets it remove what it made.
            let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
            let asked = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            let told = if asked.is_ok() { "was told to end" } else { "could not be told to end" };
            Err(Refusal::new(
                Code::NotReady,
                format!(
                    "the service (pid {pid}) was not ready within {} s, the limit, and {told}",
                    READY.as_secs()
                ),
                format!("look at {}", log.display()),
            ))
        }
    }
}

/// Reads what the child says before it has its log; gives the end of it.
fn drain(mut pipe: ChildStderr) -> String {
    let (mut kept, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = pipe.read(&mut part) {
        kept.extend_from_slice(&part[..length]);
        kept.drain(..kept.len().saturating_sub(LAST_WORDS));
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// Reads a line; empty at the end of the pipe, `None` when `limit` passes first.
fn first_line(pipe: ChildStdout, limit: Duration) -> Option<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(pipe.take(MAX_REPORT)).read_line(&mut line);
        // The receiver is gone once the limit has passed.
        let _ = send.send(read.map_or_else(|_| String::new(), |_| line));
    });
    receive.recv_timeout(limit).ok()
}
