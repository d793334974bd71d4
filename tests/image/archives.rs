//! Images in tar archives: OCI layouts, and what `docker save` writes in its two forms (IMG.3).

use crate::case::{Case, assert_nothing_left};
use crate::oci_layout::{Item, archive, base, blob_path, dir, file, gzip, hardlink, special, symlink};
use salaam::domain::digest::Digest;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tar::EntryType;

fn raw(path: &str, body: &[u8]) -> Item {
    Item { body: body.to_vec(), ..file(path, "") }
}

/// The files of a layout directory as entries.
fn layout_items(layout: &Path) -> Vec<Item> {
    let read = |path: PathBuf| std::fs::read(path).unwrap();
    let mut items = vec![
        raw("oci-layout", &read(layout.join("oci-layout"))),
        dir("blobs/"),
        dir("blobs/sha256/"),
        raw("./index.json", &read(layout.join("index.json"))),
    ];
    for blob in std::fs::read_dir(layout.join("blobs/sha256")).unwrap() {
        let path = blob.unwrap().path();
        items
            .push(raw(&format!("blobs/sha256/{}", path.file_name().unwrap().to_str().unwrap()), &read(path)));
    }
    items
}

/// What `docker save` up to 24 writes for an image of uncompressed layers.
fn saved(layers: &[Vec<u8>], names: Value) -> Vec<Item> {
    let diff_ids: Vec<_> = layers.iter().map(|l| Digest::of(l).to_string()).collect();
    let config = json!({
        "architecture": crate::oci_layout::arch(), "os": "linux", "created": "2026-08-01T00:00:00Z",
        "config": {"Cmd": ["node"]}, "docker_version": "20.10.24",
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    })
    .to_string();
    let id = Digest::of(config.as_bytes()).hex().to_owned();
    let paths: Vec<_> = (0..layers.len()).map(|n| format!("{n:064x}/layer.tar")).collect();
    let mut items = vec![raw(&format!("{id}.json"), config.as_bytes())];
    for (n, layer) in layers.iter().enumerate() {
        items.push(dir(&format!("{n:064x}/")));
        items.push(file(&format!("{n:064x}/VERSION"), "1.0"));
        items.push(raw(&paths[n], layer));
    }
    let manifest = json!([{"Config": format!("{id}.json"), "RepoTags": names, "Layers": paths}]);
    items.push(file("manifest.json", &manifest.to_string()));
    items
}

fn write(case: &Case, items: &[Item]) -> PathBuf {
    let path = case.tmp.path().join("image.tar");
    std::fs::write(&path, archive(items)).unwrap();
    path
}

fn refused(items: &[Item]) -> String {
    let case = Case::new();
    let error = case.store.import_archive(&write(&case, items), None).unwrap_err().to_string();
    assert_nothing_left(&case.store);
    error
}

#[test]
fn img3_a_layout_in_a_tar_gives_the_image_of_its_directory() {
    let case = Case::new();
    let layout = case.layout(&[base(), vec![file("app", "1")]]);
    let record = case.store.import_archive(&write(&case, &layout_items(&layout.dir)), None).unwrap();
    assert_eq!((&record.pin.manifest, &record.pin.config), (&layout.manifest, &layout.config));
    assert_eq!(record.name, "localhost/test/image");
    assert!(case.store.verify(&record.reference().unwrap()).unwrap().is_sound());
    assert_eq!(std::fs::read_to_string(case.rootfs(&record).join("app")).unwrap(), "1");
    let again = case.store.import_layout(&layout.dir, None).unwrap();
    assert_eq!(again, record);
}

#[test]
fn img3_what_docker_save_wrote_up_to_24_gets_a_manifest_that_never_varies() {
    let layers = [archive(&base()), archive(&[file("app", "1")])];
    let mut seen = Vec::new();
    for names in [json!(["team/app:1"]), Value::Null, json!(["Not A Name"])] {
        let case = Case::new();
        let record = case.store.import_archive(&write(&case, &saved(&layers, names)), None).unwrap();
        assert!(case.store.verify(&record.reference().unwrap()).unwrap().is_sound());
        assert_eq!(record.pin.diff_ids, layers.each_ref().map(|l| Digest::of(l)));
        assert_eq!(std::fs::read_to_string(case.rootfs(&record).join("app")).unwrap(), "1");
        seen.push((record.name, record.tag, record.pin.manifest));
    }
    let manifests: Vec<_> = seen.iter().map(|(_, _, manifest)| manifest).collect();
    assert!(manifests.iter().all(|m| *m == manifests[0]), "{seen:?}");
    assert_eq!(seen[0].0, "docker.io/team/app");
    assert_eq!(seen[0].1.as_deref(), Some("1"));
    assert_eq!((seen[1].0.as_str(), seen[2].0.as_str()), ("localhost/imported", "localhost/imported"));
    // Of another version of ours it must be the same too.
    let case = Case::new();
    let fixed = [archive(&[dir("bin/"), crate::oci_layout::program("bin/sh", "x")])];
    let record = case.store.import_archive(&write(&case, &saved(&fixed, Value::Null)), None).unwrap();
    let manifest =
        std::fs::read_to_string(case.store.dir().join("blobs/sha256").join(record.pin.manifest.hex()))
            .unwrap();
    let config = &record.pin.config;
    let (size, tar) = (saved(&fixed, Value::Null)[0].body.len(), &fixed[0]);
    let expected = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\
         \"config\":{{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\"digest\":\"{config}\",\"size\":{size}}},\
         \"layers\":[{{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar\",\"digest\":\"{}\",\"size\":{}}}]}}",
        Digest::of(tar),
        tar.len()
    );
    assert_eq!(manifest, expected);
}

