//! Removal, collection and disk usage: never what a run or proof uses (IMG.2).

use crate::case::{Case, assert_nothing_left};
use crate::oci_layout::{base, file, make};
use salaam::domain::digest::Digest;
use salaam::image::{ImageError, ImageRecord, Store};
use std::path::{Path, PathBuf};

/// Two images on one base.
fn two(case: &Case) -> [ImageRecord; 2] {
    let mut low = base();
    low.push(file("usr/big", &"x".repeat(300_000)));
    let dirs: [PathBuf; 2] = ["one", "two"].map(|name| case.tmp.path().join(name));
    let names = ["localhost/one", "localhost/two"];
    std::array::from_fn(|i| {
        make(&dirs[i], names[i], &[low.clone(), vec![file(names[i], &"y".repeat(50_000))]]);
        case.store.import_layout(&dirs[i], None).unwrap()
    })
}

fn keep_none(_: &ImageRecord) -> bool {
    false
}

#[test]
fn img2_an_image_that_a_state_directory_uses_is_neither_removed_nor_collected() {
    let case = Case::new();
    let [one, two] = two(&case);
    let state = Path::new("/state/a");
    case.store.mark(state, &one.reference().unwrap(), true).unwrap();
    case.store.mark(state, &one.reference().unwrap(), true).unwrap();
    let error = case.store.remove(&one.reference().unwrap()).unwrap_err();
    assert!(matches!(error, ImageError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("/state/a"), "{error}");
    let freed = case.store.gc(true, &keep_none).unwrap();
    assert_eq!(freed.images, [two.pin.reference]);
    assert!(case.store.verify(&one.reference().unwrap()).unwrap().is_sound());
    // While the state directory is busy the mark stays, then it is forgotten.
    case.store.forget_uses(&|path| path == state).unwrap();
    assert!(case.store.remove(&one.reference().unwrap()).is_err());
    case.store.forget_uses(&|_| false).unwrap();
    case.store.remove(&one.reference().unwrap()).unwrap();
    assert_nothing_left(&case.store);
}

#[test]
fn img2_a_mark_needs_the_image_and_a_state_directory_may_need_several() {
    let case = Case::new();
    let [one, two] = two(&case);
    let [first, second] = [&one, &two].map(|r| r.reference().unwrap());
    let state = Path::new("/state/a");
    case.store.mark(state, &first, true).unwrap();
    case.store.mark(state, &second, false).unwrap();
    assert_eq!(case.store.uses().unwrap().len(), 2);
    assert!(case.store.remove(&first).is_err() && case.store.remove(&second).is_err());
    // Nothing of the first is unsettled any more.
    case.store.mark(state, &second, true).unwrap();
    case.store.remove(&first).unwrap();
    assert!(matches!(case.store.mark(state, &first, true), Err(ImageError::NotFound { .. })));
    assert!(case.store.remove(&second).is_err());
}

#[test]
fn img2_collection_keeps_images_unless_told_and_takes_what_nothing_names() {
    let case = Case::new();
    let [one, two] = two(&case);
    let left = case.store.dir().join("layers").join(Digest::of(b"left").hex()).join("fs");
    std::fs::create_dir_all(&left).unwrap();
    std::fs::write(left.join("big"), vec![1; 100_000]).unwrap();
    let freed = case.store.gc(false, &keep_none).unwrap();
    assert!(freed.images.is_empty() && freed.bytes >= 100_000 && !left.exists(), "{freed:?}");
    assert_eq!(case.store.gc(false, &keep_none).unwrap().bytes, 0);
    let freed = case.store.gc(true, &|image| image.name == "localhost/two").unwrap();
    assert_eq!(freed.images, [one.pin.reference]);
    assert_eq!(case.store.list().unwrap(), [two]);
    assert!(case.store.verify_all().unwrap().is_sound());
}

#[test]
fn img2_usage_tells_own_from_shared_bytes_and_removal_gives_back_the_own() {
    let case = Case::new();
    let [one, two] = two(&case);
    let (usage, total) = case.store.usage().unwrap();
    let [a, b] = [&one, &two].map(|r| usage[&r.pin.manifest]);
    assert_eq!(a.shared, b.shared);
    assert!(a.shared > 300_000 && a.own > 50_000 && a.own < 300_000, "{a:?}");
    assert_eq!(total, a.own + b.own + a.shared);
    case.store.remove(&one.reference().unwrap()).unwrap();
    let (usage, rest) = Store::open(case.store.dir()).unwrap().usage().unwrap();
    assert_eq!((usage[&two.pin.manifest].shared, rest), (0, total - a.own));
}
