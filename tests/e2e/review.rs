//! The whole loop of a change: a client patches, the tests run on that revision, the person reviews the
//! diff, applies it with git, edits the directory by hand and adopts that.

use crate::host::{Host, Image, SAL, Seen, fixture};
use salaam::domain::digest::Digest;
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

pub const CASES: &[(&str, fn())] = &[("ws6_ws7_ft2_patch_test_review_apply_and_refresh", whole_loop)];

/// Calls the file tool, as a client without MCP does.
pub fn tool(host: &Host, session: &str, call: &str, request: &Value) -> Seen {
    let mut child = Command::new(SAL)
        .args(["tool", "call", session, "salaam_files", "--call-id", call, "--state"])
        .arg(host.state())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

fn git(at: &Path, args: &[&str]) {
    let done = Command::new("git").args(args).current_dir(at).env("HOME", at).output().unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn whole_loop() {
    let host = Host::start(Image::Debian);
    let original = fixture("error-4.3.0");
    let session = host.session(&original);
    let file = |path: &str| fs::read_to_string(original.join(path)).unwrap();
    let hash = |text: &str| Digest::of(text.as_bytes()).to_string();
    let (readme, index) = (file("README.md"), file("index.js"));
    let first = index.lines().next().unwrap();
    let request = json!({ "operation": "patch", "revision": 1, "files": [
        { "path": "README.md", "expected_hash": hash(&readme), "content": format!("{readme}reviewed\n") },
        { "path": "index.js", "expected_hash": hash(&index),
          "edits": [{ "old": index, "new": format!("{first}\n// patched{}", &index[first.len()..]) }] },
        { "path": "docs/new file.md", "expected_hash": null, "content": "no newline at the end" },
    ] });
    let made = tool(&host, &session, "c-1", &request).ok().json();
    assert_eq!(made["revision"], 2, "{made}");
    // The same call again is the same answer; the same id with another patch is refused.
    assert_eq!(tool(&host, &session, "c-1", &request).ok().json(), made);
    let mut other = request.clone();
    other["files"][2]["content"] = json!("x");
    assert_ne!(tool(&host, &session, "c-1", &other).code, 0);
    // The tests run on that revision.
    let ran = host.run(&session, "node --test && cat 'docs/new file.md'");
    assert_eq!((ran.code, ran.run["revision"].as_u64()), (0, Some(2)), "{ran:?}");
    assert!(ran.output.contains("pass 36") && ran.output.contains("no newline at the end"), "{ran:?}");
    // The checkout was not touched; the diff applies to it.
    assert_eq!(file("README.md"), readme);
    let checkout = host.path().join("checkout");
    let copied = Command::new("cp").arg("-r").arg(&original).arg(&checkout).status().unwrap();
    assert!(copied.success());
    git(&checkout, &["init", "-q"]);
    let diff = host.sal(&["workspace", "diff", &session]).ok();
    fs::write(host.path().join("patch"), &diff.stdout).unwrap();
    git(&checkout, &["apply", "../patch"]);
    let root = |view: &Value| std::path::PathBuf::from(view["root"].as_str().unwrap());
    let inspect = || host.sal(&["workspace", "inspect", &session, "--json"]).ok().json();
    let second = inspect();
    for path in ["README.md", "index.js", "docs/new file.md"] {
        assert_eq!(
            fs::read(checkout.join(path)).unwrap(),
            fs::read(root(&second).join(path)).unwrap(),
            "{path}"
        );
    }
    // An edit by hand is seen, keeps commands from starting, and is adopted exactly as it was reviewed.
    fs::write(root(&second).join("by-hand.txt"), "mine\n").unwrap();
    let refused = host.sal(&["commands", "start", &session, "--json", "--command", "true"]);
    assert_eq!(refused.error()["code"], "workspace_changed");
    let seen = inspect();
    let digest = seen["observed_digest"].as_str().unwrap();
    assert_eq!(seen["changes"][0]["path"], "by-hand.txt", "{seen}");
    let refresh = |digest: &str| {
        host.sal(&["workspace", "refresh", &session, "--revision", "2", "--digest", digest, "--json"])
    };
    assert_ne!(refresh(second["digest"].as_str().unwrap()).code, 0);
    assert_eq!(refresh(digest).ok().json()["revision"], 3);
    assert_eq!(host.run(&session, "cat by-hand.txt").output, "mine\n");
    let diff = host.sal(&["workspace", "diff", &session]).ok();
    assert!(diff.stdout.contains("by-hand.txt") && diff.stdout.contains("reviewed"), "{diff:?}");
}