#[test]
fn img3_a_layer_that_docker_shares_by_a_link_is_found() {
    let layer = archive(&base());
    for link in [
        symlink(&format!("{:064x}/layer.tar", 1), &format!("../{:064x}/layer.tar", 0)),
        hardlink(&format!("{:064x}/layer.tar", 1), &format!("{:064x}/layer.tar", 0)),
    ] {
        let mut items = saved(&[layer.clone(), layer.clone()], Value::Null);
        let second = items.iter().position(|i| i.path == link.path).unwrap();
        items[second] = link;
        let case = Case::new();
        case.store.import_archive(&write(&case, &items), None).unwrap();
    }
    for target in ["../../etc/passwd", "/etc/passwd", "layer.tar"] {
        let mut items = saved(&[layer.clone(), layer.clone()], Value::Null);
        let path = format!("{:064x}/layer.tar", 1);
        let second = items.iter().position(|i| i.path == path.as_bytes()).unwrap();
        items[second] = symlink(&path, target);
        let error = refused(&items);
        assert!(error.contains("to outside of it") || error.contains("lacks a layer"), "{target}: {error}");
    }
}

#[test]
fn img3_what_docker_save_writes_from_25_on_is_the_layout_in_it() {
    let case = Case::new();
    let layout = case.layout(&[base()]);
    let mut items = layout_items(&layout.dir);
    let manifest = json!([{
        "Config": format!("blobs/sha256/{}", layout.config.hex()), "RepoTags": ["team/app:1"],
        "Layers": [format!("blobs/sha256/{}", layout.layers[0].hex())],
    }]);
    items.push(file("manifest.json", &manifest.to_string()));
    let record = case.store.import_archive(&write(&case, &items), Some("mine/app")).unwrap();
    assert_eq!(record.pin.reference, format!("docker.io/mine/app@{}", layout.manifest));
}

#[test]
fn img2_hostile_archives_are_refused_by_name() {
    let layers = [archive(&base())];
    let good = || saved(&layers, Value::Null);
    let plus = |item: Item| {
        let mut items = good();
        items.insert(0, item);
        refused(&items)
    };
    for (item, why) in [
        (file("../escape", "x"), "unsafe name '../escape'"),
        (file("/etc/passwd", "x"), "unsafe name '/etc/passwd'"),
        (file("a/../../b", "x"), "unsafe name"),
        (file("manifest.json", "[]"), "twice"),
        (special("dev", EntryType::Block), "neither a file nor a link"),
        (special("pipe", EntryType::Fifo), "neither a file nor a link"),
        (special("sparse", EntryType::GNUSparse), "sparse"),
        (symlink("out", "../../x"), "outside"),
        (file("esc\u{1b}[2J/../..", "x"), "esc\\x1b[2J"),
    ] {
        let error = plus(item);
        assert!(error.contains(why) && !error.contains('\u{1b}'), "{why}: {error}");
    }
    let many: Vec<_> = (0..17_000).map(|n| file(&format!("f{n}"), "")).collect();
    assert!(refused(&many).contains("limit of 16384 files"));
    let mut long = file(&"x".repeat(2_000_000), "");
    long.body = Vec::new();
    assert!(refused(&[long]).contains("1 MiB"));
}

#[test]
fn img2_archives_that_are_damaged_or_not_what_they_say_are_refused() {
    let layers = [archive(&base())];
    let good = saved(&layers, Value::Null);
    let changed = |change: &dyn Fn(&mut Vec<Item>)| {
        let mut items = good.clone();
        change(&mut items);
        refused(&items)
    };
    let last = good.len() - 1;
    let manifest = |change: &dyn Fn(&mut Value)| {
        let mut value: Value = serde_json::from_slice(&good[last].body).unwrap();
        change(&mut value);
        changed(&|items| items[last].body = value.to_string().into_bytes())
    };
    for (error, why) in [
        (changed(&|items| items[0].body.push(b' ')), "has content"),
        (changed(&|items| items[3].body[100] ^= 1), "has content"),
        (changed(&|items| items[3].body.truncate(1024)), "has content"),
        (changed(&|items| drop(items.remove(3))), "lacks a layer"),
        (changed(&|items| drop(items.remove(0))), "holds no file"),
        (changed(&|items| drop(items.remove(last))), "neither an OCI image layout nor"),
        (changed(&|items| items[last].body = b"{".to_vec()), "not the JSON"),
        (manifest(&|m| m[0]["Layers"] = json!([])), "0 layers and 1 diff_ids"),
        (manifest(&|m| *m = json!([m[0], m[0]])), "2 images"),
        (manifest(&|m| *m = json!([])), "0 images"),
        (manifest(&|m| m[0]["Config"] = json!("../../etc/passwd")), "holds no file"),
    ] {
        assert!(error.contains(why), "{why}: {error}");
    }
    let case = Case::new();
    for (bytes, why) in [
        (gzip(&archive(&good)), "is compressed"),
        (archive(&good)[..3000].to_vec(), ""),
        (vec![0; 1024], "neither an OCI"),
        (b"not an archive at all, but long enough for one header ".repeat(20), "not a sound tar archive"),
    ] {
        let path = case.tmp.path().join("bad.tar");
        std::fs::write(&path, bytes).unwrap();
        let error = case.store.import_archive(&path, None).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("bad.tar"), "{why}: {error}");
        assert_nothing_left(&case.store);
    }
    let fifo = case.tmp.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(case.store.import_archive(&fifo, None).unwrap_err().to_string().contains("not a regular file"));
    let missing = case.layout(&[base()]);
    std::fs::remove_file(blob_path(&missing.dir, &missing.layers[0])).unwrap();
    assert!(refused(&layout_items(&missing.dir)).contains("does not hold it"));
}
