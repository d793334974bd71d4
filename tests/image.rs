//! Black-box tests of the image store: import, lookup, verification (IMG.1–4).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, dead_code)]

#[path = "fixtures/image_store.rs"]
mod image_store;
#[path = "fixtures/oci_layout.rs"]
mod oci_layout;

use image_store::{Case, assert_nothing_left};
use oci_layout::{
    INDEX, LayerBlob, MANIFEST, PLAIN, arch, archive, base, blob_path, dir, file, flip, gzip, layer, make,
    make_of, program, put_json, symlink, write_index,
};
use salaam::domain::digest::Digest;
use salaam::image::{ImageError, Reference, Store};
use serde_json::json;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink as os_symlink};

#[test]
fn img3_a_layout_becomes_a_bundle_that_is_found_again() {
    let case = Case::new();
    let layout = case.layout(&[base(), vec![file("usr/lib/x.js", "1"), file("bin/tool", "2")]]);
    let record = case.store.import_layout(&layout.dir, None).unwrap();
    assert_eq!(record.pin.reference, format!("localhost/test/image@{}", layout.manifest));
    assert_eq!((&record.pin.manifest, &record.pin.config), (&layout.manifest, &layout.config));
    assert_eq!((record.pin.diff_ids.len(), record.tag.as_deref()), (2, Some("1")));
    let rootfs = case.rootfs(&record);
    assert_eq!(std::fs::metadata(&rootfs).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(std::fs::read_to_string(rootfs.join("usr/lib/x.js")).unwrap(), "1");
    // Written through /bin -> usr/bin, inside the root.
    assert_eq!(std::fs::read_to_string(rootfs.join("usr/bin/tool")).unwrap(), "2");
    for point in ["proc", "sys", "dev", "source", "work", "tmp", ".salaam"] {
        assert!(rootfs.join(point).symlink_metadata().unwrap().is_dir(), "{point}");
    }
    for point in ["etc/group", "etc/hosts", "etc/hostname", "etc/resolv.conf"] {
        assert!(rootfs.join(point).symlink_metadata().unwrap().is_file(), "{point}");
    }
    let probe = rootfs.join(".salaam/probe").metadata().unwrap();
    assert_eq!((probe.len(), probe.mode() & 0o7777), (0, 0o755));

    let reference = Reference::parse(&record.pin.reference).unwrap();
    assert!(reference.matches(&record.pin));
    let store = Store::open(case.store.dir()).unwrap();
    assert_eq!(store.list().unwrap(), vec![record.clone()]);
    assert_eq!(store.inspect(&reference).unwrap(), record);
    for text in [layout.manifest.as_str(), &layout.manifest.hex()[..12], &record.pin.reference] {
        assert_eq!(store.find(text).unwrap(), record, "{text}");
    }
    assert!(matches!(store.find("ffffffffffff"), Err(ImageError::NotFound { .. })));
    assert!(matches!(store.find("localhost/test/image:1"), Err(ImageError::Reference(_))));
    store.check(&reference).unwrap();
    assert!(store.verify(&reference).unwrap().is_sound());
}

#[test]
fn img4_the_bundle_brings_its_own_etc() {
    let case = Case::new();
    let record = case.import(Vec::new()).unwrap();
    let etc = case.store.bundle(&record.reference().unwrap()).unwrap().etc;
    let read = |name: &str| std::fs::read_to_string(etc.join(name)).unwrap();
    assert_eq!(
        read("passwd"),
        "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n\
         salaam:x:65532:65532:salaam:/tmp/home:/bin/sh\n"
    );
    assert_eq!(read("group"), "root:x:0:\nsalaam:x:65532:\n");
    assert_eq!(read("hosts"), "127.0.0.1 localhost\n127.0.0.1 salaam\n");
    assert_eq!((read("hostname").as_str(), read("resolv.conf").as_str()), ("salaam\n", ""));
    for name in ["passwd", "group", "hosts", "hostname", "resolv.conf"] {
        assert_eq!(etc.join(name).metadata().unwrap().mode() & 0o7777, 0o644);
    }
}

#[test]
fn img2_a_second_import_changes_nothing_but_may_add_a_name() {
    let case = Case::new();
    let first = case.import(Vec::new()).unwrap();
    assert_eq!(case.store.import_layout(&case.layout_dir(), None).unwrap(), first);
    let again = case.store.import_layout(&case.layout_dir(), Some("localhost/other:x")).unwrap();
    assert_eq!(again.other_names, ["localhost/other"]);
    assert_eq!(case.store.list().unwrap().len(), 1);
    let other = Reference::pinned("localhost/other", first.pin.manifest.clone()).unwrap();
    let bundle = case.store.bundle(&other).unwrap();
    assert_eq!(bundle.pin.reference, other.to_string());
    assert!(other.matches(&bundle.pin));
    case.store.check(&other).unwrap();
}

#[test]
fn img2_one_flipped_byte_is_refused() {
    for which in 0..4 {
        let case = Case::new();
        let layout = case.layout(&[base(), vec![file("a", "b")]]);
        let blob = [&layout.manifest, &layout.config, &layout.layers[0], &layout.layers[1]][which];
        flip(&layout.dir, blob);
        let error = case.store.import_layout(&layout.dir, None).unwrap_err();
        let actual = Digest::of(&std::fs::read(blob_path(&layout.dir, blob)).unwrap());
        let ImageError::BlobDigest { expected, found, .. } = &error else { panic!("{error}") };
        assert_eq!((expected, found), (blob, &actual));
        assert!(error.to_string().contains(blob.as_str()) && error.to_string().contains(actual.as_str()));
        assert_nothing_left(&case.store);
    }
}

#[test]
fn img2_a_damaged_layout_of_an_image_that_is_here_is_refused_too() {
    let case = Case::new();
    let layout = case.layout(&[base()]);
    let record = case.store.import_layout(&layout.dir, None).unwrap();
    flip(&layout.dir, &layout.layers[0]);
    assert!(matches!(case.store.import_layout(&layout.dir, None), Err(ImageError::BlobDigest { .. })));
    assert_eq!(case.store.list().unwrap(), vec![record]);
}

#[test]
fn img2_missing_short_and_long_blobs_are_refused() {
    for which in 0..3 {
        let case = Case::new();
        let layout = case.layout(&[base()]);
        let path = blob_path(&layout.dir, &layout.layers[0]);
        let mut bytes = std::fs::read(&path).unwrap();
        match which {
            0 => std::fs::remove_file(&path).unwrap(),
            1 => bytes.truncate(bytes.len() - 1),
            _ => bytes.push(0),
        }
        if which > 0 {
            std::fs::write(&path, bytes).unwrap();
        }
        let error = case.store.import_layout(&layout.dir, None).unwrap_err();
        let expected = matches!(error, ImageError::BlobMissing { .. }) == (which == 0)
            && matches!(error, ImageError::BlobSize { .. }) == (which > 0);
        assert!(expected && error.to_string().contains(layout.layers[0].as_str()), "{error}");
        assert_nothing_left(&case.store);
    }
}

#[test]
fn img2_a_layer_that_is_not_its_diff_id_is_refused() {
    let case = Case::new();
    let mut wrong = layer(&base());
    wrong.diff_id = Digest::of(b"something else");
    let expected = wrong.diff_id.clone();
    make_of(&case.layout_dir(), "localhost/x/y", vec![wrong]);
    let error = case.store.import_layout(&case.layout_dir(), None).unwrap_err();
    assert!(matches!(&error, ImageError::DiffId { expected: e, .. } if *e == expected), "{error}");
    assert_nothing_left(&case.store);
}

#[test]
fn img2_bytes_after_the_end_of_the_archive_count_for_the_diff_id() {
    let case = Case::new();
    let mut tar = archive(&base());
    let honest = Digest::of(&tar);
    tar.extend_from_slice(&[7; 4096]);
    let blob = gzip(&tar);
    make_of(
        &case.layout_dir(),
        "localhost/x/y",
        vec![LayerBlob { blob, media_type: oci_layout::GZIP, diff_id: honest }],
    );
    let error = case.store.import_layout(&case.layout_dir(), None).unwrap_err();
    assert!(matches!(error, ImageError::DiffId { .. }), "{error}");
}

#[test]
fn img2_truncated_gzip_and_truncated_archives_are_refused() {
    let case = Case::new();
    let mut cut = layer(&base());
    cut.blob.truncate(cut.blob.len() - 9);
    make_of(&case.layout_dir(), "localhost/x/y", vec![cut]);
    let error = case.store.import_layout(&case.layout_dir(), None).unwrap_err();
    assert!(matches!(error, ImageError::Layer { .. }), "{error}");
    assert_nothing_left(&case.store);

    let case = Case::new();
    let mut tar = archive(&[program("bin/sh", &"x".repeat(4000))]);
    tar.truncate(1024);
    let diff_id = Digest::of(&tar);
    make_of(&case.layout_dir(), "localhost/x/y", vec![LayerBlob { blob: tar, media_type: PLAIN, diff_id }]);
    let error = case.store.import_layout(&case.layout_dir(), None).unwrap_err();
    assert!(matches!(error, ImageError::Entry { .. }), "{error}");
    assert_nothing_left(&case.store);
}

#[test]
fn img3_uncompressed_and_docker_layers_are_read_zstd_is_named_as_not_built() {
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
    let mut zstd = layer(&base());
    zstd.media_type = "application/vnd.oci.image.layer.v1.tar+zstd";
    make_of(&case.layout_dir(), "localhost/x/y", vec![zstd]);
    let error = case.store.import_layout(&case.layout_dir(), None).unwrap_err().to_string();
    assert!(error.contains("tar+zstd") && error.contains("not built"), "{error}");
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
    let index = oci_layout::digest_of(&top);
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
fn img1_the_default_must_be_there_and_is_kept() {
    let case = Case::new();
    assert_eq!(case.store.default().unwrap(), None);
    let absent = Reference::pinned("node", Digest::of(b"x")).unwrap();
    assert!(matches!(case.store.set_default(&absent), Err(ImageError::NotFound { .. })));
    let reference = case.import(Vec::new()).unwrap().reference().unwrap();
    case.store.set_default(&reference).unwrap();
    assert_eq!(Store::open(case.store.dir()).unwrap().default().unwrap(), Some(reference));
}

#[test]
fn svc2_the_store_must_be_private_and_no_symlink() {
    let tmp = tempfile::tempdir().unwrap();
    let deep = tmp.path().join("a/b/store");
    Store::open(&deep).unwrap();
    for path in [tmp.path().join("a"), tmp.path().join("a/b"), deep.clone()] {
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o700, "{}", path.display());
    }
    os_symlink(&deep, tmp.path().join("link")).unwrap();
    let open = tmp.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o750)).unwrap();
    std::fs::write(tmp.path().join("file"), "").unwrap();
    let mut bad = vec!["link", "open", "file"];
    if std::fs::create_dir(tmp.path().join("foreign")).is_ok()
        && std::os::unix::fs::chown(tmp.path().join("foreign"), Some(12345), None).is_ok()
    {
        bad.push("foreign");
    }
    for name in bad {
        let error = Store::open(&tmp.path().join(name)).unwrap_err();
        assert!(matches!(error, ImageError::UnsafeStore { .. }), "{name}: {error}");
        assert!(error.to_string().contains(name) && error.to_string().contains("0700"), "{error}");
    }
}

