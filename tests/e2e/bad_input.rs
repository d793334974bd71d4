//! Bad input: one clear error that names the thing and the next step, nothing lost, the next works.

use crate::host::{Host, Image, Seen, image_store};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

pub const CASES: &[(&str, fn())] = &[
    ("svc2_coding_roots_that_are_refused", coding_roots),
    ("svc2_state_directories_that_are_refused", state_directories),
    ("a24_a_log_swapped_for_a_symlink_is_never_followed", swapped_log),
    ("img1_references_that_are_refused", references),
    ("img2_a_flipped_byte_in_a_blob", flipped_byte),
    ("ws2_projects_that_are_refused", projects),
    ("svc1_what_is_not_built_says_so", not_built),
    ("host_without_a_controller_is_refused_by_name", no_controller),
];

fn refused(seen: &Seen, code: &str, words: &[&str]) {
    assert_eq!(seen.code, 125, "{seen:?}");
    let error = seen.error();
    assert_eq!(error["code"], code, "{seen:?}");
    assert!(!error["hint"].as_str().unwrap().is_empty(), "no next step: {seen:?}");
    for word in words {
        assert!(error["message"].as_str().unwrap().contains(word), "'{word}' is not named: {seen:?}");
    }
}

fn start(host: &Host, coding: &Path) -> Seen {
    let (store, pin) = (image_store(), host.image.pin());
    host.sal(&[
        "service",
        "start",
        "--json",
        "--coding-root",
        coding.to_str().unwrap(),
        "--image-store",
        store.to_str().unwrap(),
        "--image",
        &pin,
    ])
}

fn coding_roots() {
    let host = Host::prepare(Image::Musl);
    let at = |name: &str| host.path().join(name);
    fs::create_dir(at("open")).unwrap();
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(at("file"), "x").unwrap();
    symlink(host.coding(), at("link")).unwrap();
    refused(&start(&host, &at("missing")), "unsafe_path", &["missing"]);
    refused(&start(&host, &at("open")), "unsafe_path", &["open", "0755"]);
    refused(&start(&host, &at("file")), "unsafe_path", &["file"]);
    refused(&start(&host, &at("link")), "unsafe_path", &["link", "symlink"]);
    start(&host, &host.coding()).ok();
    // Outside every project, both ways round.
    let inside =
        host.sal(&["session", "create", "--coding", "--json", "--cwd", host.path().to_str().unwrap()]);
    refused(&inside, "unsafe_path", &["coding"]);
    let inside =
        host.sal(&["session", "create", "--coding", "--json", "--cwd", host.coding().to_str().unwrap()]);
    refused(&inside, "unsafe_path", &["coding"]);
    let session = host.session(&host.project("fine", &[("a", b"a")]));
    assert_eq!(host.run(&session, "true").code, 0);
}

