//! Layers: each unpacked once, stacked, shared, verified (IMG.2, IMG.4).

use crate::case::{Case, assert_nothing_left, files_below};
use crate::oci_layout::{
    Item, LayerBlob, archive, base, dir, file, flip, hardlink, layer, make, make_of, program, symlink,
};
use salaam::domain::digest::Digest;
use salaam::image::{ImageError, Limits, Store};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

/// Layers that do everything to each other that layers can do.
fn odd_layers() -> Vec<Vec<Item>> {
    let mut private = dir("keep/mode/");
    (private.mode, private.owner) = (0o750, 7);
    let low = vec![
        private,
        file("keep/mode/a", "1"),
        file("was/file", "1"),
        file("was/dir/below", "1"),
        file("gone/all/x", "1"),
        file("opaque/low", "1"),
        file("opaque/sub/low", "1"),
        file("link/target", "1"),
        hardlink("link/name", "link/target"),
        file("chmod", "1"),
        symlink("to-keep", "keep"),
    ];
    let mut chmod = file("chmod", "1");
    chmod.mode = 0o600;
    let high = vec![
        // No entry for keep/: it stays as the lower layer made it.
        file("keep/mode/b", "2"),
        dir("was/file/"),
        file("was/file/new", "2"),
        file("was/dir", "2"),
        file("gone/.wh.all", ""),
        file("gone/later", "2"),
        dir("opaque/"),
        file("opaque/.wh..wh..opq", ""),
        file("opaque/high", "2"),
        hardlink("link/third", "link/target"),
        chmod,
        file("to-keep/through", "2"),
    ];
    // What a layer removed comes back above it, without what was below.
    let top = vec![file("gone/all/y", "3"), file(".wh.was", ""), file("was/again", "3")];
    vec![base(), low, high, top]
}

/// What a program can see of a tree. Not the number of a file's names: an overlay breaks hard links to
/// files of a lower layer, as container engines do.
fn seen(root: &Path) -> BTreeSet<String> {
    files_below(root)
        .into_iter()
        .map(|path| {
            let m = path.symlink_metadata().unwrap();
            let body = if m.is_file() { std::fs::read_to_string(&path).unwrap() } else { String::new() };
            let name = path.strip_prefix(root).unwrap().display().to_string();
            let target = path.read_link().unwrap_or_default();
            format!("{name} {:o} {} {} {body:?} {target:?}", m.mode(), m.uid(), m.gid())
        })
        .collect()
}

#[test]
fn img4_a_stack_shows_what_a_flat_image_shows() {
    let (stacked, flat) = (Case::new(), Case::new());
    let layout = stacked.layout(&odd_layers());
    let record = stacked.store.import_layout(&layout.dir, None).unwrap();
    let other = flat.store.clone().unstacked().import_layout(&layout.dir, None).unwrap();
    assert_eq!((record.layers.len(), other.layers.len()), (4, 0));
    let (one, two) = (seen(&stacked.rootfs(&record)), seen(&flat.rootfs(&other)));
    assert_eq!(one, two);
    for line in [
        "keep/mode 40750 7 7",
        "keep/mode/b 100644 0 0 \"2\"",
        "keep/through 100644 0 0 \"2\"",
        "gone/all/y 100644 0 0 \"3\"",
        "was/again 100644 0 0 \"3\"",
        "link/third 100644 0 0 \"1\"",
        "link/name 100644 0 0 \"1\"",
        "chmod 100600",
        "opaque/high",
    ] {
        assert!(one.iter().any(|found| found.starts_with(line)), "{line}: {one:#?}");
    }
    for gone in ["gone/all/x", "was/file", "was/dir", "opaque/low", "opaque/sub"] {
        assert!(!one.iter().any(|found| found.starts_with(&format!("{gone} "))), "{gone}: {one:#?}");
    }
    for (case, record) in [(&stacked, record), (&flat, other)] {
        let reference = record.reference().unwrap();
        case.store.check(&reference).unwrap();
        assert!(case.store.verify(&reference).unwrap().is_sound());
        assert_eq!(case.store.bundle(&reference).unwrap().lower.len(), record.layers.len() + 1);
    }
}

