//! Registries that lie, break off, go on for ever or lead elsewhere (IMG.2, IMG.3).

use crate::case::Case;
use crate::fake::{Fake, Reply, Send, from_layout};
use crate::oci_layout::{INDEX, MANIFEST, file, put_json};
use crate::pulling::{OCI, Told, blob, index_over, noise, quick, reference};
use salaam::domain::digest::Digest;
use salaam::image::{Access, Limits, Silent};
use serde_json::json;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicUsize, Ordering};

/// True the first `n` times.
fn first(n: usize) -> impl Fn() -> bool {
    let count = AtomicUsize::new(0);
    move || count.fetch_add(1, Ordering::Relaxed) < n
}

#[test]
fn img3_a_broken_download_goes_on_by_range_and_from_the_start_without() {
    for (answers_ranges, send) in
        [(true, Send::Cut(90_000)), (true, Send::Stall(90_000)), (false, Send::Cut(90_000))]
    {
        let case = Case::new();
        let layout = case.two_layers(vec![noise("big", 200_000, 5)]);
        let (dir, big) = (layout.dir.clone(), layout.layers[1].clone());
        let broken = first(1);
        let fake = Fake::of_layout(&layout.dir, move |request| {
            if !request.path.ends_with(big.hex()) {
                return None;
            }
            let whole = || Reply::new(200, blob(&dir, &big));
            if broken() { Some(whole().send(send)) } else { (!answers_ranges).then(whole) }
        });
        case.pull(&fake.host(), &layout.manifest).unwrap();
        let asked: Vec<_> =
            fake.seen().iter().filter(|r| r.path.ends_with(layout.layers[1].hex())).cloned().collect();
        assert_eq!(asked.iter().map(|r| r.from()).collect::<Vec<_>>(), [None, Some(90_000)]);
        assert!(case.store.verify(&reference(&fake.host(), &layout.manifest)).unwrap().is_sound());
    }
}

#[test]
fn img3_what_a_killed_pull_left_is_hashed_again_and_gone_on_with() {
    for (left, from) in [("good", Some(70_000)), ("bad", Some(70_000)), ("too much", None), ("whole", None)] {
        let case = Case::new();
        let layout = case.two_layers(vec![noise("big", 200_000, 6)]);
        let fake = Fake::of_layout(&layout.dir, |_| None);
        let big = &layout.layers[1];
        let bytes = blob(&layout.dir, big);
        let partial = case.store.dir().join("partial");
        std::fs::create_dir(&partial).unwrap();
        let here = match left {
            "good" => bytes[..70_000].to_vec(),
            "bad" => vec![7; 70_000],
            "too much" => [bytes.as_slice(), b"more"].concat(),
            _ => bytes,
        };
        std::fs::write(partial.join(big.hex()), here).unwrap();
        case.pull(&fake.host(), &layout.manifest).unwrap();
        let asked: Vec<_> =
            fake.seen().iter().filter(|r| r.path.ends_with(big.hex())).map(|r| r.from()).collect();
        match left {
            "good" => assert_eq!(asked, [from]),
            "bad" => assert_eq!(asked, [from, None], "then from the start"),
            "too much" => assert_eq!(asked, [None]),
            _ => assert!(asked.is_empty(), "{asked:?}"),
        }
        assert!(case.store.verify(&reference(&fake.host(), &layout.manifest)).unwrap().is_sound());
        assert!(!partial.join(big.hex()).exists());
    }
}

