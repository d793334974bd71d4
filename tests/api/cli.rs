//! The built program against a service on the scripted executor.

use crate::rig::Rig;
use salaam::exec::scripted::Play;
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn sal(rig: &Rig, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sal"));
    command.args(args).env_clear().env("SAL_STATE", &rig.state).stdin(Stdio::null());
    tokio::task::block_in_place(|| command.output()).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn script(writes: &[u8], end: &[Play]) -> Vec<Play> {
    let mut plays = vec![Play::Supervising, Play::Launching, Play::Write(writes.to_vec())];
    plays.extend_from_slice(end);
    plays.push(Play::Removed(vec![]));
    plays
}

const EVIL: &[u8] = b"a\x1b]52;c;x\x07\xc2\x9b2J\xe2\x80\xae\xff\rb\n";

#[tokio::test(flavor = "multi_thread")]
async fn cmd1_start_wait_streams_raw_bytes_and_exits_as_the_command() {
    let rig = Rig::start().await;
    let session = rig.coding().await;
    rig.scripted.next(script(EVIL, &[Play::Wait(Duration::from_millis(50)), Play::Exit(3)]));
    let start = ["commands", "start", session.as_str(), "--command", "x", "--step-key", "k", "--wait"];
    let out = sal(&rig, &start);
    assert_eq!(out.status.code(), Some(3));
    assert_eq!(out.stdout, EVIL, "into a pipe the bytes are raw");
    assert_eq!(text(&out.stderr), "", "a plain exit needs no remark");
    let again = sal(&rig, &start);
    assert_eq!((again.status.code(), &again.stdout[..]), (Some(3), EVIL), "the same key, the same run");
    assert_eq!(rig.scripted.launched(), 1);
    let json = sal(&rig, &[&start[..], &["--json"]].concat());
    let run: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((json.status.code(), run["state"].as_str()), (Some(3), Some("finished")));
}

#[tokio::test(flavor = "multi_thread")]
async fn cmd1_a_cancelled_wait_exits_137_and_names_the_cause() {
    let rig = Rig::start().await;
    let session = rig.coding().await;
    rig.scripted.next(Play::endless());
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_sal"))
        .args(["commands", "start", session.as_str(), "--command", "x", "--wait"])
        .env("SAL_STATE", &rig.state)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let run = loop {
        let listed = sal(&rig, &["commands", "list", session.as_str(), "--json"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        if listed["runs"][0]["state"] == "running" {
            break listed["runs"][0]["run_id"].as_str().unwrap().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let cancelled = sal(&rig, &["commands", "cancel", session.as_str(), "--run-id", &run, "--json"]);
    let cancelled: Value = serde_json::from_slice(&cancelled.stdout).unwrap();
    assert_eq!(cancelled["outcome"]["cause"], "cancelled");
    assert_eq!(cancelled["already_finished"], false);
    let status = tokio::task::block_in_place(|| waiting.wait()).unwrap();
    let said = std::io::read_to_string(waiting.stderr.take().unwrap()).unwrap();
    assert_eq!(status.code(), Some(137));
    assert!(said.starts_with("sal: cancelled"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cmd1_an_interrupted_wait_leaves_the_run_and_says_how_to_find_it() {
    let rig = Rig::start().await;
    let session = rig.coding().await;
    rig.scripted.next(script(b"began\n", &[Play::Hold]));
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_sal"))
        .args(["commands", "start", session.as_str(), "--command", "x", "--wait"])
        .env("SAL_STATE", &rig.state)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut began = [0; 6];
    let mut out = waiting.stdout.take().unwrap();
    tokio::task::block_in_place(|| std::io::Read::read_exact(&mut out, &mut began)).unwrap();
    let pid = nix::unistd::Pid::from_raw(waiting.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let status = tokio::task::block_in_place(|| waiting.wait()).unwrap();
    let said = std::io::read_to_string(waiting.stderr.take().unwrap()).unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(said.starts_with("sal: detached; run-"), "{said}");
    assert!(said.contains(&format!("sal commands cancel {session} --run-id run-")), "{said}");
    let runs = rig.client().await.runs(&session).await.unwrap().runs;
    assert!(!runs[0].is_settled(), "the run goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a12_text_and_json_carry_no_raw_controls() {
    let rig = Rig::start().await;
    let session = rig.coding().await;
    let steers = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
    let evil = "x\u{1b}[2J\u{9b}31m\u{202e}";
    rig.scripted.next(Play::plain(0));
    let one = session.as_str();
    for args in [
        &["commands", "start", one, "--command", evil][..],
        &["session", "inspect", one],
        &["commands", "list", one],
        &["workspace", "inspect", one],
        &["service", "status"],
        &["session", "list"],
    ] {
        for json in [false, true] {
            let args = if json { [args, &["--json"]].concat() } else { args.to_vec() };
            let out = sal(&rig, &args);
            let shown = text(&out.stdout);
            assert_eq!(out.status.code(), Some(0), "{args:?} {}", text(&out.stderr));
            assert_eq!(shown.chars().find(|c| steers(*c)), None, "{args:?} {shown:?}");
            if json {
                assert!(serde_json::from_str::<Value>(&shown).is_ok(), "{shown}");
            }
            // The run of the first start must be gone before the next.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a12_a_terminal_gets_logs_escaped_and_a_pipe_gets_them_raw() {
    let rig = Rig::start().await;
    let session = rig.coding().await;
    rig.scripted.next(script(EVIL, &[Play::Exit(0)]));
    let run = sal(&rig, &["commands", "start", session.as_str(), "--command", "x", "--wait", "--json"]);
    let run: Value = serde_json::from_slice(&run.stdout).unwrap();
    let run = run["run_id"].as_str().unwrap();
    let logs = ["commands", "logs", session.as_str(), "--run-id", run];
    assert_eq!(sal(&rig, &logs).stdout, EVIL);
    assert_eq!(sal(&rig, &[&logs[..], &["--follow"]].concat()).stdout, EVIL);
    assert_eq!(sal(&rig, &[&logs[..], &["--offset", "1"]].concat()).stdout, EVIL[1..]);
    let json = sal(&rig, &[&logs[..], &["--json"]].concat());
    let chunk: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((chunk["offset"].as_u64(), chunk["next_offset"].as_u64()), (Some(0), Some(EVIL.len() as u64)));
    assert_eq!(chunk["encoding"], "hex");
    // script(1) gives the program a terminal.
    let line = format!("{} {}", env!("CARGO_BIN_EXE_sal"), logs.join(" "));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("SAL_STATE", &rig.state).stdin(Stdio::null());
    match tokio::task::block_in_place(|| command.output()) {
        Ok(out) => {
            assert_eq!(text(&out.stdout).trim_end(), "a\\u{1b}]52;c;x\\u{7}\\u{9b}2J\\u{202e}\\xff\\u{d}b",)
        }
        Err(error) => eprintln!("the terminal half is skipped: script(1): {error}"),
    }
}