#[test]
fn img4_two_images_on_one_base_cost_one_base() {
    let case = Case::new();
    let body = "x".repeat(1 << 20);
    let mut low = base();
    low.push(file("usr/big", &body));
    let one_dir = case.layout(&[low.clone(), vec![file("one", "1")]]).dir;
    let one = case.store.import_layout(&one_dir, None).unwrap();
    let two_dir = case.tmp.path().join("second");
    make(&two_dir, "localhost/second", &[low, vec![file("two", "2")]]);
    let two = case.store.import_layout(&two_dir, None).unwrap();
    assert_eq!(one.layers[0], two.layers[0]);
    let layers = || std::fs::read_dir(case.store.dir().join("layers")).unwrap().count();
    assert_eq!(layers(), 3);
    let big = files_below(case.store.dir()).into_iter().filter(|p| p.ends_with("usr/big"));
    assert_eq!(big.count(), 1);
    let report = case.store.verify_all().unwrap();
    assert!(report.is_sound(), "{report:?}");
    // Four documents, three layers: what is shared is read once.
    assert_eq!(report.blobs, 7);
    case.store.remove(&one.reference().unwrap()).unwrap();
    assert_eq!(layers(), 2);
    assert!(case.store.verify(&two.reference().unwrap()).unwrap().is_sound());
    assert!(case.rootfs(&two).join("usr/big").exists());
    case.store.remove(&two.reference().unwrap()).unwrap();
    assert_nothing_left(&case.store);
    assert_eq!(layers(), 0);
}

#[test]
fn img4_as_many_layers_as_the_limit_allows_can_be_stacked() {
    let case = Case::new();
    let most = Limits::default().layers;
    let mut layers = vec![base()];
    layers.extend((1..most).map(|i| vec![file(&format!("n/{i}"), "x"), file("last", &i.to_string())]));
    let layout = case.layout(&layers);
    let record = case.store.import_layout(&layout.dir, None).unwrap();
    assert_eq!(record.layers.len(), most);
    let rootfs = case.rootfs(&record);
    assert_eq!(std::fs::read_dir(rootfs.join("n")).unwrap().count(), most - 1);
    assert_eq!(std::fs::read_to_string(rootfs.join("last")).unwrap(), (most - 1).to_string());
}