#[test]
fn img2_ranges_that_are_not_the_asked_for_ones_are_not_believed() {
    for range in ["bytes 0-10/11", "bytes 89999-100000/100001", "nonsense", "bytes 90000-99999/5"] {
        let case = Case::new();
        let layout = case.two_layers(vec![noise("big", 200_000, 7)]);
        let (dir, big) = (layout.dir.clone(), layout.layers[1].clone());
        let (broken, lie) = (first(1), first(1));
        let fake = Fake::of_layout(&layout.dir, move |request| {
            if !request.path.ends_with(big.hex()) {
                None
            } else if broken() {
                Some(Reply::new(200, blob(&dir, &big)).send(Send::Cut(90_000)))
            } else if request.from().is_some() && lie() {
                Some(Reply::new(206, &blob(&dir, &big)[90_000..]).with("Content-Range", range))
            } else {
                None
            }
        });
        case.pull(&fake.host(), &layout.manifest).unwrap();
        assert!(case.store.verify(&reference(&fake.host(), &layout.manifest)).unwrap().is_sound(), "{range}");
    }
}

#[test]
fn img3_attempts_are_bounded_and_errors_that_pass_are_tried_again() {
    let case = Case::new();
    let layout = case.two_layers(vec![noise("big", 200_000, 8)]);
    let (dir, big) = (layout.dir.clone(), layout.layers[1].clone());
    let stuck = Fake::of_layout(&layout.dir, move |request| {
        let here = request.path.ends_with(big.hex());
        here.then(|| Reply::new(206, blob(&dir, &big)).send(Send::Stall(0)))
    });
    let error = case.pull_refused(&stuck.host(), &layout.manifest);
    assert!(error.contains("broke off at byte 0") || error.contains("answers 206"), "{error}");
    let (busy, down) = (first(1), first(2));
    let flaky = Fake::of_layout(&layout.dir, move |request| {
        if request.path.contains("/manifests/") && busy() {
            Some(Reply::new(429, "").with("Retry-After", "0"))
        } else if request.path.contains("/blobs/") && down() {
            Some(Reply::new(503, "<html>"))
        } else {
            None
        }
    });
    case.pull(&flaky.host(), &layout.manifest).unwrap();
}

#[test]
fn img2_other_content_and_endless_content_are_refused() {
    let case = Case::new();
    let layout = case.two_layers(vec![noise("big", 200_000, 9)]);
    let big = layout.layers[1].clone();
    for (part, send, why) in [
        (layout.manifest.clone(), Send::All, "damaged"),
        (layout.manifest.clone(), Send::Endless, "exceeds the limit of 4194304 bytes"),
        (layout.config.clone(), Send::All, "damaged"),
        (layout.config.clone(), Send::Endless, "exceeds the limit"),
        (big.clone(), Send::Endless, "descriptor says"),
    ] {
        let (dir, name) = (layout.dir.clone(), part.hex().to_owned());
        let fake = Fake::of_layout(&layout.dir, move |request| {
            request.path.ends_with(&name).then(|| {
                let mut bytes = blob(&dir, &Digest::parse(&format!("sha256:{name}")).unwrap());
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
                Reply::new(200, bytes).send(send)
            })
        });
        let error = case.pull_refused(&fake.host(), &layout.manifest);
        assert!(error.contains(why), "{part} {why}: {error}");
    }
    let small = Limits { document_bytes: 300, ..Limits::default() };
    let limited = Case { store: case.store.clone().with_limits(small), tmp: tempfile::tempdir().unwrap() };
    let fake = Fake::of_layout(&layout.dir, |_| None);
    let error = limited.pull_refused(&fake.host(), &layout.manifest);
    assert!(error.contains("manifests") && error.contains("limit of 300 bytes"), "{error}");
}

