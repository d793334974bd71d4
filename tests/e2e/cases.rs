//! Cases that users of such tools have met (D6, D7, I1, I5, A24), through the program.

use crate::Case;
use crate::host::{Host, Seen};
use crate::review::tool;
use salaam::domain::digest::Digest;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    ("d5_one_letter_in_a_file_of_every_line_end_changes_one_byte", line_ends),
    ("d6_an_executable_runs_and_its_deletion_names_its_mode", deleted_executable),
    ("d7_nothing_in_names_output_or_files_steers_a_terminal", terminal),
    ("i1_a_symlink_is_refused_by_name_and_leaves_nothing", symlinked),
    ("i5_a_project_made_under_umask_077_runs_and_stays_private", private),
    ("a24_an_output_swapped_for_a_symlink_is_never_followed", swapped_output),
    ("cmd3_an_editor_that_writes_while_commands_start", editor),
];

pub fn inspect(host: &Host, session: &str) -> Value {
    host.sal(&["workspace", "inspect", session, "--json"]).ok().json()
}

pub fn root(host: &Host, session: &str) -> PathBuf {
    PathBuf::from(inspect(host, session)["root"].as_str().unwrap())
}

fn line_ends(host: &Host) {
    let content = "\u{feff}one\r\ntwo\nthr\ree\u{2028}x\r\nlast".as_bytes();
    let session = host.session(&host.project("d5", &[("f!", content)]));
    let request = json!({ "operation": "patch", "revision": 1, "files": [
        { "path": "f", "expected_hash": Digest::of(content).as_str(), "edits": [{ "old": "two", "new": "twO" }] },
    ] });
    tool(host, &session, "c-1", &request).ok();
    let file = root(host, &session).join("f");
    let made = fs::read(&file).unwrap();
    assert_eq!(made.len(), content.len());
    let differ: Vec<usize> = (0..made.len()).filter(|at| made[*at] != content[*at]).collect();
    assert_eq!(differ.len(), 1, "{made:?}");
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o755, "the executable bit is kept");
    let seen = host.run(&session, "cat f").run["run_id"].as_str().unwrap().to_owned();
    assert_eq!(host.log(&session, &seen, 0), made);
}

fn deleted_executable(host: &Host) {
    let script = b"#!/bin/sh\necho ran\n";
    let session = host.session(&host.project("d6", &[("run.sh!", script)]));
    let ran = host.run(&session, "./run.sh");
    assert_eq!((ran.code, ran.output.as_str()), (0, "ran\n"), "{ran:?}");
    let request = json!({ "operation": "patch", "revision": 1, "files": [
        { "path": "run.sh", "expected_hash": Digest::of(script).as_str(), "content": null },
        { "path": "keep", "expected_hash": null, "content": "k\n" },
    ] });
    assert_eq!(tool(host, &session, "c-1", &request).ok().json()["revision"], 2);
    let diff = host.sal(&["workspace", "diff", &session]).ok().stdout;
    assert!(diff.contains("diff --git a/run.sh b/run.sh\ndeleted file mode 100755\n"), "{diff}");
    assert_eq!(host.run(&session, "./run.sh").code, 127);
}

/// Runs the program on a terminal, which script(1) makes; answers all that the terminal got.
fn on_terminal(host: &Host, args: &str) -> String {
    let line = format!("{} {args} --state {}", crate::host::SAL, host.state().display());
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("NO_COLOR", "1").env("TERM", "xterm").stdin(Stdio::null());
    let out = command.output().unwrap();
    String::from_utf8(out.stdout).unwrap()
}