#[test]
fn img2_bounds_count_the_layers_that_are_shared() {
    let case = Case::new();
    case.layout(&[base(), vec![file("a", "1")]]);
    case.store.import_layout(&case.layout_dir(), None).unwrap();
    let second = case.tmp.path().join("second");
    make(&second, "localhost/second", &[base(), vec![file("a", "1")], vec![file("b", "1")]]);
    for (limits, word) in [
        (Limits { entries: 9, ..Limits::default() }, "9 entries"),
        (Limits { unpacked_bytes: 9000, ..Limits::default() }, "9000 bytes"),
    ] {
        let error = case.store.clone().with_limits(limits).import_layout(&second, None).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    case.store.import_layout(&second, None).unwrap();
}

#[test]
fn img2_nesting_is_bounded_over_all_layers() {
    let case = Case::new();
    let deep = "d/".repeat(100);
    let layout = case.layout(&[base(), vec![dir(&deep)], vec![dir(&format!("{deep}{}", "e/".repeat(60)))]]);
    let error = case.store.import_layout(&layout.dir, None).unwrap_err().to_string();
    assert!(error.contains("128 levels"), "{error}");
    assert_nothing_left(&case.store);
}

#[test]
fn img2_verify_finds_what_is_done_to_a_layer() {
    type Tamper = fn(&Path);
    let changes: [(Tamper, &str); 6] = [
        (|fs| std::fs::write(fs.join("opt/d/a"), "2").unwrap(), "opt/d/a has other content"),
        (|fs| std::fs::remove_file(fs.join("opt/d/a")).unwrap(), "opt/d/a is missing"),
        // An overlay's marks: hide a file of a lower layer, or all of a directory's.
        (
            |fs| {
                let kind = nix::sys::stat::SFlag::S_IFCHR;
                nix::sys::stat::mknod(&fs.join("opt/hidden"), kind, nix::sys::stat::Mode::empty(), 0).unwrap()
            },
            "opt/hidden was not in the image",
        ),
        (
            |fs| {
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(fs.join("opt/d"), "trusted.overlay.opaque", b"y", flags).unwrap()
            },
            "opt/d has other extended attributes",
        ),
        (
            |fs| std::fs::write(fs.parent().unwrap().join("layer.json"), "{}").unwrap(),
            "layer.json is not the one that the import wrote",
        ),
        (
            |fs| std::fs::write(fs.parent().unwrap().join("tree.json"), "[]").unwrap(),
            "tree.json is not the one that the import wrote",
        ),
    ];
    for (tamper, expected) in changes {
        let case = Case::new();
        let record = case.import(vec![file("opt/d/a", "1")]).unwrap();
        tamper(&case.layer(&record, 1));
        let report = case.store.verify(&record.reference().unwrap()).unwrap();
        let [only] = report.differences.as_slice() else { panic!("{expected}: {report:?}") };
        let text = format!("{} {}", only.what, only.problem);
        assert!(text.contains(expected), "{text}");
        assert!(!case.store.verify_all().unwrap().is_sound());
    }
}

#[test]
fn img2_a_changed_layer_is_not_shared() {
    let case = Case::new();
    let record = case.import(vec![file("a", "1")]).unwrap();
    std::fs::write(case.layer(&record, 0).join("planted"), "").unwrap();
    let second = case.tmp.path().join("second");
    make(&second, "localhost/second", &[base(), vec![file("b", "1")]]);
    let error = case.store.import_layout(&second, None).unwrap_err();
    assert!(matches!(error, ImageError::Changed { .. }), "{error}");
    assert!(error.to_string().contains("fs was changed"), "{error}");
    assert_eq!(case.store.list().unwrap().len(), 1);
}

#[test]
fn img2_a_damaged_blob_that_must_be_read_is_fetched_again() {
    let case = Case::new();
    let record = case.import(vec![file("a", "1")]).unwrap();
    let upper = record.blobs.last().unwrap().digest.clone();
    flip(case.store.dir(), &upper);
    assert!(!case.store.verify_all().unwrap().is_sound());
    // The same layer on another base: another chain, the same blob.
    let mut other = base();
    other.push(file("b", "1"));
    let second = case.tmp.path().join("second");
    make(&second, "localhost/second", &[other, vec![file("a", "1")]]);
    case.store.import_layout(&second, None).unwrap();
    assert!(case.store.verify_all().unwrap().is_sound());
}

#[test]
fn img3_zstd_layers_are_read_whatever_their_frames() {
    let case = Case::new();
    let tar = archive(&base());
    let (one, two) = tar.split_at(tar.len() / 2);
    let mut blob = zstd::encode_all(one, 3).unwrap();
    blob.extend(zstd::encode_all(two, 19).unwrap());
    // A skippable frame (RFC 8878, 3.1.2), as zstd:chunked writes its table of contents.
    blob.extend([0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4]);
    let diff_id = Digest::of(&tar);
    make_of(&case.layout_dir(), "localhost/x/y", vec![LayerBlob { blob, media_type: ZSTD, diff_id }]);
    let record = case.store.import_layout(&case.layout_dir(), None).unwrap();
    assert!(case.rootfs(&record).join("usr/bin/busybox").exists());
}

#[test]
fn img2_broken_zstd_and_one_with_a_huge_window_are_refused() {
    let tar = archive(&[program("bin/sh", &"x".repeat(4000))]);
    let mut cut = zstd::encode_all(tar.as_slice(), 3).unwrap();
    cut.truncate(cut.len() - 3);
    // A frame header that demands a window of 2 GiB (RFC 8878, 3.1.1.1.2), then an empty last block.
    let huge = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 1, 0, 0];
    for blob in [cut, huge] {
        let case = Case::new();
        let diff_id = Digest::of(&tar);
        make_of(&case.layout_dir(), "localhost/x/y", vec![LayerBlob { blob, media_type: ZSTD, diff_id }]);
        let error = case.store.import_layout(&case.layout_dir(), None).unwrap_err();
        assert!(matches!(error, ImageError::Layer { .. }), "{error}");
        assert!(error.to_string().contains("compressed data"), "{error}");
        assert_nothing_left(&case.store);
    }
}

#[test]
fn img2_records_of_format_1_are_still_read() {
    let case = Case::new();
    let layout = case.layout(&[base(), vec![file("a", "1")]]);
    let record = case.store.clone().unstacked().import_layout(&layout.dir, None).unwrap();
    let path = case.store.dir().join("images").join(format!("{}.json", record.pin.manifest.hex()));
    let mut old: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    old["format"] = 1.into();
    for new in ["layers", "bundle_disk"] {
        old.as_object_mut().unwrap().remove(new).unwrap();
    }
    std::fs::write(&path, old.to_string()).unwrap();
    let store = Store::open(case.store.dir()).unwrap();
    let reference = record.reference().unwrap();
    store.check(&reference).unwrap();
    assert!(store.verify(&reference).unwrap().is_sound());
    let lower = store.bundle(&reference).unwrap().lower;
    assert!(lower.len() == 1 && lower[0].ends_with("rootfs"), "{lower:?}");
    // Another image on the same layers does not need it, and it is imported again under another name.
    let second = case.tmp.path().join("second");
    make_of(&second, "localhost/second", vec![layer(&base())]);
    assert_eq!(store.import_layout(&second, None).unwrap().layers.len(), 1);
    assert_eq!(
        store.import_layout(&layout.dir, Some("other")).unwrap().other_names,
        ["docker.io/library/other"]
    );
    assert!(store.verify_all().unwrap().is_sound());
}
