//! Images in use: what of them a command sees, what cannot widen its profile, and who keeps them
//! (IMG.1, IMG.4).

use crate::Case;
use crate::host::{Host, Image, eventually, image_store};
use salaam::domain::digest::Digest;
use salaam::domain::job::ImagePin;
use salaam::image::{ImageRecord, Reference, Store};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

pub const EACH: &[Case] = &[("img4_the_root_is_the_stacked_image_read_only", root)];

pub const CASES: &[(&str, fn())] = &[
    ("img1_an_image_that_is_pinned_gets_its_own_proof", own_proof),
    ("img4_an_image_never_widens_the_profile_and_stays_while_it_is_used", kept_and_narrow),
];

fn root(host: &Host) {
    let session = host.session(&host.project("root", &[("a", b"1")]));
    let ran = host.run(&session, "grep ' / / ' /proc/self/mountinfo; touch /x /etc/x /usr/x");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(ran.output.matches("Read-only file system").count(), 3, "{ran:?}");
    let line = ran.output.lines().next().unwrap();
    let (mount, fs) = line.split_once(" - ").unwrap();
    let options = mount.split(' ').nth(5).unwrap();
    for option in ["ro", "nosuid", "nodev"] {
        assert!(options.split(',').any(|o| o == option), "{option}: {line}");
    }
    let store = Store::open(&image_store()).unwrap();
    let bundle = store.bundle(&Reference::parse(&host.image.pin()).unwrap()).unwrap();
    assert_eq!(fs.starts_with("overlay "), bundle.lower.len() > 1, "{line}");
    // The root's own line names no path of the host.
    assert!(!fs.contains(store.dir().to_str().unwrap()) && !fs.contains("upperdir"), "{line}");
    // The pin tuple is stored with the run (what docker-parity calls the image's identity).
    let ImagePin { manifest, config, diff_ids, .. } = bundle.pin;
    let image = &ran.run["image"];
    assert_eq!(image["manifest"], json!(manifest), "{image}");
    assert_eq!(image["config"], json!(config), "{image}");
    assert_eq!(image["diff_ids"], json!(diff_ids), "{image}");
}

fn own_proof() {
    let mut host = Host::start(Image::Musl);
    let proved =
        |host: &Host| host.sal(&["proof", "show", "--json"]).ok().json()["image"]["manifest"].clone();
    let first = proved(&host);
    assert!(Image::Musl.pin().ends_with(first.as_str().unwrap()), "{first}");
    host.sal(&["service", "stop"]).ok();
    host.image = Image::Debian;
    host.service_start().ok();
    let second = proved(&host);
    assert!(Image::Debian.pin().ends_with(second.as_str().unwrap()), "{second}");
    // Every control was observed in that very image.
    let shown = host.sal(&["proof", "show", "--json"]).ok().json();
    let findings = shown["findings"].as_array().unwrap();
    assert_eq!(findings.len(), salaam::domain::profile::Control::ALL.len());
    assert!(findings.iter().all(|f| f["passed"] == true), "{shown}");
}

/// Writes a layout of `image` whose configuration asks for everything; gives its reference.
fn greedy_layout(image: &ImageRecord, from: &Path, dir: &Path) -> String {
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let read = |digest: &Digest| -> Value {
        serde_json::from_slice(&fs::read(from.join("blobs/sha256").join(digest.hex())).unwrap()).unwrap()
    };
    let put = |value: &Value| -> (String, usize) {
        let text = value.to_string();
        let digest = Digest::of(text.as_bytes());
        fs::write(blobs.join(digest.hex()), &text).unwrap();
        (digest.to_string(), text.len())
    };
    let mut config = read(&image.pin.config);
    config["config"] = json!({
        "User": "0:0", "WorkingDir": "/greedy", "Entrypoint": ["/bin/false"], "Cmd": ["nothing"],
        "Env": ["PATH=/greedy", "LD_PRELOAD=/greedy.so", "USER=root", "GREEDY=1", "HOME=/root"],
        "Volumes": {"/data": {}, "/work": {}}, "ExposedPorts": {"80/tcp": {}},
    });
    let mut manifest = read(&image.pin.manifest);
    let (digest, size) = put(&config);
    manifest["config"]["digest"] = digest.into();
    manifest["config"]["size"] = size.into();
    for layer in manifest["layers"].as_array().unwrap() {
        let digest = Digest::parse(layer["digest"].as_str().unwrap()).unwrap();
        fs::copy(from.join("blobs/sha256").join(digest.hex()), blobs.join(digest.hex())).unwrap();
    }
    let (digest, size) = put(&manifest);
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let index =
        json!({"schemaVersion": 2, "manifests": [{"mediaType": media_type, "digest": digest, "size": size}]});
    fs::write(dir.join("index.json"), index.to_string()).unwrap();
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    format!("localhost/test/greedy@{digest}")
}

