//! The command line as a process: exit codes, streams and forms. No service runs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "fixtures/oci_layout.rs"]
#[allow(dead_code)]
mod oci_layout;

use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn sal(args: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_sal"))
        .args(args)
        .env_clear()
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

const SESSION: &str = "ses-00000000000000000000000000000000";

#[test]
fn json_usage_errors_exit_2_in_both_forms() {
    for args in [
        &["bogus"][..],
        &[],
        &["commands", "start"],
        &["commands", "start", SESSION, "--command", "true", "--cwd", "../x"],
        &["commands", "start", SESSION, "--command", "true", "--step-key", "a b"],
        &["session", "inspect", "nonsense"],
        &["tool", "call", SESSION, "salaam_rm"],
        &["tool", "call", SESSION, "salaam_files", "--call-id", "a b"],
        &["service", "start", "--coding-executor", "oci"],
        &["service", "start", "--coding-executor", "docker", "--coding-root", "/x"],
    ] {
        let out = sal(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(out.stdout.is_empty() && !out.stderr.is_empty(), "{args:?}");
        let out = sal(&[args, &["--json"]].concat());
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        let error: Value = serde_json::from_slice(&out.stderr).unwrap_or_else(|_| panic!("{args:?}"));
        assert_eq!(error["error"]["code"], "invalid", "{args:?}");
    }
}

#[test]
fn json_no_service_is_one_error_and_exit_125() {
    for args in [
        &["service", "status"][..],
        &["service", "stop"],
        &["session", "create", "--coding"],
        &["session", "list"],
        &["session", "rm", SESSION],
        &["workspace", "inspect", SESSION],
        &["tool", "call", SESSION, "salaam_files"],
        &["commands", "start", SESSION, "--command", "true", "--wait"],
        &["commands", "list", SESSION],
    ] {
        let out = sal(args);
        assert_eq!(out.status.code(), Some(125), "{args:?}");
        assert!(out.stdout.is_empty());
        let said = text(&out.stderr);
        assert!(said.starts_with("sal: no service runs on the state directory "), "{args:?}: {said}");
        assert!(said.contains("\nhint: start one: sal service start --state "), "{said}");
        assert_eq!(said.lines().count(), 2, "{said}");
        let out = sal(&[args, &["--json"]].concat());
        let error: Value = serde_json::from_slice(&out.stderr).unwrap();
        assert_eq!(error["error"]["code"], "not_running");
    }
}

#[test]
fn svc1_what_is_not_built_says_so() {
    for args in [
        &["attach", SESSION][..],
        &["mcp", SESSION],
        &["proof", "compare", "a", "b"],
        &["session", "create", "--parent", SESSION, "--read-only"],
    ] {
        let out = sal(&[args, &["--json"]].concat());
        assert_eq!(out.status.code(), Some(125), "{args:?}");
        let error: Value = serde_json::from_slice(&out.stderr).unwrap();
        assert_eq!(error["error"]["code"], "not_built", "{args:?}");
    }
}

#[test]
fn svc1_a_refused_background_start_is_told_by_the_parent() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let state = state.to_str().unwrap();
    for provider in ["anthropic", "claude"] {
        let out = sal(&["service", "start", "--state", state, "--provider", provider, "--json"]);
        assert_eq!(out.status.code(), Some(125));
        let error: Value = serde_json::from_slice(&out.stderr).unwrap();
        assert_eq!(error["error"]["code"], "not_built");
        assert!(out.stdout.is_empty());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something was made");
    }
}

#[test]
fn img1_listing_and_removing_images() {
    let dir = tempfile::tempdir().unwrap();
    let (layout, store) = (dir.path().join("layout"), dir.path().join("store"));
    let image =
        |args: &[&str]| sal(&[&["image"], args, &["--image-store", store.to_str().unwrap()]].concat());
    let json = |args: &[&str]| -> Value {
        let out = image(&[args, &["--json"]].concat());
        let bytes = if out.status.success() { &out.stdout } else { &out.stderr };
        serde_json::from_slice(bytes).unwrap_or_else(|e| panic!("{e}: {out:?}"))
    };
    let absent = format!("localhost/none@sha256:{}", "0".repeat(64));
    let missing = json(&["inspect", &absent]);
    assert!(missing["error"]["hint"].as_str().unwrap().contains("sal image ls"), "{missing}");
    oci_layout::make(&layout, "localhost/test/image:1", &[oci_layout::base()]);
    let imported = json(&["import", layout.to_str().unwrap()]);
    let reference = imported["reference"].as_str().unwrap().to_owned();
    let listed = json(&["ls"]);
    let shown = &listed["images"][0];
    assert_eq!((shown["reference"].as_str(), &shown["default"]), (Some(reference.as_str()), &false.into()));
    for internal in ["seals", "tree", "blobs", "format"] {
        assert!(shown.get(internal).is_none() && imported.get(internal).is_none(), "{internal}: {shown}");
    }
    assert!(shown["disk"]["own"].as_u64().unwrap() > 0 && shown["disk"]["shared"] == 0, "{shown}");
    assert_eq!(listed["disk"], shown["disk"]["own"]);
    assert_eq!((&shown["layered"], &shown["used_by"]), (&true.into(), &serde_json::json!([])));
    let all = json(&["verify"]);
    assert_eq!((&all["sound"], &all["reference"]), (&true.into(), &Value::Null), "{all}");
    json(&["default", &reference]);
    assert_eq!(json(&["gc", "--unused"])["removed"], serde_json::json!([]), "the default was collected");
    assert_eq!(json(&["ls"])["images"][0]["default"], true);
    let refused = json(&["rm", &reference]);
    assert_eq!(refused["error"]["code"], "forbidden");
    assert!(refused["error"]["message"].as_str().unwrap().contains(&reference), "{refused}");
    assert_eq!(json(&["rm", &reference, "--force"])["removed"], reference.as_str());
    assert_eq!(json(&["ls"])["images"], serde_json::json!([]));
    assert_eq!(std::fs::read_dir(store.join("blobs/sha256")).unwrap().count(), 0);
}

#[test]
fn svc2_an_open_state_directory_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let out = sal(&["service", "start", "--state", dir.path().to_str().unwrap(), "--json"]);
    assert_eq!(out.status.code(), Some(125));
    let error: Value = serde_json::from_slice(&out.stderr).unwrap();
    assert_eq!(error["error"]["code"], "unsafe_path");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was written");
}

