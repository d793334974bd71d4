//! `sal service …` from start to stop, with a real process in the background.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
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

    // Its own last line of the start may come after the report.
    let log = loop {
        let log = std::fs::read_to_string(state.join("service.log")).unwrap();
        if log.contains("accepts clients") {
            break log;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let coding = dir.path().join("coding");
    std::fs::DirBuilder::new().mode(0o700).create(&coding).unwrap();
    let removing = coding.join(format!(".removing-{}", salaam::domain::ids::WorkspaceId::fresh()));
    std::fs::create_dir(&removing).unwrap();
    let at = coding.to_str().unwrap();
    for more in [&[][..], &["--coding-root", at, "--coding-executor", "none"]] {
        let second = sal(&state, &[&["service", "start", "--json"], more].concat());
        assert_eq!(second.status.code(), Some(125));
        assert_eq!(json(&second.stderr)["error"]["code"], "already_running");
    }
    assert_eq!(
        std::fs::read_to_string(state.join("service.log")).unwrap(),
        log,
        "a losing start wrote to the log"
    );
    assert!(removing.exists(), "a losing start swept the coding root");
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

#[test]
fn img1_without_a_default_the_shipped_pin_is_wanted_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (state, coding) = (dir.path().join("state"), dir.path().join("coding"));
    std::fs::DirBuilder::new().mode(0o700).create(&coding).unwrap();
    let (coding, store) = (coding.to_str().unwrap(), dir.path().join("images"));
    let args = ["service", "start", "--json", "--coding-root", coding, "--image-store"];
    let out = sal(&state, &[&args[..], &[store.to_str().unwrap()]].concat());
    assert_eq!(out.status.code(), Some(125));
    let error = json(&out.stderr)["error"].clone();
    assert_eq!(error["code"], "image");
    let (message, hint) = (error["message"].as_str().unwrap(), error["hint"].as_str().unwrap());
    let pin = salaam::image::shipped().unwrap().to_string();
    assert!(message.contains(&pin) && message.contains("default"), "{message}");
    for step in ["README", "sal image default REF", "--image REF"] {
        assert!(hint.contains(step), "{hint}");
    }
}

#[test]
fn ws6_refresh_adopts_reviewed_edits_and_lists_what_it_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let (state, coding) = (dir.path().join("state"), dir.path().join("coding"));
    std::fs::DirBuilder::new().mode(0o700).create(&coding).unwrap();
    let project = dir.path().join("project");
    std::fs::create_dir_all(project.join("sub")).unwrap();
    std::fs::write(project.join("a.js"), "1").unwrap();
    let at = coding.to_str().unwrap();
    let start = ["service", "start", "--json", "--coding-root", at, "--coding-executor", "none"];
    let started = sal(&state, &start);
    assert_eq!(started.status.code(), Some(0), "{}", String::from_utf8_lossy(&started.stderr));
    let create = ["session", "create", "--coding", "--json", "--cwd", project.to_str().unwrap()];
    let made = json(&sal(&state, &create).stdout);
    let session = made["session_id"].as_str().unwrap();
    let root = Path::new(made["workspace"]["root"].as_str().unwrap()).to_owned();
    let inspect = || json(&sal(&state, &["workspace", "inspect", session, "--json"]).stdout);
    let refresh = |revision: &str, digest: &str, more: &[&str]| {
        let args = ["workspace", "refresh", session, "--revision", revision, "--digest", digest];
        sal(&state, &[&args[..], more].concat())
    };
    std::fs::write(root.join("a.js"), "edited").unwrap();
    std::fs::write(root.join("sub/b.js"), "new").unwrap();
    std::fs::write(root.join(".env"), "SECRET=1").unwrap();
    for link in ["one", "two"] {
        std::os::unix::fs::symlink("a.js", root.join(link)).unwrap();
    }
    let refused = refresh("1", made["workspace"]["digest"].as_str().unwrap(), &["--json"]);
    let error = json(&refused.stderr)["error"].clone();
    let message = error["message"].as_str().unwrap();
    assert_eq!((refused.status.code(), error["code"].as_str()), (Some(125), Some("workspace_changed")));
    assert!(message.contains("'one' is a symlink") && message.contains("'two' is a symlink"), "{message}");
    for link in ["one", "two"] {
        std::fs::remove_file(root.join(link)).unwrap();
    }
    let view = inspect();
    let reviewed = view["observed_digest"].as_str().unwrap();
    assert!(view["excluded"].to_string().contains(".env"), "{view}");
    let told = || String::from_utf8(sal(&state, &["workspace", "inspect", session]).stderr).unwrap();
    let next = format!("sal workspace refresh {session} --revision 1 --digest {reviewed}\n");
    assert!(told().ends_with(&next), "{}", told());
    let adopted = json(&refresh("1", reviewed, &["--json"]).stdout);
    assert_eq!((adopted["revision"].as_u64(), adopted["digest"].as_str()), (Some(2), Some(reviewed)));
    let new = Path::new(adopted["root"].as_str().unwrap());
    assert_eq!(std::fs::read(new.join("sub/b.js")).unwrap(), b"new");
    assert!(new.ends_with("r00002") && !new.join(".env").exists());
    let view = inspect();
    assert_eq!((view["changes"].to_string(), view["blocked"].to_string()), ("[]".into(), "[]".into()));
    assert_eq!(told(), "", "there is nothing to adopt");
    let same = String::from_utf8(refresh("2", reviewed, &[]).stdout).unwrap();
    assert!(same.starts_with("nothing to adopt") && same.contains("revision   2"), "{same}");
    assert_eq!(json(&refresh("1", reviewed, &["--json"]).stdout), adopted, "a repeat is answered alike");
    let stale = json(&refresh("1", made["workspace"]["digest"].as_str().unwrap(), &["--json"]).stderr);
    assert_eq!(stale["error"]["code"], "stale_revision");
    assert_eq!(std::fs::read(project.join("a.js")).unwrap(), b"1", "the checkout is never written");
    assert_eq!(sal(&state, &["service", "stop"]).status.code(), Some(0));
    // They do not lie below another coding root.
    let other = dir.path().join("other");
    std::fs::DirBuilder::new().mode(0o700).create(&other).unwrap();
    let mut elsewhere = start;
    elsewhere[4] = other.to_str().unwrap();
    let refused = sal(&state, &elsewhere);
    let error = json(&refused.stderr)["error"].clone();
    assert_eq!((refused.status.code(), error["code"].as_str()), (Some(125), Some("conflict")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(at) && message.contains(elsewhere[4]), "{message}");
    assert!(error["hint"].as_str().unwrap().contains(&format!("--coding-root {at} ")), "{error}");
    // Another service finds both revisions.
    assert_eq!(sal(&state, &start).status.code(), Some(0));
    assert_eq!(inspect()["revision"], 2);
    assert_eq!(std::fs::read(root.join("a.js")).unwrap(), b"edited", "hand edits are kept");
    assert_eq!(sal(&state, &["service", "stop"]).status.code(), Some(0));
}
