//! WS.1, WS.5, WS.6: what enters, in which form, and that observing it gives the same digest.

use super::excluded::EXCLUDED;
use super::{Bench, id, name};
use proptest::prelude::*;
use salaam::domain::digest::Digest;
use salaam::domain::manifest::Change;
use salaam::workspace::observe::observe;
use salaam::workspace::policy::{Limits, collision_key, printable};
use salaam::workspace::refused::Kind;
use salaam::workspace::store::Store;
use salaam::workspace::{admission, exclusion};
use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::time::Instant;

#[test]
fn ws1_excluded_names_are_listed_with_reasons_and_never_opened() {
    let bench = Bench::new();
    bench.write("src/main.js", "kept");
    for (index, name) in EXCLUDED.iter().enumerate() {
        // A FIFO or a dangling symlink would block or fail if it were opened; a name counts whatever it is.
        match index % 4 {
            0 => drop(bench.write(format!("{name}/inside"), "canary")),
            1 => drop(bench.write(name, "canary")),
            2 => nix::unistd::mkfifo(&bench.at(name), nix::sys::stat::Mode::S_IRWXU).unwrap(),
            _ => symlink("/nonexistent", bench.at(name)).unwrap(),
        }
    }
    bench.write("src/deep/.git", "gitdir: elsewhere");
    std::fs::write(bench.at("src").join(name(b".env.\xff\x1b")), "canary").unwrap();
    let got = bench.import().unwrap();
    let files: Vec<_> = got.manifest.files().iter().map(|f| f.path.as_str()).collect();
    assert_eq!(files, ["src/main.js"]);
    let listed: HashSet<_> = got.excluded.iter().map(|e| e.path.as_str()).collect();
    for name in EXCLUDED.iter().chain(&["src/deep/.git", "src/.env.\\xff\\u{1b}"]) {
        assert!(listed.contains(printable(name.as_bytes()).as_str()), "{name}");
    }
    assert_eq!(listed.len(), EXCLUDED.len() + 2);
    assert!(got.excluded.iter().all(|e| !e.reason.is_empty()));
    assert_eq!(got.manifest.empty_dirs()[0].as_str(), "src/deep", "its only entry stayed out");
}

#[test]
fn ws5_modes_are_those_of_the_copy_and_empty_directories_are_kept() {
    let bench = Bench::new();
    bench.write("run.sh", "#!/bin/sh\n").write("lib/a.js", "");
    std::fs::create_dir_all(bench.at("empty/nested")).unwrap();
    let mode = |path: &str, mode| {
        std::fs::set_permissions(bench.at(path), PermissionsExt::from_mode(mode)).unwrap();
    };
    // As under umask 077, with the execute bit of the owner alone; and a set-uid bit that must not pass.
    mode("run.sh", 0o4700);
    mode("lib/a.js", 0o600);
    mode("lib", 0o700);
    mode("", 0o700);
    let got = bench.import().unwrap();
    let copied = |path: &str| bench.copy().join(path).metadata().unwrap().mode() & 0o7777;
    for (path, want) in
        [("", 0o755), ("run.sh", 0o755), ("lib", 0o755), ("lib/a.js", 0o644), ("empty/nested", 0o755)]
    {
        assert_eq!(copied(path), want, "{path}");
    }
    let empty: Vec<_> = got.manifest.empty_dirs().iter().map(|d| d.as_str()).collect();
    assert_eq!(empty, ["empty/nested"]);
    let bits: Vec<_> = got.manifest.files().iter().map(|f| (f.path.as_str(), f.executable)).collect();
    assert_eq!(bits, [("lib/a.js", false), ("run.sh", true)]);
}

#[test]
fn ws1_a_symlink_to_the_project_itself_is_resolved_once() {
    let bench = Bench::new();
    bench.write("a", "x");
    let link = bench.outside.join("link");
    symlink(&bench.project, &link).unwrap();
    let got = salaam::workspace::import::import(&link, &bench.copy(), &Limits::fixed()).unwrap();
    assert_eq!(got.manifest.files().len(), 1);
}

