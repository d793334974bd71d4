//! The store itself: who may use it, verification, removal (IMG.1, IMG.2, IMG.4, SVC.2).

use crate::case::{Case, assert_nothing_left};
use crate::oci_layout::{base, dir, file, flip, make, symlink};
use salaam::domain::digest::Digest;
use salaam::image::{ImageError, Reference, Store};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink as os_symlink};

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
fn img2_verify_finds_every_kind_of_change_and_check_the_ones_near_the_top() {
    let case = Case::new();
    let extra =
        vec![file("opt/d/a", "1"), file("opt/d/b", "1"), file("opt/d/c", "1"), symlink("opt/d/l", "a")];
    let record = case.import(extra).unwrap();
    let reference = record.reference().unwrap();
    let below = case.layer(&record, 1).join("opt/d");
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
        "fs/opt/d/a has other content",
        "fs/opt/d/b is missing",
        "fs/opt/d/c has mode 4755, was 644",
        "fs/opt/d/l leads elsewhere",
        "fs/opt/d/new was not in the image",
    ] {
        assert!(
            found.iter().any(|f| f.starts_with("layers/") && f.ends_with(expected)),
            "{expected}: {found:?}"
        );
    }
    assert!(found[0].starts_with(record.pin.config.as_str()));
    assert!(matches!(case.store.check(&reference), Err(ImageError::BlobDigest { .. })));
    flip(case.store.dir(), &record.pin.config);
    // Documented: the cheap check does not see that far down.
    case.store.check(&reference).unwrap();
    std::fs::write(case.layer(&record, 0).join("added"), "").unwrap();
    let error = case.store.check(&reference).unwrap_err();
    assert!(matches!(error, ImageError::Changed { .. }), "{error}");
}

#[test]
fn img2_the_list_of_differences_is_bounded() {
    let case = Case::new();
    let record = case.import(vec![dir("opt/")]).unwrap();
    let (reference, opt) = (record.reference().unwrap(), case.layer(&record, 1).join("opt"));
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
    let text = std::fs::read_to_string(&path).unwrap().replacen("\"format\": 2", "\"format\": 3", 1);
    std::fs::write(&path, text).unwrap();
    let error = case.store.list().unwrap_err().to_string();
    assert!(error.contains("format 3") && error.contains(path.to_str().unwrap()), "{error}");
}
