//! `sal service …` from start to stop, with a real process in the background.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn sal(state: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sal"))
        .args(args)
        .env_clear()
        .env("HOME", state)
        .env("SAL_STATE", state)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn svc1_start_status_stop_and_start_again_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("a/state");
    let started = sal(&state, &["service", "start", "--json"]);
    assert_eq!(started.status.code(), Some(0), "{}", String::from_utf8_lossy(&started.stderr));
    let started = json(&started.stdout);
    assert_eq!(started["ready"], true);
    assert_eq!((mode(&state), mode(&state.join("service.log"))), (0o700, 0o600));
    assert_eq!(mode(&state.join("control.sock")), 0o600);

    let second = sal(&state, &["service", "start", "--json"]);
    assert_eq!(second.status.code(), Some(125));
    assert_eq!(json(&second.stderr)["error"]["code"], "already_running");
    assert_eq!(json(&sal(&state, &["service", "status", "--json"]).stdout)["pid"], started["pid"]);

    let pid = nix::unistd::Pid::from_raw(started["pid"].as_i64().unwrap().try_into().unwrap());
    let leads = nix::unistd::getsid(Some(pid)).unwrap();
    assert_eq!(leads, pid, "the service leads a session of its own");
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    // The lock goes with the process, the socket stays behind.
    let end = Instant::now() + Duration::from_secs(10);
    let again = loop {
        let again = sal(&state, &["service", "start", "--json"]);
        if again.status.success() || Instant::now() > end {
            break again;
        }
    };
    assert_eq!(again.status.code(), Some(0), "{}", String::from_utf8_lossy(&again.stderr));

    let stopped = sal(&state, &["service", "stop", "--json"]);
    assert_eq!(stopped.status.code(), Some(0));
    assert!(!state.join("control.sock").exists());
    let gone = sal(&state, &["service", "status", "--json"]);
    assert_eq!(json(&gone.stderr)["error"]["code"], "not_running");
}

#[test]
fn svc5_sigterm_ends_a_service_in_the_foreground() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let mut service = Command::new(env!("CARGO_BIN_EXE_sal"))
        .args(["service", "start", "--foreground", "--json", "--state"])
        .arg(&state)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(service.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(json(line.as_bytes())["ready"], true);
    let pid = nix::unistd::Pid::from_raw(service.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(service.wait().unwrap().code(), Some(0));
    assert!(!state.join("control.sock").exists());
}