#[test]
fn img2_two_imports_at_once_give_one_image() {
    let case = Case::new();
    let layout = case.layout(&[base(), vec![file("a", &"x".repeat(100_000))]]);
    let records: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (store, dir) = (Store::open(case.store.dir()).unwrap(), layout.dir.clone());
                scope.spawn(move || store.import_layout(&dir, None).unwrap())
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(records.iter().all(|r| *r == records[0]));
    assert_eq!(case.store.list().unwrap().len(), 1);
    assert!(case.store.verify(&records[0].reference().unwrap()).unwrap().is_sound());
}

#[test]
fn img2_what_a_killed_import_left_is_not_an_image_and_is_swept() {
    let case = Case::new();
    let layout = case.layout(&[base()]);
    let left = case.store.dir().join("tmp/left/bundle/rootfs");
    let half = case.store.dir().join("bundles").join(layout.manifest.hex()).join("rootfs/half");
    std::fs::create_dir_all(&left).unwrap();
    std::fs::create_dir_all(&half).unwrap();
    std::fs::write(case.store.dir().join("tmp/file"), "").unwrap();
    let orphan = blob_path(case.store.dir(), &Digest::of(b"orphan"));
    std::fs::write(&orphan, "orphan").unwrap();
    let reference = Reference::pinned("localhost/test/image", layout.manifest.clone()).unwrap();
    assert!(matches!(case.store.bundle(&reference), Err(ImageError::NotFound { .. })));
    let record = case.store.import_layout(&layout.dir, None).unwrap();
    assert!(!left.exists() && !half.exists() && !case.store.dir().join("tmp/file").exists());
    assert!(!orphan.exists());
    assert!(case.store.verify(&record.reference().unwrap()).unwrap().is_sound());
}