#[test]
fn a12_arguments_come_back_escaped() {
    let evil = "\u{1b}]52;c;cm0=\u{7}\u{9b}2J\u{202e}\r";
    for args in [
        &["session", "inspect", evil][..],
        &[evil],
        &["service", "status", "--state", evil],
        &["service", "status", "--json", "--state", evil],
        &["commands", "start", SESSION, "--command", "x", "--step-key", evil],
    ] {
        let out = sal(args);
        assert!(!out.status.success());
        let said = text(&out.stderr);
        let raw =
            said.chars().find(|c| (c.is_control() && *c != '\n') || ('\u{202a}'..='\u{202e}').contains(c));
        assert_eq!(raw, None, "{args:?}: {said:?}");
    }
}

#[test]
fn cli_a_closed_or_full_standard_output_does_not_panic() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    for args in [&["openapi"][..], &["--help"]] {
        let out = Command::new(env!("CARGO_BIN_EXE_sal"))
            .args(args)
            .stdout(writer.try_clone().unwrap())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(141));
        assert_eq!(text(&out.stderr), "");
    }
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_sal"))
        .arg("openapi")
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(125));
    assert!(text(&out.stderr).contains("standard output"));
}

#[test]
fn cli_help_and_version_go_to_standard_output() {
    for args in [&["--help"][..], &["--version"], &["commands", "start", "--help"]] {
        let out = sal(args);
        assert_eq!(out.status.code(), Some(0));
        assert!(!out.stdout.is_empty() && out.stderr.is_empty());
    }
}

/// The points of injected faults are for the crash matrix alone.
#[cfg(not(feature = "failpoints"))]
#[test]
fn svc1_the_executable_has_no_fault_points() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_sal")).unwrap();
    let has = |word: &[u8]| program.windows(word.len()).any(|part| part == word);
    assert!(has(b"control.sock"), "the search finds what is there");
    assert!(!has(b"SAL_FAULT_TRACE") && !has(b"FAILPOINTS"));
}