fn state_directories() {
    let host = Host::prepare(Image::Musl);
    fs::create_dir(host.state()).unwrap();
    fs::set_permissions(host.state(), fs::Permissions::from_mode(0o755)).unwrap();
    refused(&start(&host, &host.coding()), "unsafe_path", &["state"]);
    fs::set_permissions(host.state(), fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(host.state(), Some(12_345), None).unwrap();
    refused(&start(&host, &host.coding()), "unsafe_path", &["state"]);
    fs::remove_dir(host.state()).unwrap();
    symlink(host.coding(), host.state()).unwrap();
    refused(&start(&host, &host.coding()), "unsafe_path", &["state"]);
    fs::remove_file(host.state()).unwrap();
    start(&host, &host.coding()).ok();
}

fn swapped_log() {
    let host = Host::start(Image::Musl);
    host.sal(&["service", "stop"]).ok();
    let (canary, log) = (host.path().join("canary"), host.state().join("service.log"));
    fs::write(&canary, "as it was\n").unwrap();
    fs::remove_file(&log).unwrap();
    symlink(&canary, &log).unwrap();
    refused(&start(&host, &host.coding()), "unsafe_path", &["service.log"]);
    assert_eq!(fs::read(&canary).unwrap(), b"as it was\n");
    fs::remove_file(&log).unwrap();
    host.service_start().ok();
}

fn references() {
    let host = Host::prepare(Image::Musl);
    let (store, coding) = (image_store(), host.coding());
    let with = |image: &str| {
        host.sal(&[
            "service",
            "start",
            "--json",
            "--coding-root",
            coding.to_str().unwrap(),
            "--image-store",
            store.to_str().unwrap(),
            "--image",
            image,
        ])
    };
    refused(&with("docker.io/library/node:26"), "invalid", &["digest"]);
    let unknown = format!("localhost/none@sha256:{}", "0".repeat(64));
    refused(&with(&unknown), "not_found", &["localhost/none"]);
    let empty = host.path().join("images");
    let seen = host.sal(&[
        "service",
        "start",
        "--json",
        "--coding-root",
        coding.to_str().unwrap(),
        "--image-store",
        empty.to_str().unwrap(),
    ]);
    refused(&seen, "image", &["default"]);
    host.service_start().ok();
}

/// The stored blobs of an image as a layout of their own.
fn layout_of(image: Image, into: &Path) -> Vec<String> {
    let store = salaam::image::Store::open(&image_store()).unwrap();
    let record = store.inspect(&salaam::image::Reference::parse(&image.pin()).unwrap()).unwrap();
    let blobs = into.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let from = image_store().join("blobs/sha256");
    let digest = record.pin.manifest.clone();
    let manifest = fs::read(from.join(digest.hex())).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let mut names = vec![digest.as_str().to_owned(), value["config"]["digest"].as_str().unwrap().to_owned()];
    names
        .extend(value["layers"].as_array().unwrap().iter().map(|l| l["digest"].as_str().unwrap().to_owned()));
    for name in &names {
        let hex = name.strip_prefix("sha256:").unwrap();
        fs::copy(from.join(hex), blobs.join(hex)).unwrap();
    }
    fs::write(into.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let index = serde_json::json!({ "schemaVersion": 2, "manifests": [{
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": manifest.len(),
    }]});
    fs::write(into.join("index.json"), index.to_string()).unwrap();
    names
}

fn flipped_byte() {
    let dir = tempfile::tempdir().unwrap();
    let (layout, store) = (dir.path().join("layout"), dir.path().join("store"));
    let names = layout_of(Image::Musl, &layout);
    let import = || -> Seen {
        let mut command = Command::new(crate::host::SAL);
        command.args(["image", "import", "--json", "--image-store"]).arg(&store).arg(&layout);
        command.output().unwrap().into()
    };
    for name in &names {
        let path = layout.join("blobs/sha256").join(name.strip_prefix("sha256:").unwrap());
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let seen = import();
        refused(&seen, "image", &[name]);
        let images = fs::read_dir(store.join("images")).map_or(0, Iterator::count);
        assert_eq!(images, 0, "something unverified became visible");
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
    }
    import().ok();
}

fn projects() {
    let host = Host::start(Image::Musl);
    let create = |project: &Path| {
        host.sal(&["session", "create", "--coding", "--json", "--cwd", project.to_str().unwrap()])
    };
    let linked = host.project("linked", &[("AGENTS.md", b"x")]);
    symlink("AGENTS.md", linked.join("CLAUDE.md")).unwrap();
    refused(&create(&linked), "import_refused", &["CLAUDE.md", "symlink"]);
    let big = host.project("big", &[("big.bin", &vec![0; 262_145])]);
    let seen = create(&big);
    assert!(seen.error()["message"].as_str().unwrap().contains("big.bin"), "{seen:?}");
    let seen = create(&host.path().join("nowhere"));
    assert!(seen.code == 125 && seen.error()["message"].as_str().unwrap().contains("nowhere"), "{seen:?}");
    assert_eq!(fs::read_dir(host.coding()).unwrap().count(), 0, "a refused import left something");
    // Excluded names are told before the session id.
    let project = host.project(
        "fine",
        &[("a.js", b"1"), (".ENV", b"S=1"), ("node_modules/x/i.js", b"1"), (".git/HEAD", b"x")],
    );
    let made = host.sal(&["session", "create", "--coding", "--cwd", project.to_str().unwrap()]).ok();
    let id = made.stdout.find("ses-").unwrap_or(0);
    for name in [".ENV", "node_modules", ".git"] {
        let all = format!("{}{}", made.stderr, made.stdout);
        assert!(all.contains(name), "{made:?}");
        assert!(made.stderr.contains(name) || made.stdout.find(name).is_some_and(|at| at < id), "{made:?}");
    }
}

fn not_built() {
    let host = Host::prepare(Image::Musl);
    let coding = host.coding();
    for more in [
        vec!["--provider", "anthropic"],
        vec!["--provider", "claude"],
        vec!["--coding-socket", "/var/run/docker.sock"],
    ] {
        let mut args = vec!["service", "start", "--json", "--coding-root", coding.to_str().unwrap()];
        args.extend(more);
        refused(&host.sal(&args), "not_built", &[]);
    }
}

/// In a mount namespace without cgroup file systems no limit can be enforced.
fn no_controller() {
    let host = Host::prepare(Image::Musl);
    let (coding, store) = (host.coding(), image_store());
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "umount -R -l /sys/fs/cgroup; exec \"$@\"", "sh", crate::host::SAL]);
    command.args(["service", "start", "--json", "--state"]).arg(host.state());
    command
        .arg("--coding-root")
        .arg(coding)
        .arg("--image-store")
        .arg(store)
        .args(["--image", &host.image.pin()]);
    let seen: Seen = command.output().unwrap().into();
    assert_eq!(seen.code, 125, "{seen:?}");
    assert!(seen.stderr.contains("controller"), "{seen:?}");
}