fn kept_and_narrow() {
    let host = Host::prepare(Image::Musl);
    let shared = Store::open(&image_store()).unwrap();
    let image = shared.inspect(&Reference::parse(&host.image.pin()).unwrap()).unwrap();
    let (layout, dir) = (host.path().join("layout"), host.path().join("images"));
    let greedy = greedy_layout(&image, shared.dir(), &layout);
    let store = dir.to_str().unwrap();
    let sal = |args: &[&str]| -> crate::host::Seen {
        let mut command = std::process::Command::new(crate::host::SAL);
        command.args(args).args(["--image-store", store]).output().unwrap().into()
    };
    sal(&["image", "import", layout.to_str().unwrap(), "--name", "localhost/test/greedy"]).ok();
    let coding = host.coding();
    let start = ["service", "start", "--coding-root", coding.to_str().unwrap()];
    let start = [&start[..], &["--image-store", store, "--image", &greedy]].concat();
    host.sal(&start).ok();

    // Entrypoint, user, environment, directory and volumes of the image are not used.
    let session = host.session(&host.project("p", &[("a", b"1")]));
    let ran =
        host.run(&session, "id -u; pwd; env | sort; grep -c -e ' /data ' -e greedy /proc/self/mountinfo");
    let mut want: Vec<String> = salaam::domain::profile::Profile::fixed()
        .environment
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    // The shell's own.
    want.push("PWD=/work".into());
    let lines: Vec<&str> = ran.output.lines().collect();
    assert_eq!((lines[0], lines[1], lines[lines.len() - 1]), ("65532", "/work", "0"), "{ran:?}");
    let seen: Vec<&str> =
        lines[2..lines.len() - 1].iter().copied().filter(|l| !l.starts_with("SHLVL=")).collect();
    assert!(seen.iter().all(|line| want.iter().any(|w| w == line)), "{seen:?}");
    assert!(!ran.output.to_lowercase().contains("greedy"), "{ran:?}");

    // Used by a service; then, that one killed, by its run; then by nobody.
    let refused = |why: &str| {
        let seen = sal(&["image", "rm", &greedy, "--force", "--json"]);
        assert_eq!((seen.code, &seen.error()["code"]), (125, &"forbidden".into()), "{why}: {seen:?}");
        let message = seen.error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(host.state().to_str().unwrap()), "{why}: {message}");
        let freed = sal(&["image", "gc", "--unused", "--json"]).ok().json();
        assert_eq!(freed["removed"], json!([]), "{why}");
    };
    refused("served");
    let shown = sal(&["image", "inspect", &greedy, "--json"]).ok().json();
    assert_eq!(shown["used_by"], json!([host.state()]), "{shown}");
    let run = host.begin(&session, "long", "sleep 25; echo end");
    assert!(eventually(|| host.inspect(&session, &run)["state"] == "running"));
    host.kill_service();
    refused("running without its service");
    assert!(Store::open(&dir).unwrap().verify_all().unwrap().is_sound());
    host.sal(&start).ok();
    host.sal(&["service", "stop", "--cancel"]).ok();
    sal(&["image", "verify"]).ok();
    let removed = sal(&["image", "rm", &greedy, "--json"]).ok().json();
    assert!(removed["freed"].as_u64().unwrap() > 100_000_000, "{removed}");
    for below in ["images", "layers", "bundles", "blobs/sha256", "uses", "tmp"] {
        assert_eq!(fs::read_dir(dir.join(below)).unwrap().count(), 0, "{below}");
    }
}
