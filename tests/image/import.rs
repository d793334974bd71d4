//! From a layout to a bundle, and what of its blobs is refused (IMG.2, IMG.3, IMG.4).

use crate::case::{Case, assert_nothing_left};
use crate::oci_layout::{
    GZIP, LayerBlob, PLAIN, archive, base, blob_path, file, flip, gzip, layer, make_of, program,
};
use salaam::domain::digest::Digest;
use salaam::image::{ImageError, Reference, Store};
use std::os::unix::fs::{MetadataExt, symlink as os_symlink};

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
    make_of(&case.layout_dir(), "localhost/x/y", vec![LayerBlob { blob, media_type: GZIP, diff_id: honest }]);
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
    let left = case.store.dir().join("tmp/left/bundle/top");
    let half = case.store.dir().join("bundles").join(layout.manifest.hex()).join("top/half");
    std::fs::create_dir_all(&left).unwrap();
    std::fs::create_dir_all(&half).unwrap();
    std::fs::write(case.store.dir().join("tmp/file"), "").unwrap();
    let layer = case.store.dir().join("layers").join(Digest::of(b"layer").hex());
    std::fs::create_dir_all(layer.join("fs")).unwrap();
    let orphan = blob_path(case.store.dir(), &Digest::of(b"orphan"));
    std::fs::write(&orphan, "orphan").unwrap();
    let reference = Reference::pinned("localhost/test/image", layout.manifest.clone()).unwrap();
    assert!(matches!(case.store.bundle(&reference), Err(ImageError::NotFound { .. })));
    let record = case.store.import_layout(&layout.dir, None).unwrap();
    assert!(!left.exists() && !half.exists() && !case.store.dir().join("tmp/file").exists());
    assert!(!orphan.exists() && !layer.exists());
    assert!(case.store.verify(&record.reference().unwrap()).unwrap().is_sound());
}