#[test]
fn img3_redirects_carry_no_login_and_never_lead_to_plain_http_elsewhere() {
    let case = Case::new();
    let layout = case.two_layers(vec![file("a", "1")]);
    let elsewhere = Fake::of_layout(&layout.dir, |_| None);
    let other = elsewhere.host();
    let registry = Fake::of_layout(&layout.dir, move |request| {
        if request.header("authorization").is_none() {
            return Some(Reply::new(401, "").with("WWW-Authenticate", "Basic realm=\"x\""));
        }
        let to = format!("http://{other}{}?signature=s", request.path).replace("?signature=s", "");
        request.path.contains("/blobs/").then(|| Reply::new(307, "").with("Location", to))
    });
    let login = case.tmp.path().join("config.json");
    std::fs::write(
        &login,
        json!({"auths": {registry.host(): {"username": "u", "password": "secret"}}}).to_string(),
    )
    .unwrap();
    let access = Access { logins: vec![login], ..quick() };
    case.pull_with(&registry.host(), &layout.manifest, &access).unwrap();
    assert_eq!(elsewhere.count("/blobs/"), 3);
    assert!(elsewhere.seen().iter().all(|r| r.header("authorization").is_none()));
    assert!(registry.seen().iter().any(|r| r.header("authorization").is_some()));

    for (to, why) in [
        ("http://192.0.2.1/blob", "plain HTTP"),
        ("ftp://127.0.0.1/etc/passwd", "not HTTPS"),
        ("file:///etc/passwd", "not an absolute address"),
        ("", "not an absolute address"),
        ("/v2/again", "redirects more than 5 times"),
    ] {
        let case = Case::new();
        let registry = Fake::of_layout(&layout.dir, move |request| {
            let elsewhere = request.path.contains("/blobs/") || request.path == "/v2/again";
            elsewhere.then(|| Reply::new(302, "").with("Location", to))
        });
        let error = case.pull_refused(&registry.host(), &layout.manifest);
        assert!(error.contains(why), "{to}: {error}");
    }
}

#[test]
fn img3_a_redirect_target_that_asks_for_a_login_is_shown_none() {
    let case = Case::new();
    let layout = case.two_layers(vec![file("a", "1")]);
    let greedy = Fake::serve(|_| Reply::new(401, "").with("WWW-Authenticate", "Basic realm=\"x\""));
    let other = greedy.host();
    let registry = Fake::of_layout(&layout.dir, move |request| {
        request
            .path
            .contains("/blobs/")
            .then(|| Reply::new(307, "").with("Location", format!("http://{other}/x")))
    });
    let login = case.tmp.path().join("config.json");
    let logins = json!({"auths": {
        registry.host(): {"username": "u", "password": "secret"}, greedy.host(): {"username": "u", "password": "secret"},
    }});
    std::fs::write(&login, logins.to_string()).unwrap();
    let access = Access { logins: vec![login], ..quick() };
    assert!(case.pull_with(&registry.host(), &layout.manifest, &access).is_err());
    assert!(!greedy.seen().is_empty() && greedy.seen().iter().all(|r| r.header("authorization").is_none()));
}

#[test]
fn img3_plain_http_is_not_spoken_with_another_machine() {
    let case = Case::new();
    let layout = case.two_layers(vec![file("a", "1")]);
    // The address that this machine would use towards another; nothing is sent.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").expect("an address besides loopback");
    let ip = socket.local_addr().unwrap().ip().to_string();
    let dir = layout.dir.clone();
    let fake = Fake::serve_on(&ip, move |request| from_layout(&dir, request));
    let error = case.pull_refused(&format!("{ip}:{}", fake.port), &layout.manifest);
    assert!(error.contains("does not speak TLS"), "{error}");
    assert!(fake.seen().is_empty(), "it saw no request");
}