#[test]
fn ws6_an_observation_names_changes_exclusions_and_refusals() {
    let bench = Bench::new();
    bench.write("a", "1").write("b", "2").write("c", "3").write("d", "4");
    let store = Store::open(&bench.copies).unwrap();
    let created = store.create_workspace(&id(), &bench.project).unwrap();
    let (root, published) = (created.root, created.imported.manifest);
    let look = || observe(&root, store.limits()).unwrap();
    assert!(look().is(&published.digest()));

    std::fs::write(root.join("a"), "edited").unwrap();
    std::fs::set_permissions(root.join("b"), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::remove_file(root.join("c")).unwrap();
    std::fs::remove_file(root.join("d")).unwrap();
    symlink("/etc/passwd", root.join("d")).unwrap();
    symlink("/etc", root.join("new-link")).unwrap();
    std::fs::create_dir(root.join("node_modules")).unwrap();
    std::fs::write(root.join("node_modules/x.js"), "").unwrap();
    std::fs::write(root.join("e"), "new").unwrap();

    let seen = look();
    assert!(!seen.is(&published.digest()));
    let changes: Vec<_> =
        seen.changes_since(&published).into_iter().map(|c| (c.path.to_string(), c.change)).collect();
    let want = [
        ("a", Change::Modified),
        ("b", Change::Modified),
        ("c", Change::Deleted),
        ("d", Change::Modified),
        ("e", Change::Added),
    ];
    assert_eq!(changes, want.map(|(path, change)| (path.to_owned(), change)));
    assert_eq!(seen.excluded[0].path, "node_modules");
    let refused: Vec<_> = seen.refused.listed().iter().map(|r| (r.path.as_str(), &r.kind)).collect();
    assert_eq!(refused, [("d", &Kind::Symlink), ("new-link", &Kind::Symlink)]);
}

#[test]
fn cmd3_a_refused_path_alone_makes_a_root_differ() {
    let bench = Bench::new();
    bench.write("a", "1");
    let store = Store::open(&bench.copies).unwrap();
    let created = store.create_workspace(&id(), &bench.project).unwrap();
    symlink("/etc", created.root.join("link")).unwrap();
    let seen = observe(&created.root, store.limits()).unwrap();
    assert_eq!(seen.manifest.digest(), created.imported.manifest.digest());
    assert!(!seen.is(&created.imported.manifest.digest()));
}

#[test]
fn cmd3_a_missing_root_or_one_that_is_a_symlink_cannot_be_observed() {
    let bench = Bench::new();
    assert!(observe(&bench.at("missing"), &Limits::fixed()).is_err());
    symlink(&bench.outside, bench.at("link")).unwrap();
    let error = observe(&bench.at("link"), &Limits::fixed()).unwrap_err();
    assert!(error.to_string().contains("cannot be opened"));
}

#[test]
fn cmd3_time_of_a_full_workspace() {
    let bench = Bench::new();
    for i in 0..512 {
        bench.write(format!("d{}/f{i}", i % 32), vec![b'a' + (i % 26) as u8; 8_192]);
    }
    let store = Store::open(&bench.copies).unwrap();
    let start = Instant::now();
    let created = store.create_workspace(&id(), &bench.project).unwrap();
    println!("create_workspace, 512 files, 4 MiB: {:?}", start.elapsed());
    let mut times: Vec<_> = (0..10)
        .map(|_| {
            let start = Instant::now();
            let seen = observe(&created.root, store.limits()).unwrap();
            assert!(seen.is(&created.imported.manifest.digest()));
            start.elapsed()
        })
        .collect();
    times.sort();
    println!("observe: median {:?}, slowest {:?}", times[5], times[9]);
}

/// Names as odd as may be admitted: any characters but controls, `/` and a leading dot alone.
fn odd_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9._ -]{1,12}",
        "[^\\p{Cc}/]{1,20}",
        "[\u{e9}\u{301}\u{df}\u{130}\u{131}\u{212b}\u{fb01}\t'\"\\\\$*?\u{1f468}\u{200d}]{1,6}",
    ]
    .prop_filter("the name is refused, not admitted", |n| n != "." && n != ".." && n.len() <= 255)
}

fn tree() -> impl Strategy<Value = BTreeMap<Vec<String>, (Vec<u8>, bool)>> {
    let path = prop::collection::vec(odd_name(), 1..5);
    let content = (prop::collection::vec(any::<u8>(), 0..200), any::<bool>());
    prop::collection::btree_map(path, content, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn ws5_any_admitted_tree_is_copied_exactly_and_observed_with_the_same_digest(tree in tree()) {
        let bench = Bench::new();
        let mut want = BTreeMap::new();
        let mut taken: HashSet<String> = HashSet::new();
        let mut directories: HashSet<String> = HashSet::new();
        for (path, (content, executable)) in tree {
            let text = path.join("/");
            let rel = salaam::domain::relpath::RelPath::parse(&text).unwrap();
            // Keep what has no twin: each prefix is new, or the same directory spelled alike.
            let prefixes: Vec<String> = (1..path.len()).map(|n| path[..n].join("/")).collect();
            let clash = taken.contains(&collision_key(&text))
                || prefixes.iter().any(|p| taken.contains(&collision_key(p)) && !directories.contains(p));
            if clash || exclusion::of_path(&rel).is_some() {
                continue;
            }
            for prefix in prefixes {
                taken.insert(collision_key(&prefix));
                directories.insert(prefix);
            }
            taken.insert(collision_key(&text));
            bench.write(&text, &content);
            let mode = if executable { 0o755 } else { 0o644 };
            std::fs::set_permissions(bench.at(&text), PermissionsExt::from_mode(mode)).unwrap();
            want.insert(text, (content, executable));
        }
        let imported = bench.import().unwrap();
        let got: BTreeMap<_, _> = imported.manifest.files().iter().map(|f| {
            prop_assert_eq!(&Digest::of(&std::fs::read(bench.copy().join(f.path.as_str())).unwrap()), &f.content);
            Ok((f.path.to_string(), (std::fs::read(bench.copy().join(f.path.as_str())).unwrap(), f.executable)))
        }).collect::<Result<_, TestCaseError>>()?;
        prop_assert_eq!(got, want);
        prop_assert!(admission::judge(&imported.manifest, &Limits::fixed()).is_empty());
        let seen = observe(&bench.copy(), &Limits::fixed()).unwrap();
        prop_assert_eq!(&seen.manifest, &imported.manifest);
        prop_assert!(seen.is(&imported.manifest.digest()));
    }
}