fn terminal(host: &Host) {
    let evil = "\u{1b}]52;c;eA==\u{7}\u{9b}2J\u{202e}caf\u{e9}\r\n";
    let name = "caf\u{e9}\u{202e}gpj.js";
    let project = host.project("d7", &[(name, evil.as_bytes()), ("plain.js", "caf\u{e9}\n".as_bytes())]);
    let session = host.session(&project);
    let ran = host.run(&session, "ls; cat *.js; echo caf\u{e9} >&2");
    assert_eq!(ran.code, 0, "{ran:?}");
    let id = ran.run["run_id"].as_str().unwrap().to_owned();
    // The bytes are the same by whatever offset.
    let whole = host.log(&session, &id, 0);
    assert!(String::from_utf8(whole.clone()).unwrap().contains(evil), "{ran:?}");
    for offset in 0..whole.len() {
        if offset % 13 == 0 {
            assert_eq!(host.log(&session, &id, offset as u64), &whole[offset..], "{offset}");
        }
    }
    let request = json!({ "operation": "patch", "revision": 1, "files": [
        { "path": name, "expected_hash": Digest::of(evil.as_bytes()).as_str(), "content": format!("{evil}more\n") },
        { "path": "plain.js", "expected_hash": Digest::of("caf\u{e9}\n".as_bytes()).as_str(),
          "content": "caf\u{e9}s\n" },
    ] });
    tool(host, &session, "c-1", &request).ok();
    let hand = root(host, &session).join("by-hand\u{202e}\u{e9}");
    fs::write(&hand, "x").unwrap();
    // Names that hold a control character never enter; the refusal shows them escaped.
    let bad = host.project("d7-bad", &[("caf\u{e9}\u{1b}[31m", b"x"), ("c1\u{9b}2J", b"x")]);
    let told: Vec<(&str, String)> = vec![
        ("logs", on_terminal(host, &format!("commands logs {session} --run-id {id}"))),
        ("diff", on_terminal(host, &format!("workspace diff {session}"))),
        ("stat", on_terminal(host, &format!("workspace diff {session} --stat"))),
        ("inspect", on_terminal(host, &format!("workspace inspect {session}"))),
        ("start", on_terminal(host, &format!("commands start {session} --command true"))),
        ("create", on_terminal(host, &format!("session create --coding --cwd {}", bad.display()))),
        ("list", on_terminal(host, &format!("commands list {session}"))),
    ];
    for (what, text) in &told {
        let steers = |c: char| {
            (c.is_control() && !matches!(c, '\n' | '\r' | '\t')) || matches!(c, '\u{202a}'..='\u{202e}')
        };
        assert!(!text.contains(steers), "{what}: {text:?}");
        if *what != "list" {
            assert!(text.contains('\u{e9}'), "{what}: an ordinary letter came to harm: {text:?}");
        }
    }
    assert!(told[5].1.contains("control character"), "{:?}", told[5]);
    // Into a pipe, the diff carries the bytes as they are.
    fs::remove_file(hand).unwrap();
    let diff = host.sal(&["workspace", "diff", &session]).ok().stdout;
    assert!(diff.contains(&format!(" {}", evil.trim_end_matches('\n'))), "{diff:?}");
}

fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn create(host: &Host, project: &Path) -> Seen {
    host.sal(&["session", "create", "--coding", "--json", "--cwd", project.to_str().unwrap()])
}

