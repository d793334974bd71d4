//! A2: a patch over a limit, and one that meets a full disk, through the program.

#[path = "../fixtures/disk.rs"]
#[allow(dead_code)]
mod small;

use crate::cases::inspect;
use crate::host::{Host, Image};
use crate::review::tool;
use salaam::domain::digest::Digest;
use serde_json::{Value, json};
use small::{Disk, apart};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

pub const CASES: &[(&str, fn())] = &[
    ("a2_a_patch_over_the_limit_or_on_a_full_disk_changes_nothing", || apart(full)),
    ("ws3_a_project_that_meets_a_full_disk_is_not_imported", || apart(import)),
];

fn on(mebibytes: u64) -> (Host, Disk) {
    let host = Host::prepare(Image::Musl);
    fs::remove_dir(host.coding()).unwrap();
    let disk = Disk::ext4(&host.coding(), mebibytes);
    fs::set_permissions(host.coding(), fs::Permissions::from_mode(0o700)).unwrap();
    host.service_start().ok();
    (host, disk)
}

fn patch(length: usize) -> Value {
    json!({ "operation": "patch", "revision": 1, "files": [
        { "path": "a", "expected_hash": Digest::of(b"one\n").as_str(),
          "edits": [{ "old": "one", "new": "two" }] },
        { "path": "b", "expected_hash": null, "content": "x".repeat(length) },
    ] })
}

fn full() {
    let (host, disk) = on(24);
    let session = host.session(&host.project("p", &[("a", b"one\n")]));
    let before = inspect(&host, &session);
    let read = json!({ "operation": "read", "path": "a" });
    let unchanged = || {
        assert_eq!(inspect(&host, &session), before);
        assert_eq!(before["observed_digest"], before["digest"]);
        let seen = tool(&host, &session, "r", &read).ok().json();
        assert_eq!((&seen["revision"], &seen["lines"][0]["text"]), (&json!(1), &json!("one")), "{seen}");
        assert_eq!(host.sal(&["workspace", "diff", &session]).ok().stdout, "");
    };
    let seen = tool(&host, &session, "c-1", &patch(262_145));
    let said = format!("{seen:?}");
    assert!(seen.code != 0 && said.contains("'b' has 262145 bytes"), "{said}");
    assert!(said.contains("the limit for one file is 262144"), "{said}");
    unchanged();
    disk.fill(0);
    let fits = patch(262_144);
    let seen = tool(&host, &session, "c-2", &fits);
    let said = format!("{seen:?}");
    assert!(seen.code != 0 && said.contains("bytes and") && said.contains("inodes free"), "{said}");
    assert!(said.contains(host.coding().to_str().unwrap()), "{said}");
    unchanged();
    // A start with the disk still full is clean.
    host.sal(&["service", "stop"]).ok();
    host.service_start().ok();
    unchanged();
    disk.free();
    let made = tool(&host, &session, "c-2", &fits).ok().json();
    assert_eq!(made["revision"], 2, "{made}");
    assert_eq!(tool(&host, &session, "c-2", &fits).ok().json(), made);
    let ran = host.run(&session, "cat a; wc -c <b");
    assert_eq!(ran.output.split_whitespace().collect::<Vec<_>>(), ["two", "262144"], "{ran:?}");
}

fn import() {
    let (host, disk) = on(24);
    let project = host.project("p", &[("a", b"one\n")]);
    let create =
        || host.sal(&["session", "create", "--coding", "--json", "--cwd", project.to_str().unwrap()]);
    disk.fill(1 << 20);
    let seen = create();
    let error = seen.error();
    assert_eq!((seen.code, error["code"].as_str()), (125, Some("limit_exceeded")), "{seen:?}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("the copy needs") && message.contains("inodes"), "{message}");
    assert_eq!(host.sal(&["session", "list", "--json"]).ok().json()["sessions"], json!([]));
    disk.free();
    let names = || fs::read_dir(host.coding()).unwrap().count();
    assert_eq!(names(), 1, "only lost+found");
    create().ok();
    assert_eq!(names(), 2);
}