#[test]
fn img2_verify_finds_every_kind_of_change_and_check_the_ones_near_the_top() {
    let case = Case::new();
    let extra =
        vec![file("opt/d/a", "1"), file("opt/d/b", "1"), file("opt/d/c", "1"), symlink("opt/d/l", "a")];
    let record = case.import(extra).unwrap();
    let reference = record.reference().unwrap();
    let below = case.rootfs(&record).join("opt/d");
    std::fs::write(below.join("a"), "2").unwrap();
    std::fs::remove_file(below.join("b")).unwrap();
    std::fs::set_permissions(below.join("c"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    std::fs::remove_file(below.join("l")).unwrap();
    os_symlink("/etc/passwd", below.join("l")).unwrap();
    std::fs::write(below.join("new"), "x").unwrap();
    flip(case.store.dir(), &record.pin.config);
    let report = case.store.verify(&reference).unwrap();
    let found: Vec<_> = report.differences.iter().map(|d| format!("{} {}", d.what, d.problem)).collect();
    assert_eq!(report.differences.len(), 6, "{found:?}");
    for expected in [
        "rootfs/opt/d/a has other content",
        "rootfs/opt/d/b is missing",
        "rootfs/opt/d/c has mode 4755, was 644",
        "rootfs/opt/d/l leads elsewhere",
        "rootfs/opt/d/new was not in the image",
    ] {
        assert!(found.iter().any(|f| f == expected), "{expected}: {found:?}");
    }
    assert!(found[0].starts_with(record.pin.config.as_str()));
    assert!(matches!(case.store.check(&reference), Err(ImageError::BlobDigest { .. })));
    flip(case.store.dir(), &record.pin.config);
    // Documented: the cheap check does not see that far down.
    case.store.check(&reference).unwrap();
    std::fs::write(case.rootfs(&record).join("added"), "").unwrap();
    let error = case.store.check(&reference).unwrap_err();
    assert!(matches!(error, ImageError::Changed { .. }), "{error}");
}

#[test]
fn img2_the_list_of_differences_is_bounded() {
    let case = Case::new();
    let reference = case.import(vec![dir("opt/")]).unwrap().reference().unwrap();
    let opt = case.store.bundle(&reference).unwrap().rootfs.join("opt");
    for i in 0..150 {
        std::fs::write(opt.join(i.to_string()), "").unwrap();
    }
    let report = case.store.verify(&reference).unwrap();
    assert_eq!((report.differences.len(), report.more), (100, 50));
}

#[test]
fn img4_a_changed_etc_file_fails_the_cheap_check() {
    let case = Case::new();
    let reference = case.import(Vec::new()).unwrap().reference().unwrap();
    let hosts = case.store.bundle(&reference).unwrap().etc.join("hosts");
    std::fs::write(hosts, "10.0.0.1 localhost\n").unwrap();
    let error = case.store.check(&reference).unwrap_err().to_string();
    assert!(error.contains("etc/hosts") && error.contains("sal image verify"), "{error}");
    // Nor is it papered over by another import.
    assert!(case.store.import_layout(&case.layout_dir(), None).is_err());
    case.store.remove(&reference).unwrap();
    assert_nothing_left(&case.store);
    case.store.import_layout(&case.layout_dir(), None).unwrap();
    case.store.check(&reference).unwrap();
}

#[test]
fn img2_removal_keeps_the_blobs_of_other_images() {
    let case = Case::new();
    let one = case.import(vec![file("one", "1")]).unwrap();
    let dir = case.tmp.path().join("second");
    make(&dir, "localhost/second", &[base(), vec![file("two", "2")]]);
    let two = case.store.import_layout(&dir, None).unwrap();
    case.store.remove(&one.reference().unwrap()).unwrap();
    assert!(case.store.verify(&two.reference().unwrap()).unwrap().is_sound());
    case.store.remove(&two.reference().unwrap()).unwrap();
    assert_nothing_left(&case.store);
}

#[test]
fn img2_a_record_of_a_newer_format_is_refused_by_name() {
    let case = Case::new();
    let record = case.import(Vec::new()).unwrap();
    let path = case.store.dir().join("images").join(format!("{}.json", record.pin.manifest.hex()));
    let text = std::fs::read_to_string(&path).unwrap().replacen("\"format\": 1", "\"format\": 2", 1);
    std::fs::write(&path, text).unwrap();
    let error = case.store.list().unwrap_err().to_string();
    assert!(error.contains("format 2") && error.contains(path.to_str().unwrap()), "{error}");
}
#[test]
fn img2_a_blob_that_is_a_fifo_or_symlink_is_refused_at_once() {
    for which in 0..2 {
        let case = Case::new();
        let layout = case.layout(&[base()]);
        let path = blob_path(&layout.dir, &layout.layers[0]);
        let aside = case.tmp.path().join("aside");
        std::fs::rename(&path, &aside).unwrap();
        if which == 0 {
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        } else {
            os_symlink(&aside, &path).unwrap();
        }
        let error = case.store.import_layout(&layout.dir, None).unwrap_err().to_string();
        assert!(error.contains(layout.layers[0].hex()), "{error}");
        assert_nothing_left(&case.store);
    }
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
