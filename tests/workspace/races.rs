//! A17, A18 (WS.4): trees that change under the walk, and under a publication.

use super::{Bench, id};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use salaam::domain::application::{Intent, Root};
use salaam::domain::change::{Base, TreeChange};
use salaam::domain::digest::Digest;
use salaam::domain::ids::{ApplicationId, SessionId};
use salaam::domain::manifest::{FileEntry, TreeManifest};
use salaam::domain::relpath::RelPath;
use salaam::workspace::import::{ImportError, import};
use salaam::workspace::observe::observe;
use salaam::workspace::policy::Limits;
use salaam::workspace::refused::Kind;
use salaam::workspace::store::Store;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Rounds of each exchange; `SAL_ROUNDS=400000` for the long run.
fn rounds() -> u64 {
    std::env::var("SAL_ROUNDS").map_or(20_000, |text| text.parse().unwrap())
}

/// Sets its flag when it is dropped, by a panic too: else a failed test would wait for its disturber.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `disturb` again and again while `body` runs.
fn while_disturbed<T>(disturb: impl Fn() + Send + Sync, body: impl FnOnce(&AtomicU64) -> T) -> T {
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                disturb();
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _stops = Stops(&stop);
        body(&rounds)
    })
}

fn swap(a: &std::path::Path, b: &std::path::Path) {
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
}

#[test]
fn a17_exchanging_a_directory_and_a_symlink_never_escapes() {
    let bench = Bench::new();
    bench.write("dir/secret", "decoy").write("dir/sub/secret", "decoy");
    std::os::unix::fs::symlink(&bench.outside, bench.at("link")).unwrap();
    let decoy = Digest::of(b"decoy");
    let (dir, link) = (bench.at("dir"), bench.at("link"));
    let (limits, wanted) = (Limits::fixed(), rounds());
    while_disturbed(
        || swap(&dir, &link),
        |rounds| {
            let mut imports = 0;
            while rounds.load(Ordering::Relaxed) < wanted || imports < 100 {
                imports += 1;
                // A symlink is always there, so an import never succeeds; an observation goes on and
                // shows what it read.
                let refused = import(&bench.project, &bench.copy(), &limits);
                assert!(matches!(refused, Err(ImportError::Refused { .. })), "{refused:?}");
                assert!(!bench.copy().exists());
                let seen = observe(&bench.project, &limits).unwrap();
                assert!(seen.manifest.files().iter().all(|f| f.content == decoy), "{seen:?}");
                assert!(!seen.refused.is_empty());
            }
        },
    );
}

#[test]
fn a17_exchanging_a_file_and_a_symlink_never_escapes() {
    let bench = Bench::new();
    bench.write("file", "decoy");
    std::os::unix::fs::symlink(bench.outside.join("secret"), bench.at("link")).unwrap();
    let decoy = Digest::of(b"decoy");
    let (file, link) = (bench.at("file"), bench.at("link"));
    let wanted = rounds();
    while_disturbed(
        || swap(&file, &link),
        |rounds| {
            while rounds.load(Ordering::Relaxed) < wanted {
                let seen = observe(&bench.project, &Limits::fixed()).unwrap();
                assert!(seen.manifest.files().iter().all(|f| f.content == decoy), "{seen:?}");
            }
        },
    );
}