#[test]
fn img3_the_mirror_is_asked_first_and_the_registry_for_what_it_lacks() {
    let case = Case::new();
    let layout = case.two_layers(vec![noise("big", 100_000, 10)]);
    let big = layout.layers[1].clone();
    let lacks = big.hex().to_owned();
    let mirror = Fake::of_layout(&layout.dir, move |request| {
        request.path.ends_with(&lacks).then(|| Reply::new(404, ""))
    });
    let registry = Fake::of_layout(&layout.dir, |_| None);
    let login = case.tmp.path().join("config.json");
    std::fs::write(
        &login,
        json!({"auths": {registry.host(): {"username": "u", "password": "secret"}}}).to_string(),
    )
    .unwrap();
    let access = Access { mirror: Some(mirror.host().parse().unwrap()), logins: vec![login], ..quick() };
    let told = Told::default();
    let named = reference(&registry.host(), &layout.manifest);
    let pulled = case.store.pull(&named, &access, &told).unwrap();
    assert_eq!(pulled.image.name, named.name(), "the name is the registry's");
    assert_eq!(
        registry.seen().iter().map(|r| r.path.clone()).collect::<Vec<_>>(),
        [format!("/v2/team/app/blobs/{big}")]
    );
    assert!(mirror.seen().iter().all(|r| r.header("authorization").is_none()));
    let notes = told.notes.lock().unwrap().join("\n");
    assert!(notes.contains(&mirror.host()) && notes.contains(&registry.host()), "{notes}");

    // One that is down or lies costs a note.
    let liar = Fake::serve(|_| Reply::new(200, "{}"));
    for mirror in [liar.host(), format!("127.0.0.1:{}", crate::registry::free_port())] {
        let case = Case::new();
        let access = Access { mirror: Some(mirror.parse().unwrap()), ..quick() };
        let told = Told::default();
        case.store.pull(&reference(&registry.host(), &layout.manifest), &access, &told).unwrap();
        assert!(!told.notes.lock().unwrap().is_empty());
    }
}

#[test]
fn img2_indexes_that_nest_loop_or_lack_this_platform_are_refused() {
    let case = Case::new();
    let layout = case.two_layers(vec![file("a", "1")]);
    let inner = index_over(&layout, OCI);
    let size = blob(&layout.dir, &inner).len();
    let entry = json!({"mediaType": INDEX, "digest": inner.as_str(), "size": size});
    let outer =
        put_json(&layout.dir, INDEX, &json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}));
    let outer = crate::oci_layout::digest_of(&outer);
    let fake = Fake::of_layout(&layout.dir, |_| None);
    let error = case.pull_refused(&fake.host(), &outer);
    assert!(error.contains("index of indexes"), "{error}");
    // No index can hold its own digest; one that names another document by its own is caught by the hash.
    let own = Digest::of(b"an index that would name itself");
    let text = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
        {"mediaType": INDEX, "digest": own.as_str(), "size": 10}]})
    .to_string();
    let cyclic = Fake::serve(move |_| Reply::new(200, text.clone()).with("Content-Type", INDEX));
    let error = case.pull_refused(&cyclic.host(), &own);
    assert!(error.contains("damaged"), "{error}");
    let foreign = put_json(
        &layout.dir,
        INDEX,
        &json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
            {"mediaType": MANIFEST, "digest": own.as_str(), "size": 10, "platform": {"os": "linux", "architecture": "mips64"}},
            {"mediaType": MANIFEST, "digest": own.as_str(), "size": 10, "platform": {"os": "linux", "architecture": "s390x"}},
        ]}),
    );
    let error = case.pull_refused(&fake.host(), &crate::oci_layout::digest_of(&foreign));
    assert!(error.contains("2 images") && error.contains("none of them"), "{error}");
}

#[test]
fn img2_a_document_that_is_two_things_is_refused() {
    let case = Case::new();
    let layout = case.two_layers(vec![file("a", "1")]);
    let mut both: serde_json::Value = serde_json::from_slice(&blob(&layout.dir, &layout.manifest)).unwrap();
    both["manifests"] = json!([]);
    let both = crate::oci_layout::digest_of(&put_json(&layout.dir, MANIFEST, &both));
    let fake = Fake::of_layout(&layout.dir, |_| None);
    assert!(case.pull_refused(&fake.host(), &both).contains("in one"));
    // The same bytes under another name of their kind.
    let dir = layout.dir.clone();
    let renamed = Fake::serve(move |request| {
        let mut reply = from_layout(&dir, request);
        reply.headers.retain(|(name, _)| name != "Content-Type");
        reply.with("Content-Type", INDEX)
    });
    assert!(case.pull_refused(&renamed.host(), &layout.manifest).contains("another media type"));
    let answer = case.store.pull(&reference(&fake.host(), &layout.manifest), &quick(), &Silent);
    answer.unwrap();
}
