//! Unpacking: hostile and odd archives (IMG.2, IMG.4, attack A3).

use crate::case::{Case, assert_nothing_left, files_below};
use crate::oci_layout::{Item, base, dir, file, hardlink, program, special, symlink};
use salaam::image::{ImageError, Limits};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use tar::EntryType;

#[test]
fn img2_hostile_paths_are_refused_by_name() {
    for (item, word) in [
        (file("/etc/cron.d/x", "x"), "absolute"),
        (file("../x", "x"), "'..'"),
        (file("usr/../../x", "x"), "'..'"),
        (hardlink("etc/x", "../../etc/passwd"), "'..'"),
        (hardlink("etc/x", "/etc/passwd"), "absolute"),
        (hardlink("etc/x", "etc/absent"), "not in the image"),
        (hardlink("etc/x", "usr"), "directory"),
        (symlink("", "x"), "empty"),
        (file("etc/passwd/below", "x"), "not a directory"),
        (file("etc/.wh...", ""), "whiteout"),
        (file("etc/.wh..", ""), "whiteout"),
        (file("etc/.wh.", ""), "whiteout"),
        (special("etc/odd", EntryType::new(b'Z')), "entry type"),
        (special("etc/holes", EntryType::GNUSparse), "sparse"),
        (file(&"d/".repeat(2100), "x"), "4096"),
        (file(&format!("{}/x", "n".repeat(256)), "x"), "255"),
        (file(&format!("{}x", "d/".repeat(200)), "x"), "128"),
    ] {
        let case = Case::new();
        let path = String::from_utf8_lossy(&item.path).chars().take(40).collect::<String>();
        let error = case.refused(vec![item]);
        assert!(error.contains(word), "{path}: {error}");
    }
}

#[test]
fn img2_symlinks_are_never_followed_out_of_the_root() {
    let case = Case::new();
    let outside = case.tmp.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let target = outside.to_str().unwrap();
    let record = case
        .import(vec![
            dir("opt/"),
            dir("safe/"),
            symlink("abs", "/safe"),
            file("abs/one", "1"),
            symlink("up", "../../../../../../safe"),
            file("up/two", "2"),
            hardlink("opt/three", "up/two"),
            symlink("opt/link", "/etc/passwd"),
            file("opt/link", "replaced"),
            symlink("dir-link", "safe"),
            dir("dir-link/"),
            file("dir-link/four", "4"),
        ])
        .unwrap();
    let rootfs = case.rootfs(&record);
    for (path, text) in [
        ("safe/one", "1"),
        ("safe/two", "2"),
        ("opt/three", "2"),
        ("opt/link", "replaced"),
        ("dir-link/four", "4"),
    ] {
        assert_eq!(std::fs::read_to_string(rootfs.join(path)).unwrap(), text, "{path}");
    }
    assert!(!rootfs.join("safe/four").exists());
    let passwd = std::fs::read_to_string(rootfs.join("etc/passwd")).unwrap();
    assert!(passwd.starts_with("root:"), "written through a symlink: {passwd}");

    // One that leads to a directory of the host leads, inside the root, nowhere.
    let other = Case::new();
    let error = other.refused(vec![symlink("evil", target), file("evil/x", "x")]);
    assert!(error.contains("leads nowhere"), "{error}");
    let other = Case::new();
    let error = other.refused(vec![symlink("a", "b"), symlink("b", "a"), file("a/x", "x")]);
    assert!(error.contains("circle"), "{error}");
    assert!(std::fs::read_dir(&outside).unwrap().next().is_none());
}

#[test]
fn img2_a_shell_that_leads_out_of_the_root_is_missing() {
    let case = Case::new();
    case.layout(&[vec![dir("bin/"), symlink("bin/sh", "../../../../../../../../bin/sh-of-the-host")]]);
    let error = case.store.import_layout(&case.layout_dir(), None).unwrap_err().to_string();
    assert!(error.contains("/bin/sh") && error.contains("missing"), "{error}");
    assert_nothing_left(&case.store);
}

#[test]
fn img4_a_missing_or_unusable_shell_is_refused() {
    for items in [vec![file("x", "")], vec![file("bin/sh", "not executable")], vec![dir("bin/sh/")]] {
        let case = Case::new();
        case.layout(&[items]);
        let error = case.store.import_layout(&case.layout_dir(), None).unwrap_err().to_string();
        assert!(error.contains("/bin/sh"), "{error}");
        assert_nothing_left(&case.store);
    }
}

#[test]
fn a3_mount_points_that_are_symlinks_or_files_are_refused_by_name() {
    for name in ["proc", "sys", "dev", "source", "work", "tmp", "etc", ".salaam"] {
        for item in [symlink(name, "/usr"), file(name, "x"), symlink(name, "/nowhere")] {
            let case = Case::new();
            let mut items = base();
            items.retain(|i| !i.path.starts_with(b"etc"));
            items.push(item);
            case.layout(&[items]);
            let error = case.store.import_layout(&case.layout_dir(), None).unwrap_err();
            assert!(
                matches!(&error, ImageError::Rootfs { path, .. } if *path == format!("/{name}")),
                "{error}"
            );
            assert_nothing_left(&case.store);
        }
    }
    for name in ["etc/passwd/", "etc/resolv.conf/", ".salaam/probe/"] {
        let case = Case::new();
        let error = case.refused(vec![dir(name)]);
        assert!(error.contains(name.trim_end_matches('/')), "{error}");
    }
}

