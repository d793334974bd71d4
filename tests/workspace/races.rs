//! A17, A18: trees that change under the walk.

use super::Bench;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use salaam::domain::digest::Digest;
use salaam::workspace::import::{ImportError, import};
use salaam::workspace::observe::observe;
use salaam::workspace::policy::Limits;
use salaam::workspace::refused::Kind;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Rounds of the exchange here; the full count is for a soak run.
const ROUNDS: u64 = 4_000;

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
        let got = body(&rounds);
        stop.store(true, Ordering::Relaxed);
        got
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
    let limits = Limits::fixed();
    while_disturbed(
        || swap(&dir, &link),
        |rounds| {
            let mut imports = 0;
            while rounds.load(Ordering::Relaxed) < ROUNDS || imports < 100 {
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
    while_disturbed(
        || swap(&file, &link),
        |rounds| {
            while rounds.load(Ordering::Relaxed) < ROUNDS {
                let seen = observe(&bench.project, &Limits::fixed()).unwrap();
                assert!(seen.manifest.files().iter().all(|f| f.content == decoy), "{seen:?}");
            }
        },
    );
}

#[test]
fn a17_a_fifo_that_is_swapped_in_never_blocks() {
    let bench = Bench::new();
    bench.write("file", "decoy");
    nix::unistd::mkfifo(&bench.at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (file, pipe) = (bench.at("file"), bench.at("pipe"));
    while_disturbed(
        || swap(&file, &pipe),
        |rounds| {
            while rounds.load(Ordering::Relaxed) < ROUNDS {
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
