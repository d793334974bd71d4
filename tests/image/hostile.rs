//! Hostile archives in extended headers and across layers (IMG.2, IMG.4, attack A3).

use crate::case::{Case, assert_nothing_left, files_below};
use crate::oci_layout::{Item, base, dir, file, hardlink, program, special, symlink};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tar::EntryType;

fn with_pax(item: Item, records: &[(&'static str, &str)]) -> Item {
    Item { pax: records.iter().map(|(k, v)| (*k, (*v).to_owned())).collect(), ..item }
}

/// The extended attributes that a person with all rights sees.
fn attributes(path: &Path) -> Vec<u8> {
    let mut list = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut list[..]).unwrap();
    list.truncate(length);
    list
}

#[test]
fn img2_pax_names_and_links_are_held_to_the_same_rules() {
    for (item, word) in [
        (with_pax(file("x", "1"), &[("path", "../x")]), "'..'"),
        (with_pax(file("x", "1"), &[("path", "/etc/x")]), "absolute"),
        (with_pax(file("x", "1"), &[("path", &"d/".repeat(2100))]), "4096"),
        (with_pax(hardlink("x", "etc/passwd"), &[("linkpath", "../../etc/passwd")]), "'..'"),
        (with_pax(hardlink("x", "etc/passwd"), &[("linkpath", "/etc/passwd")]), "absolute"),
        (with_pax(symlink("x", "y"), &[("linkpath", &"t".repeat(5000))]), "4096"),
        (with_pax(file("x", "1"), &[("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0")]), "sparse"),
        (with_pax(file("x", "1"), &[("GNU.sparse.realsize", "1000000000000")]), "sparse"),
    ] {
        let case = Case::new();
        let shown = format!("{:?}", item.pax).chars().take(60).collect::<String>();
        let error = case.refused(vec![item]);
        assert!(error.contains(word), "{shown}: {error}");
    }
}

#[test]
fn img2_long_pax_names_survive() {
    let case = Case::new();
    let long = format!("{}/{}", "d".repeat(200), "é".repeat(100));
    let target = "t".repeat(300);
    let record = case
        .import(vec![
            with_pax(file("short", "1"), &[("path", &long), ("mtime", "1700000000.5")]),
            with_pax(symlink("l", "x"), &[("linkpath", &target)]),
        ])
        .unwrap();
    let rootfs = case.rootfs(&record);
    assert_eq!(std::fs::read_to_string(rootfs.join(&long)).unwrap(), "1");
    assert_eq!(rootfs.join("l").read_link().unwrap().to_str(), Some(target.as_str()));
    assert!(!rootfs.join("short").exists());
}

#[test]
fn img2_extended_attributes_of_an_archive_are_left_out() {
    let case = Case::new();
    let capability = "\u{1}\0\0\u{2}\0 \0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let record = case
        .import(vec![
            with_pax(program("usr/bin/ping", "x"), &[("SCHILY.xattr.security.capability", capability)]),
            // Marks of an overlay: they would hide what lower layers have, or lead elsewhere.
            with_pax(dir("etc/"), &[("SCHILY.xattr.trusted.overlay.opaque", "y")]),
            with_pax(dir("opt/"), &[("SCHILY.xattr.trusted.overlay.redirect", "/etc")]),
            with_pax(file("opt/x", "1"), &[("LIBARCHIVE.xattr.user.x", "eA")]),
        ])
        .unwrap();
    let layer = case.layer(&record, 1);
    for path in ["usr/bin/ping", "opt", "opt/x"] {
        assert_eq!(attributes(&layer.join(path)), b"", "{path}");
    }
    assert!(case.rootfs(&record).join("etc/passwd").exists());
}

#[test]
fn img2_a_device_node_is_no_whiteout() {
    // An overlay's whiteout is a character device 0:0, which an archive can name.
    let case = Case::new();
    let record = case.import(vec![special("etc/passwd", EntryType::Char)]).unwrap();
    assert!(case.rootfs(&record).join("etc/passwd").is_file());
}

#[test]
fn img2_symlinks_of_a_lower_layer_lead_no_layer_out_of_the_root() {
    let case = Case::new();
    let outside = case.tmp.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    let target = outside.to_str().unwrap();
    let low = vec![
        dir("safe/"),
        file("safe/old", "1"),
        symlink("in", "/safe"),
        symlink("up", "../../../../../../../../safe"),
        symlink("out", target),
        symlink("file", "/safe/old"),
    ];
    let high = vec![
        file("in/one", "2"),
        file("up/two", "2"),
        hardlink("three", "in/old"),
        // Replaced, not written through.
        file("file", "2"),
        hardlink("four", "out"),
    ];
    let layout = case.layout(&[base(), low.clone(), high]);
    let record = case.store.import_layout(&layout.dir, None).unwrap();
    let rootfs = case.rootfs(&record);
    for (path, text) in
        [("safe/one", "2"), ("safe/two", "2"), ("three", "1"), ("safe/old", "1"), ("file", "2")]
    {
        assert_eq!(std::fs::read_to_string(rootfs.join(path)).unwrap(), text, "{path}");
    }
    assert_eq!(rootfs.join("four").read_link().unwrap(), outside, "the link itself has two names");

    for (item, word) in [
        (file("out/secret", "overwritten"), "leads nowhere"),
        (file("out/new", "x"), "leads nowhere"),
        (hardlink("stolen", "out/secret"), "not in the image"),
        (hardlink("stolen", "out/../secret"), "'..'"),
    ] {
        let case = Case::new();
        case.layout(&[base(), low.clone(), vec![item]]);
        let error = case.store.import_layout(&case.layout_dir(), None).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert_nothing_left(&case.store);
    }
    // A whiteout through it removes nothing.
    let other = Case::new();
    let layout = other.layout(&[base(), low, vec![file("out/.wh.secret", ""), file("out/.wh..wh..opq", "")]]);
    other.store.import_layout(&layout.dir, None).unwrap();
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), "secret");
}

