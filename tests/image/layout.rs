//! Layouts: media types, nested indexes, platforms and names (IMG.1, IMG.3).

use crate::case::{Case, assert_nothing_left};
use crate::oci_layout::{
    INDEX, LayerBlob, MANIFEST, PLAIN, arch, archive, base, blob_path, digest_of, flip, gzip, layer, make_of,
    put_json, write_index,
};
use salaam::domain::digest::Digest;
use salaam::image::{ImageError, Reference};
use serde_json::json;
use std::os::unix::fs::symlink as os_symlink;

#[test]
fn img3_uncompressed_and_docker_layers_are_read_unknown_ones_named_as_not_built() {
    for (media_type, packed) in [
        (PLAIN, false),
        ("application/vnd.docker.image.rootfs.diff.tar", false),
        ("application/vnd.docker.image.rootfs.diff.tar.gzip", true),
    ] {
        let case = Case::new();
        let tar = archive(&base());
        let diff_id = Digest::of(&tar);
        let blob = if packed { gzip(&tar) } else { tar };
        make_of(&case.layout_dir(), "localhost/x/y", vec![LayerBlob { blob, media_type, diff_id }]);
        case.store.import_layout(&case.layout_dir(), None).unwrap();
    }
    let case = Case::new();
    let mut other = layer(&base());
    other.media_type = "application/vnd.oci.image.layer.v1.tar+xz";
    make_of(&case.layout_dir(), "localhost/x/y", vec![other]);
    let error = case.store.import_layout(&case.layout_dir(), None).unwrap_err().to_string();
    assert!(error.contains("tar+xz") && error.contains("not built"), "{error}");
}

#[test]
fn img3_a_nested_index_is_resolved_for_this_platform_and_names_the_image_too() {
    let case = Case::new();
    let layout = case.layout(&[base()]);
    let platform = |arch: &str| json!({"os": "linux", "architecture": arch});
    let size = std::fs::metadata(blob_path(&layout.dir, &layout.manifest)).unwrap().len();
    let mine = json!({"mediaType": MANIFEST, "digest": layout.manifest.to_string(), "size": size,
        "platform": platform(arch())});
    let mut other = mine.clone();
    other["digest"] = json!(Digest::of(b"not there").to_string());
    other["platform"] = platform("mips");
    let nested = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [other.clone(), mine]});
    let mut top = put_json(&layout.dir, INDEX, &nested);
    top["annotations"] = json!({"io.containerd.image.name": "docker.io/library/node:26"});
    write_index(&layout.dir, &[top.clone()]);
    let record = case.store.import_layout(&layout.dir, None).unwrap();
    let index = digest_of(&top);
    assert_eq!(record.name, "docker.io/library/node");
    for digest in [layout.manifest.clone(), index.clone()] {
        let reference = Reference::pinned("node", digest).unwrap();
        let bundle = case.store.bundle(&reference).unwrap();
        assert!(reference.matches(&bundle.pin) && record.answers(&reference));
    }
    assert!(case.store.verify(&Reference::pinned("node", index.clone()).unwrap()).unwrap().is_sound());

    let none = Case::new();
    write_index(&layout.dir, &[other.clone(), other]);
    let error = none.store.import_layout(&layout.dir, None).unwrap_err().to_string();
    assert!(error.contains("2 images") && error.contains(arch()), "{error}");
    write_index(&layout.dir, &[top]);
    flip(&layout.dir, &index);
    assert!(matches!(none.store.import_layout(&layout.dir, None), Err(ImageError::BlobDigest { .. })));
}

#[test]
fn img3_what_is_no_layout_or_another_version_or_platform_is_refused() {
    let case = Case::new();
    let error = case.store.import_layout(case.tmp.path(), None).unwrap_err().to_string();
    assert!(error.contains("oci-layout") && error.contains("no OCI image layout"), "{error}");
    let layout = case.layout(&[base()]);
    std::fs::write(layout.dir.join("oci-layout"), r#"{"imageLayoutVersion":"2.0.0"}"#).unwrap();
    let error = case.store.import_layout(&layout.dir, None).unwrap_err().to_string();
    assert!(error.contains("2.0.0") && error.contains("1.0.0"), "{error}");
    std::fs::write(layout.dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let secret = case.tmp.path().join("secret");
    std::fs::write(&secret, "{}").unwrap();
    std::fs::remove_file(layout.dir.join("index.json")).unwrap();
    os_symlink(&secret, layout.dir.join("index.json")).unwrap();
    assert!(case.store.import_layout(&layout.dir, None).is_err());
    assert_nothing_left(&case.store);
}

#[test]
fn img1_a_name_without_a_digest_is_refused_and_a_name_override_must_be_well_formed() {
    let case = Case::new();
    let layout = case.layout(&[base()]);
    for bad in ["Node", "a@b", "../x", ""] {
        assert!(case.store.import_layout(&layout.dir, Some(bad)).is_err(), "{bad}");
    }
    let record = case.store.import_layout(&layout.dir, Some("mine/app:2")).unwrap();
    assert_eq!(record.pin.reference, format!("docker.io/mine/app@{}", layout.manifest));
}

#[test]
fn img2_a_manifest_that_calls_itself_an_index_is_refused() {
    let case = Case::new();
    let layout = case.layout(&[base()]);
    let text = std::fs::read_to_string(blob_path(&layout.dir, &layout.manifest)).unwrap();
    let mut both: serde_json::Value = serde_json::from_str(&text).unwrap();
    both["mediaType"] = json!(INDEX);
    let descriptor = put_json(&layout.dir, MANIFEST, &both);
    write_index(&layout.dir, &[descriptor]);
    let error = case.store.import_layout(&layout.dir, None).unwrap_err();
    assert!(matches!(error, ImageError::Document { .. }), "{error}");
    assert_nothing_left(&case.store);
}