/// The base of a publication is the one place that editors write into: a directory of it, and a file, turn
/// into symlinks and back while the next revision is written, synced and renamed.
#[test]
fn a17_exchanges_under_a_publication_never_escape() {
    let bench = Bench::new();
    bench.write("dir/secret", "decoy").write("dir/sub/secret", "decoy").write("file", "decoy");
    let store = Store::open(&bench.copies).unwrap();
    let ws = id();
    let made = store.create_workspace(&ws, &bench.project).unwrap();
    std::os::unix::fs::symlink(&bench.outside, bench.outside.join("dir-link")).unwrap();
    std::os::unix::fs::symlink(bench.outside.join("secret"), bench.outside.join("file-link")).unwrap();
    std::fs::create_dir(bench.outside.join("sub")).unwrap();
    std::fs::write(bench.outside.join("sub/secret"), "canary").unwrap();
    let (dir, file) = (made.root.join("dir"), made.root.join("file"));
    let (dir_link, file_link) = (bench.outside.join("dir-link"), bench.outside.join("file-link"));
    let decoy = Digest::of(b"decoy");
    let base = Base { revision: 1, digest: made.imported.manifest.digest() };
    let path = |text| RelPath::parse(text).unwrap();
    let mut files = made.imported.manifest.files().to_vec();
    files.push(FileEntry { path: path("dir/new"), executable: false, length: 5, content: decoy.clone() });
    let target = TreeManifest::new(files, vec![]);
    let written = vec![(path("dir/new"), b"decoy".to_vec())];
    let change = TreeChange { base: base.clone(), target: target.clone(), written };
    let root = |revision, digest: &Digest, root: &Path| Root {
        revision,
        digest: digest.clone(),
        root: root.display().to_string(),
    };
    let (wanted, second) = (rounds(), store.root(&ws, 2));
    let outside = super::snapshot(&bench.outside.join("sub"));
    let (mut published, mut refused) = (0, 0);
    let disturb = || {
        swap(&dir, &dir_link);
        swap(&file, &file_link);
        std::thread::yield_now();
        swap(&file, &file_link);
        swap(&dir, &dir_link);
    };
    while_disturbed(disturb, |rounds| {
        while rounds.load(Ordering::Relaxed) * 4 < wanted || published == 0 || refused == 0 {
            let intent = Intent {
                id: ApplicationId::fresh(),
                session_id: SessionId::fresh(),
                workspace_id: ws.clone(),
                call: None,
                base: root(1, &base.digest, &made.root),
                source: base.digest.clone(),
                target: root(2, &target.digest(), &second),
            };
            match store.write_aside(&intent, &change) {
                Ok(()) => {
                    store.sync_aside(&intent).unwrap();
                    store.publish_aside(&intent).unwrap();
                    // No symlink, no byte of elsewhere: exactly the target.
                    let seen = observe(&second, &Limits::fixed()).unwrap();
                    assert!(seen.is(&target.digest()), "{seen:?}");
                    std::fs::remove_dir_all(&second).unwrap();
                    published += 1;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("dir/") || text.contains("file"), "{text}");
                    store.discard_aside(&intent).unwrap();
                    refused += 1;
                }
            }
        }
    });
    println!("{published} published, {refused} refused");
    assert_eq!(super::snapshot(&bench.outside.join("sub")), outside, "something outside was written");
}

#[test]
fn a17_a_fifo_that_is_swapped_in_never_blocks() {
    let bench = Bench::new();
    bench.write("file", "decoy");
    nix::unistd::mkfifo(&bench.at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (file, pipe) = (bench.at("file"), bench.at("pipe"));
    let wanted = rounds();
    while_disturbed(
        || swap(&file, &pipe),
        |rounds| {
            while rounds.load(Ordering::Relaxed) < wanted {
                assert!(!observe(&bench.project, &Limits::fixed()).unwrap().refused.is_empty());
            }
        },
    );
}

#[test]
fn a18_a_file_that_grows_shrinks_or_changes_is_refused_or_consistent() {
    let bench = Bench::new();
    bench.write("grows", vec![b'a'; 100_000]);
    let path = bench.at("grows");
    let (mut refusals, mut copies) = (0, 0);
    let disturb = || {
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        if file.metadata().unwrap().len() > 200_000 {
            file.set_len(100_000).unwrap();
        }
        file.write_all(&[b'b'; 100]).unwrap();
    };
    while_disturbed(disturb, |rounds| {
        while rounds.load(Ordering::Relaxed) < 2_000 || refusals == 0 {
            match import(&bench.project, &bench.copy(), &Limits::fixed()) {
                Ok(imported) => {
                    copies += 1;
                    let copy = std::fs::read(bench.copy().join("grows")).unwrap();
                    let entry = &imported.manifest.files()[0];
                    assert_eq!((entry.length, &entry.content), (copy.len() as u64, &Digest::of(&copy)));
                    std::fs::remove_dir_all(bench.copy()).unwrap();
                }
                Err(ImportError::Refused { refused, .. }) => {
                    refusals += 1;
                    assert_eq!(refused.listed()[0].kind, Kind::Changed);
                    assert_eq!(refused.listed()[0].path, "grows");
                    assert!(!bench.copy().exists());
                }
                Err(other) => panic!("{other}"),
            }
        }
    });
    println!("{refusals} refused, {copies} consistent");
}

#[test]
fn a18_files_that_come_and_go_are_refused_or_absent() {
    let bench = Bench::new();
    bench.write("stays", "x");
    let path = bench.at("flickers");
    let disturb = || {
        std::fs::write(&path, "y").unwrap();
        std::fs::remove_file(&path).unwrap();
    };
    while_disturbed(disturb, |rounds| {
        while rounds.load(Ordering::Relaxed) < 2_000 {
            match import(&bench.project, &bench.copy(), &Limits::fixed()) {
                Ok(_) => std::fs::remove_dir_all(bench.copy()).unwrap(),
                Err(ImportError::Refused { refused, .. }) => {
                    assert_eq!(refused.listed()[0].path, "flickers");
                    assert!(!bench.copy().exists());
                }
                Err(other) => panic!("{other}"),
            }
        }
    });
}
