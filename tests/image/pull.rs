//! Pulls from a real registry, Debian's `docker-registry` (IMG.1–3).

use crate::case::Case;
use crate::fake::Fake;
use crate::oci_layout::{LayerBlob, archive};
use crate::oci_layout::{base, blob_path, file, gzip, layer, make_of, put_json};
use crate::pulling::{OCI, Told, blob, index_over, noise, quick, reference};
use crate::registry::{Auth, Registry, free_port};
use salaam::domain::digest::Digest;
use salaam::image::Silent;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[test]
fn img2_a_pull_brings_a_verified_image_and_the_second_asks_nobody() {
    let case = Case::new();
    let layout = case.two_layers(vec![file("app/main.js", "1")]);
    let mut registry = Registry::start(&case.tmp.path().join("registry"), &Auth::None);
    registry.push("team/app", &layout.dir, &layout.manifest);
    let told = Told::default();
    let named = reference(&registry.host(), &layout.manifest);
    let pulled = case.store.pull(&named, &quick(), &told).unwrap();
    assert_eq!((pulled.layers, pulled.image.pin.manifest.clone()), (2, layout.manifest.clone()));
    assert_eq!(pulled.image.pin.config, layout.config);
    assert_eq!(pulled.image.pin.diff_ids.len(), 2);
    let mut layers: Vec<_> = told.layers.lock().unwrap().iter().map(|(blob, ..)| blob.clone()).collect();
    layers.sort();
    layers.dedup();
    let mut expected = layout.layers.clone();
    expected.sort();
    assert_eq!(layers, expected);
    assert!(case.store.verify(&named).unwrap().is_sound());
    let main = case.rootfs(&pulled.image).join("app/main.js");
    assert_eq!(std::fs::read_to_string(main).unwrap(), "1");

    registry.kill();
    let again = case.store.pull(&named, &quick(), &Silent).unwrap();
    assert_eq!((again.layers, again.bytes, again.image), (0, 0, pulled.image));
}

#[test]
fn img3_an_index_of_two_platforms_and_dockers_media_types_are_resolved() {
    for (index, manifest, layer_type) in [
        (OCI.0, OCI.1, None),
        (
            "application/vnd.docker.distribution.manifest.list.v2+json",
            "application/vnd.docker.distribution.manifest.v2+json",
            Some("application/vnd.docker.image.rootfs.diff.tar.gzip"),
        ),
    ] {
        let case = Case::new();
        let mut layout = case.two_layers(vec![file("a", "1")]);
        if let Some(layer_type) = layer_type {
            let mut own: Value = serde_json::from_slice(&blob(&layout.dir, &layout.manifest)).unwrap();
            own["mediaType"] = json!(manifest);
            own["config"]["mediaType"] = json!("application/vnd.docker.container.image.v1+json");
            for layer in own["layers"].as_array_mut().unwrap() {
                layer["mediaType"] = json!(layer_type);
            }
            layout.manifest = crate::oci_layout::digest_of(&put_json(&layout.dir, manifest, &own));
        }
        let index_digest = index_over(&layout, (index, manifest));
        let registry = Registry::start(&case.tmp.path().join("registry"), &Auth::None);
        registry.push("team/app", &layout.dir, &layout.manifest);
        // The registry insists that an index names what it has: the other platform's is a copy in name only.
        let mut entries: Value = serde_json::from_slice(&blob(&layout.dir, &index_digest)).unwrap();
        let mut other: Value = serde_json::from_slice(&blob(&layout.dir, &layout.manifest)).unwrap();
        other["annotations"] = json!({"platform": "mips64"});
        let bytes = other.to_string().into_bytes();
        let digest = registry.push_manifest("team/app", &bytes, manifest);
        entries["manifests"][0]["digest"] = json!(digest.as_str());
        entries["manifests"][0]["size"] = json!(bytes.len());
        let pushed = registry.push_manifest("team/app", entries.to_string().as_bytes(), index);
        let pulled = case.pull(&registry.host(), &pushed).unwrap();
        assert_eq!(pulled.image.pin.manifest, layout.manifest);
        assert_eq!(pulled.image.index, Some(pushed.clone()));
        assert!(pulled.image.answers(&reference(&registry.host(), &pushed)));
        let report = case.store.verify(&reference(&registry.host(), &pushed)).unwrap();
        assert!(report.is_sound() && report.blobs == 5, "{report:?}");
    }
}

#[test]
fn img3_layers_that_are_here_already_are_not_fetched_again() {
    let case = Case::new();
    let big = noise("big", 300_000, 1);
    let first = case.two_layers(vec![big]);
    let registry = Registry::start(&case.tmp.path().join("registry"), &Auth::None);
    registry.push("team/app", &first.dir, &first.manifest);
    case.pull(&registry.host(), &first.manifest).unwrap();
    let second = case.two_layers(vec![file("other", "2")]);
    registry.push("team/app", &second.dir, &second.manifest);
    let pulled = case.pull(&registry.host(), &second.manifest).unwrap();
    assert_eq!(pulled.layers, 1, "the base was here");
    assert_eq!(pulled.bytes, std::fs::metadata(blob_path(&second.dir, &second.layers[1])).unwrap().len());
    assert!(case.store.verify(&reference(&registry.host(), &second.manifest)).unwrap().is_sound());
}

#[test]
fn img2_a_damaged_blob_is_refused_and_nothing_of_it_stays() {
    let case = Case::new();
    let layout = case.two_layers(vec![noise("big", 200_000, 2)]);
    let registry = Registry::start(&case.tmp.path().join("registry"), &Auth::None);
    registry.push("team/app", &layout.dir, &layout.manifest);
    let kept = registry.blob_file(&layout.layers[1]);
    let good = std::fs::read(&kept).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    std::fs::write(&kept, bad).unwrap();
    let error = case.pull_refused(&registry.host(), &layout.manifest);
    assert!(error.contains(layout.layers[1].as_str()) && error.contains("damaged"), "{error}");
    std::fs::write(&kept, good).unwrap();
    case.pull(&registry.host(), &layout.manifest).unwrap();
}