fn symlinked(host: &Host) {
    let project = host.project("i1", &[("AGENTS.md", b"rules"), ("a.js", b"1")]);
    symlink("AGENTS.md", project.join("CLAUDE.md")).unwrap();
    let sessions = || host.sal(&["session", "list", "--json"]).ok().json();
    let before = (entries(&host.coding()), sessions());
    let refused = create(host, &project);
    let error = refused.error();
    assert_eq!((refused.code, error["code"].as_str()), (125, Some("import_refused")), "{refused:?}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("'CLAUDE.md' is a symlink; replace it with a copy"), "{message}");
    assert!(!error["hint"].as_str().unwrap().is_empty());
    assert_eq!((entries(&host.coding()), sessions()), before, "something is left");
    fs::remove_file(project.join("CLAUDE.md")).unwrap();
    fs::copy(project.join("AGENTS.md"), project.join("CLAUDE.md")).unwrap();
    create(host, &project).ok();
}

/// Mode and change time of everything below.
fn modes(dir: &Path) -> Vec<(PathBuf, u32, i64, i64)> {
    let (mut all, mut todo) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(path) = todo.pop() {
        let meta = path.symlink_metadata().unwrap();
        if meta.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        all.push((path, meta.mode(), meta.ctime(), meta.ctime_nsec()));
    }
    all.sort();
    all
}

fn private(host: &Host) {
    let test = b"require('node:test')('reads', () => require('./lib/a.js'))";
    let project = host.project("i5", &[("t.test.js", test), ("lib/a.js", b"1"), ("run.sh!", b"#!/bin/sh\n")]);
    for (path, mode) in
        [("", 0o700), ("lib", 0o700), ("t.test.js", 0o600), ("lib/a.js", 0o600), ("run.sh", 0o700)]
    {
        fs::set_permissions(project.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let before = modes(&project);
    let session = host.session(&project);
    let ran = host.run(&session, "node --test && ./run.sh");
    assert_eq!(ran.code, 0, "{ran:?}");
    // The checkout is neither written nor given other modes (WS.8).
    assert_eq!(modes(&project), before);
    // Another user does not get at the copy.
    let copy = root(host, &session).join("lib/a.js");
    assert_eq!(fs::read(&copy).unwrap(), b"1");
    let foreign = Command::new("cat").arg(&copy).uid(65_534).gid(65_534).output().unwrap();
    assert!(!foreign.status.success() && foreign.stdout.is_empty(), "{foreign:?}");
}

fn swapped_output(host: &Host) {
    let session = host.session(&host.project("a24", &[("a", b"a")]));
    let ran = host.run(&session, "echo kept");
    let id = ran.run["run_id"].as_str().unwrap();
    let canary = host.path().join("canary");
    fs::write(&canary, "canary-secret\n").unwrap();
    let output = host.state().join("outputs").join(id);
    let aside = host.path().join("aside");
    fs::rename(&output, &aside).unwrap();
    symlink(&canary, &output).unwrap();
    let logs = || host.sal(&["commands", "logs", &session, "--run-id", id]);
    let seen = logs();
    assert_eq!(seen.code, 125, "{seen:?}");
    assert!(seen.stderr.contains(output.to_str().unwrap()), "{seen:?}");
    assert!(!seen.stdout.contains("canary") && !seen.stderr.contains("canary-secret"), "{seen:?}");
    // Nor does one that leads nowhere, or a pipe, hold anybody up.
    fs::remove_file(&output).unwrap();
    nix::unistd::mkfifo(&output, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let quick = Instant::now();
    assert!(!logs().stdout.contains("kept"));
    assert!(quick.elapsed() < Duration::from_secs(5), "{:?}", quick.elapsed());
    fs::remove_file(&output).unwrap();
    fs::rename(&aside, &output).unwrap();
    assert_eq!(logs().ok().stdout, "kept\n");
    assert_eq!(fs::read(&canary).unwrap(), b"canary-secret\n");
}

const PUBLISHED: &str = "as published\n";

/// What became of one start.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    Ran,
    Refused,
    /// The file changed between the check and the copy into the container: it never ran.
    Failed,
}

fn start(host: &Host, session: &str) -> Start {
    let args = ["commands", "start", session, "--json", "--wait", "--command", "cat a.txt b.txt"];
    let seen = host.sal(&args);
    if seen.stdout.is_empty() {
        let error = seen.error();
        assert_eq!(error["code"], "workspace_changed", "{seen:?}");
        assert!(error["message"].as_str().unwrap().contains("b.txt"), "{seen:?}");
        return Start::Refused;
    }
    let run = seen.json();
    assert_eq!(run["revision"], 1, "{run}");
    let outcome = &run["outcome"];
    let output = host.log(session, run["run_id"].as_str().unwrap(), 0);
    if outcome["cause"] == "exited" {
        assert_eq!(String::from_utf8_lossy(&output), PUBLISHED.repeat(2), "{run}");
        return Start::Ran;
    }
    assert_eq!(outcome["cause"], "start_failed", "{run}");
    assert!(outcome["detail"].as_str().unwrap().contains("'b.txt'"), "{run}");
    assert!(output.is_empty(), "{run}");
    Start::Failed
}

fn editor(host: &Host) {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    let files: [(&str, &[u8]); 2] = [("a.txt", PUBLISHED.as_bytes()), ("b.txt", PUBLISHED.as_bytes())];
    let session = host.session(&host.project("editor", &files));
    let seen = inspect(host, &session);
    let dir = PathBuf::from(seen["root"].as_str().unwrap());
    let (file, new) = (dir.join("b.txt"), host.path().join("new"));
    let (stop, writes) = (AtomicBool::new(false), AtomicU32::new(0));
    let (mut ran, mut refused, mut failed) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // As editors do it: in place, or by a rename over the file; and back again.
            while !stop.load(Ordering::Relaxed) {
                let n = writes.fetch_add(1, Ordering::Relaxed);
                let text = if n % 2 == 0 { "AS PUBLISHED\n".to_owned() } else { format!("edit {n}\n") };
                if n % 3 == 0 {
                    fs::write(&file, text).unwrap();
                } else {
                    fs::write(&new, text).unwrap();
                    fs::rename(&new, &file).unwrap();
                }
                std::thread::sleep(Duration::from_micros(u64::from(n * 7_919 % 9_000)));
                fs::write(&new, PUBLISHED).unwrap();
                fs::rename(&new, &file).unwrap();
                std::thread::sleep(Duration::from_micros(u64::from(n * 6_007 % 40_000)));
            }
        });
        let end = Instant::now() + Duration::from_secs(90);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while ran + refused + failed < 40 || ran < 5 || refused < 3 {
                assert!(Instant::now() < end, "{ran} ran, {refused} were refused, {failed} failed");
                match start(host, &session) {
                    Start::Ran => ran += 1,
                    Start::Refused => refused += 1,
                    Start::Failed => failed += 1,
                }
            }
        }));
        stop.store(true, Ordering::Relaxed);
        panicked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    println!("{ran} ran, {refused} refused, {failed} failed at the copy, {writes:?} edits");
    assert_eq!(start(host, &session), Start::Ran);
}