#[test]
fn a3_a_symlink_in_place_of_a_mounted_file_becomes_a_file() {
    let case = Case::new();
    let record = case.import(vec![symlink("etc/resolv.conf", "/run/systemd/resolv.conf")]).unwrap();
    let made = case.rootfs(&record).join("etc/resolv.conf").symlink_metadata().unwrap();
    assert!(made.is_file() && made.len() == 0);
    assert!(case.store.verify(&record.reference().unwrap()).unwrap().is_sound());
}

#[test]
fn img2_devices_and_privilege_bits_are_left_out_owners_are_kept() {
    let case = Case::new();
    let mut suid = program("usr/bin/su", "x");
    (suid.mode, suid.owner) = (0o6755, 1000);
    let mut sgid = dir("var/");
    sgid.mode = 0o7777;
    let record = case
        .import(vec![
            dir("dev/"),
            special("dev/null", EntryType::Char),
            special("dev/sda", EntryType::Block),
            special("pipe", EntryType::Fifo),
            suid,
            sgid,
        ])
        .unwrap();
    let rootfs = case.rootfs(&record);
    assert!(std::fs::read_dir(rootfs.join("dev")).unwrap().next().is_none());
    for path in files_below(&rootfs) {
        let kind = path.symlink_metadata().unwrap().file_type();
        assert!(!kind.is_fifo() && !kind.is_char_device() && !kind.is_block_device(), "{}", path.display());
    }
    let su = rootfs.join("usr/bin/su").metadata().unwrap();
    assert_eq!(su.mode() & 0o7777, 0o755);
    if nix::unistd::geteuid().is_root() {
        assert_eq!((su.uid(), su.gid()), (1000, 1000));
    }
    assert_eq!(rootfs.join("var").metadata().unwrap().mode() & 0o7777, 0o1777);
    assert_eq!(su.mtime(), 1_700_000_000);
}

#[test]
fn img2_whiteouts_hide_only_what_lower_layers_have() {
    let case = Case::new();
    let low = vec![
        file("a/keep", "1"),
        file("a/gone", "1"),
        file("b/old", "1"),
        file("b/sub/old", "1"),
        dir("c/"),
        file("c/deep/x", "1"),
        file("d", "1"),
    ];
    let high = vec![
        file("a/.wh.gone", ""),
        file("a/.wh.never", ""),
        file("b/new", "2"),
        file("b/sub/new", "2"),
        file("b/.wh..wh..opq", ""),
        file("b/late", "2"),
        file(".wh.c", ""),
        file(".wh.d", ""),
        file("d", "2"),
        file("nowhere/.wh.x", ""),
        file("a/.wh..wh.plnk", ""),
    ];
    case.layout(&[base(), low, high]);
    let record = case.store.import_layout(&case.layout_dir(), None).unwrap();
    let rootfs = case.rootfs(&record);
    for there in ["a/keep", "b/new", "b/sub/new", "b/late", "d"] {
        assert!(rootfs.join(there).exists(), "{there}");
    }
    for gone in ["a/gone", "b/old", "b/sub/old", "c", "nowhere", "a/.wh.gone", "b/.wh..wh..opq"] {
        assert!(rootfs.join(gone).symlink_metadata().is_err(), "{gone}");
    }
    assert_eq!(std::fs::read_to_string(rootfs.join("d")).unwrap(), "2");
    assert!(case.store.verify(&record.reference().unwrap()).unwrap().is_sound());
}

#[test]
fn img2_long_and_odd_names_survive() {
    let case = Case::new();
    let long = format!("{}/{}", "d".repeat(200), "f".repeat(200));
    let mut odd = file("x", "1");
    odd.path = b"odd/\xff\\\x1b".to_vec();
    let record = case.import(vec![file(&long, "1"), symlink("l", &"t".repeat(300)), odd]).unwrap();
    let rootfs = case.rootfs(&record);
    assert!(rootfs.join(&long).exists());
    assert_eq!(rootfs.join("l").read_link().unwrap(), PathBuf::from("t".repeat(300)));
    assert!(case.store.verify(&record.reference().unwrap()).unwrap().is_sound());
}

#[test]
fn img2_bounds_are_named() {
    let limits = Limits { entries: 9, ..Limits::default() };
    for (limits, word) in [
        (limits, "9 entries"),
        (Limits { layers: 1, ..Limits::default() }, "1 layers"),
        (Limits { unpacked_bytes: 4096, ..Limits::default() }, "4096 bytes"),
        (Limits { document_bytes: 100, ..Limits::default() }, "100 bytes"),
    ] {
        let case = Case::new();
        let layout = case.layout(&[base(), vec![file("a", "1"), file("b", &"2".repeat(9000))]]);
        let error = case.store.clone().with_limits(limits).import_layout(&layout.dir, None).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        assert_nothing_left(&case.store);
    }
}

#[test]
fn img2_endless_metadata_is_refused_before_it_fills_memory() {
    let case = Case::new();
    let mut items = base();
    items.push(Item { path: vec![b'x'; 8 << 20], ..file("", "1") });
    case.layout(&[items]);
    let error = case.store.import_layout(&case.layout_dir(), None).unwrap_err().to_string();
    assert!(error.contains("1 MiB"), "{error}");
    assert_nothing_left(&case.store);
}

#[test]
fn img2_a_crowded_root_directory_is_refused() {
    let case = Case::new();
    let error = case.refused((0..300).map(|i| file(&i.to_string(), "")).collect());
    assert!(error.contains("256 entries"), "{error}");
}
