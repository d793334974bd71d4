//! What a fuzzer calls of the reading of images, and what must hold whatever it sends.
//! `tests/image/seeds.rs` runs the seeds through the same functions.

use flate2::{Compression, write::GzEncoder};
use salaam::domain::digest::Digest;
use salaam::domain::job::ImagePin;
use salaam::image::{ImageError, Limits, Store, examine};
use std::io::ErrorKind::PermissionDenied;
use std::io::Write;
use std::path::Path;

/// Media types that a registry may tell, one a line of the seeds' first byte.
const TOLD: [&str; 5] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "",
];

/// Bounds that a fuzzer can reach.
fn limits() -> Limits {
    Limits {
        document_bytes: 4_000,
        layers: 6,
        entries: 60,
        unpacked_bytes: 60_000,
        path_bytes: 300,
        depth: 12,
    }
}

fn told(error: &ImageError) {
    let text = error.to_string();
    assert!(text.len() < 16 * 1024 && !text.chars().any(char::is_control), "{text:?}");
    assert!(!error.refusal().message.is_empty());
}

fn sound(pin: &ImagePin) {
    assert!((1..=limits().layers).contains(&pin.diff_ids.len()));
    assert!(pin.reference.ends_with(pin.manifest.as_str()));
}

/// The first byte is the media type that is told; then documents, the top one first, each ended by NUL.
pub fn documents(data: &[u8]) -> bool {
    let Some((first, rest)) = data.split_first() else { return false };
    let mut documents = rest.split(|byte| *byte == 0);
    let top = documents.next().unwrap_or_default();
    let rest: Vec<&[u8]> = documents.collect();
    let media_type = TOLD[usize::from(*first) % TOLD.len()];
    match examine::documents(top, media_type, &rest, &limits()) {
        Ok(pin) => {
            sound(&pin);
            true
        }
        Err(error) => {
            told(&error);
            false
        }
    }
}

/// `data` is an archive, read as an import does, up to its layers. `scratch` is a file that may be written.
pub fn archive(scratch: &Path, data: &[u8]) -> bool {
    std::fs::write(scratch, data).unwrap();
    match examine::archive(scratch, &limits()) {
        Ok(pin) => {
            sound(&pin);
            true
        }
        Err(error) => {
            told(&error);
            false
        }
    }
}

/// `data` is the second of two layers (gzip if its first byte is odd, the rest its archive); the image is
/// imported into a store below `scratch`, verified, and removed. Beside the store nothing may change.
pub fn layer(scratch: &Path, data: &[u8]) -> bool {
    let Some((first, tar)) = data.split_first() else { return false };
    let canary = scratch.join("canary");
    if !canary.exists() {
        std::fs::write(&canary, "sings").unwrap();
    }
    let store = Store::open(&scratch.join("store")).unwrap().with_limits(limits());
    let layout = scratch.join("layout");
    std::fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    write_layout(&layout, &[base(), tar.to_vec()], first % 2 == 1);
    let imported = store.import_layout(&layout, None);
    std::fs::remove_dir_all(&layout).unwrap();
    let taken = match imported {
        Ok(record) => {
            sound(&record.pin);
            let reference = record.reference().unwrap();
            match store.verify(&reference) {
                Ok(report) => assert!(report.is_sound(), "{:?}", report.differences),
                // A file that its owner may not read, without privileges.
                Err(ImageError::Io { source, .. }) => assert_eq!(source.kind(), PermissionDenied),
                Err(other) => panic!("{other}"),
            }
            store.remove(&reference).unwrap();
            true
        }
        Err(error) => {
            told(&error);
            false
        }
    };
    assert_eq!(std::fs::read_to_string(&canary).unwrap(), "sings");
    let names = std::fs::read_dir(scratch).unwrap().count();
    assert_eq!(names, 2, "only the canary and the store are there");
    assert!(store.list().unwrap().is_empty());
    taken
}

/// A root with a shell, and links that a second layer may try to go through.
fn base() -> Vec<u8> {
    let mut out = tar::Builder::new(Vec::new());
    let mut add = |kind, path: &str, link: &str, body: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(body.len() as u64);
        if link.is_empty() {
            out.append_data(&mut header, path, body).unwrap();
        } else {
            out.append_link(&mut header, path, link).unwrap();
        }
    };
    add(tar::EntryType::Directory, "bin/", "", b"");
    add(tar::EntryType::Regular, "bin/sh", "", b"#!");
    add(tar::EntryType::Symlink, "up", "../../../../..", b"");
    add(tar::EntryType::Symlink, "root", "/", b"");
    add(tar::EntryType::Symlink, "loop", "loop", b"");
    out.into_inner().unwrap()
}

fn write_layout(dir: &Path, layers: &[Vec<u8>], gzip: bool) {
    let put = |media_type: &str, bytes: &[u8]| {
        let digest = Digest::of(bytes);
        std::fs::write(dir.join("blobs/sha256").join(digest.hex()), bytes).unwrap();
        serde_json::json!({"mediaType": media_type, "digest": digest.as_str(), "size": bytes.len()})
    };
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let diff_ids: Vec<_> = layers.iter().map(|l| Digest::of(l)).collect();
    let config = serde_json::json!({"architecture": arch, "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": diff_ids}});
    let config = put("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes());
    let layers: Vec<_> = layers
        .iter()
        .map(|tar| {
            if !gzip {
                return put("application/vnd.oci.image.layer.v1.tar", tar);
            }
            let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
            encoder.write_all(tar).unwrap();
            put("application/vnd.oci.image.layer.v1.tar+gzip", &encoder.finish().unwrap())
        })
        .collect();
    let manifest = serde_json::json!({"schemaVersion": 2, "config": config, "layers": layers,
        "mediaType": "application/vnd.oci.image.manifest.v1+json"});
    let manifest = put("application/vnd.oci.image.manifest.v1+json", manifest.to_string().as_bytes());
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [manifest]});
    std::fs::write(dir.join("index.json"), index.to_string()).unwrap();
    std::fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}