#[test]
fn img2_a_wrong_diff_id_a_truncated_gzip_and_a_wrong_size_are_refused() {
    let tar = archive(&base());
    let whole = gzip(&tar);
    for (name, blob, diff_id, why) in [
        ("diff_id", whole.clone(), Digest::of(b"another"), "diff_id"),
        ("truncated", whole[..whole.len() - 20].to_vec(), Digest::of(&tar), "broken"),
    ] {
        let case = Case::new();
        let layers = vec![LayerBlob { blob, media_type: crate::oci_layout::GZIP, diff_id }];
        let layout = make_of(&case.layout_dir(), "localhost/x/y", layers);
        let registry = Registry::start(&case.tmp.path().join("registry"), &Auth::None);
        registry.push("team/app", &layout.dir, &layout.manifest);
        let error = case.pull_refused(&registry.host(), &layout.manifest);
        assert!(error.contains(why), "{name}: {error}");
    }
    let case = Case::new();
    let mut layout = make_of(&case.layout_dir(), "localhost/x/y", vec![layer(&base())]);
    let registry = Registry::start(&case.tmp.path().join("registry"), &Auth::None);
    registry.push("team/app", &layout.dir, &layout.manifest);
    // One byte less than there are, then one more.
    for off in [-1i64, 2] {
        let mut own: Value = serde_json::from_slice(&blob(&layout.dir, &layout.manifest)).unwrap();
        let size = own["layers"][0]["size"].as_i64().unwrap();
        own["layers"][0]["size"] = json!(size + off);
        let bytes = own.to_string().into_bytes();
        layout.manifest = registry.push_manifest("team/app", &bytes, OCI.1);
        let error = case.pull_refused(&registry.host(), &layout.manifest);
        assert!(error.contains("descriptor says"), "{off}: {error}");
        std::fs::write(blob_path(&layout.dir, &layout.manifest), bytes).unwrap();
    }
}

#[test]
fn img1_what_the_registry_does_not_have_is_named_with_the_next_step() {
    let case = Case::new();
    let registry = Registry::start(&case.tmp.path().join("registry"), &Auth::None);
    let absent = Digest::of(b"absent");
    let error = case.pull(&registry.host(), &absent).unwrap_err();
    let refusal = error.refusal();
    assert!(refusal.message.contains(absent.as_str()) && refusal.message.contains("team/app"), "{error}");
    assert!(refusal.hint.contains("digest"), "{}", refusal.hint);
    let nobody = free_port();
    let begin = Instant::now();
    let error = case.pull_refused(&format!("127.0.0.1:{nobody}"), &absent);
    assert!(error.contains("cannot be reached") && begin.elapsed() < Duration::from_secs(3), "{error}");
}

#[test]
fn img3_a_registry_killed_in_mid_pull_is_gone_on_with_when_it_is_back() {
    let case = Case::new();
    let layout = case.two_layers(vec![noise("big", 3_000_000, 3)]);
    let size = std::fs::metadata(blob_path(&layout.dir, &layout.layers[1])).unwrap().len();
    let dir = case.tmp.path().join("registry");
    let mut registry = Registry::start(&dir, &Auth::None);
    registry.push("team/app", &layout.dir, &layout.manifest);
    let (host, port) = (registry.host(), registry.port);
    let front = crate::front::Front::slow(port, 4_000_000);
    let partial = case.store.dir().join("partial").join(layout.layers[1].hex());
    let mut access = quick();
    access.patience.attempts = 12;
    access.patience.backoff = Duration::from_millis(50);
    let pulled = std::thread::scope(|scope| {
        let named = reference(&front.host(), &layout.manifest);
        let (store, access) = (&case.store, &access);
        let pull = scope.spawn(move || store.pull(&named, access, &Silent));
        let begin = Instant::now();
        while std::fs::metadata(&partial).map_or(0, |m| m.len()) < 500_000 {
            assert!(begin.elapsed() < Duration::from_secs(20) && !pull.is_finished(), "nothing came");
            std::thread::sleep(Duration::from_millis(5));
        }
        registry.kill();
        front.sever();
        std::thread::sleep(Duration::from_millis(150));
        registry = Registry::start_with(&dir, &Auth::None, port, "");
        pull.join().unwrap()
    });
    pulled.unwrap();
    let sent = front.sent();
    assert!(sent < size + size / 2, "{sent} bytes for a blob of {size}: it began anew");
    assert!(case.store.verify(&reference(&front.host(), &layout.manifest)).unwrap().is_sound(), "{host}");
}

#[test]
fn img3_two_pulls_of_one_image_at_once_fetch_it_once() {
    let case = Case::new();
    let layout = case.two_layers(vec![noise("big", 400_000, 4)]);
    let fake = Fake::of_layout(&layout.dir, |_| None);
    let pulls: Vec<_> = std::thread::scope(|scope| {
        let pulls: Vec<_> =
            (0..3).map(|_| scope.spawn(|| case.pull(&fake.host(), &layout.manifest).unwrap())).collect();
        pulls.into_iter().map(|pull| pull.join().unwrap()).collect()
    });
    assert_eq!(pulls.iter().map(|p| p.layers).sum::<usize>(), 2);
    assert!(pulls.iter().all(|p| p.image == pulls[0].image));
    assert_eq!(fake.count("/blobs/"), 3, "a configuration and two layers");
}