#[test]
fn a3_a_mount_point_that_a_higher_layer_makes_a_symlink_is_refused() {
    for name in ["proc", "sys", "dev", "work", "source", "tmp"] {
        let case = Case::new();
        case.layout(&[base(), vec![dir(&format!("{name}/"))], vec![symlink(name, "/usr")]]);
        let error = case.store.import_layout(&case.layout_dir(), None).unwrap_err().to_string();
        assert!(error.contains(&format!("/{name} is a symlink")), "{error}");
        assert_nothing_left(&case.store);
    }
}

#[test]
fn img2_a_shell_that_a_higher_layer_removes_is_missing() {
    let case = Case::new();
    let error = case.refused(vec![file("usr/bin/.wh.sh", "")]);
    assert!(error.contains("/bin/sh is missing"), "{error}");
}

#[test]
fn img2_owners_and_modes_come_from_the_archive_without_privilege_bits() {
    let case = Case::new();
    let mut item = program("usr/bin/su", "x");
    (item.mode, item.owner) = (0o7777, 2_000_000);
    let big = with_pax(file("big", "1"), &[("uid", "3000000"), ("gid", "3000001")]);
    let record = case.import(vec![item, big]).unwrap();
    for path in files_below(&case.rootfs(&record)) {
        let mode = path.symlink_metadata().unwrap().mode();
        assert_eq!(mode & 0o6000, 0, "{}: {mode:o}", path.display());
    }
    let m = case.rootfs(&record).join("usr/bin/su").metadata().unwrap();
    assert_eq!((m.uid(), m.gid(), m.mode() & 0o7777), (2_000_000, 2_000_000, 0o777));
    let m = case.rootfs(&record).join("big").metadata().unwrap();
    assert_eq!((m.uid(), m.gid()), (3_000_000, 3_000_001));
}
