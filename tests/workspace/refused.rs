//! WS.2, A16, A19: each kind of path that may not enter, named with its path and what to do.

use super::{Bench, is_root, name};
use nix::sys::stat::{Mode, SFlag, mknod};
use salaam::domain::refusal::{Code, Refusal};
use salaam::workspace::refused::{Kind, Special};
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

#[test]
fn i1_a_symlink_is_refused_with_its_path_and_what_to_do() {
    let bench = Bench::new();
    bench.write("AGENTS.md", "rules");
    symlink("AGENTS.md", bench.at("CLAUDE.md")).unwrap();
    let error = bench.import().unwrap_err();
    let text = error.to_string();
    for part in ["'CLAUDE.md' is a symlink", "replace it with a copy"] {
        assert!(text.contains(part), "{text}");
    }
    let refusal = Refusal::from(&error);
    assert_eq!(refusal.code, Code::ImportRefused);
    assert!(!refusal.hint.is_empty());
}

#[test]
fn a16_symlinks_out_of_the_project_are_refused_and_never_followed() {
    let bench = Bench::new();
    symlink(&bench.outside, bench.at("dir")).unwrap();
    symlink(bench.outside.join("secret"), bench.at("file")).unwrap();
    symlink("/proc/self/root", bench.at("magic")).unwrap();
    symlink("nowhere", bench.at("dangling")).unwrap();
    let refused = bench.refused();
    let kinds: Vec<_> = refused.listed().iter().map(|r| (r.path.as_str(), &r.kind)).collect();
    let want = ["dangling", "dir", "file", "magic"].map(|path| (path, &Kind::Symlink));
    assert_eq!(kinds, want);
}

#[test]
fn a16_a_hardlink_is_refused_with_its_link_count() {
    let bench = Bench::new();
    std::fs::hard_link(bench.outside.join("secret"), bench.at("innocent")).unwrap();
    assert_eq!(bench.refusal(), ("innocent".to_owned(), Kind::Hardlink { links: 2 }));
}

#[test]
fn a16_a_fifo_never_blocks() {
    let bench = Bench::new();
    nix::unistd::mkfifo(&bench.at("pipe"), Mode::S_IRWXU).unwrap();
    let start = Instant::now();
    assert_eq!(bench.refusal(), ("pipe".to_owned(), Kind::Special(Special::Fifo)));
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn a16_sockets_and_devices_are_refused_by_name() {
    let bench = Bench::new();
    let _socket = std::os::unix::net::UnixListener::bind(bench.at("sock")).unwrap();
    assert_eq!(bench.refusal(), ("sock".to_owned(), Kind::Special(Special::Socket)));
    if is_root() {
        let zero = nix::sys::stat::makedev(1, 5);
        mknod(&bench.at("char"), SFlag::S_IFCHR, Mode::S_IRWXU, zero).unwrap();
        mknod(&bench.at("block"), SFlag::S_IFBLK, Mode::S_IRWXU, nix::sys::stat::makedev(7, 0)).unwrap();
        let text = bench.import().unwrap_err().to_string();
        for part in ["'block' is a block device", "'char' is a character device", "'sock' is a socket"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn a19_names_that_are_not_utf8_or_hold_controls_are_refused_and_shown_escaped() {
    for (raw, shown, kind) in [
        (&b"bad\xffname"[..], "d/bad\\xffname", Kind::NotUtf8),
        (b"new\nline", "d/new\\nline", Kind::ControlCharacter),
        (b"esc\x1b[31m", "d/esc\\u{1b}[31m", Kind::ControlCharacter),
        ("c1\u{9b}".as_bytes(), "d/c1\\u{9b}", Kind::ControlCharacter),
        (b"del\x7f", "d/del\\u{7f}", Kind::ControlCharacter),
    ] {
        let bench = Bench::new();
        std::fs::create_dir(bench.at("d")).unwrap();
        std::fs::write(bench.at("d").join(name(raw)), "").unwrap();
        assert_eq!(bench.refusal(), (shown.to_owned(), kind));
        let text = bench.import().unwrap_err().to_string();
        assert!(text.chars().all(|c| !c.is_control() || c == '\n'), "{text:?}");
    }
    let bench = Bench::new();
    bench.write("tab\tname", "ok");
    bench.import().unwrap();
}

#[test]
fn a19_twins_are_refused_and_both_are_named() {
    for (first, second) in
        [("A", "a"), ("e\u{301}.js", "\u{e9}.js"), ("stra\u{df}e", "strasse"), ("M\u{dc}LL", "m\u{fc}ll")]
    {
        let bench = Bench::new();
        bench.write(first, "1").write(second, "2");
        let (path, kind) = bench.refusal();
        let Kind::Collision { twin } = kind else { panic!("{kind:?}") };
        let mut got = [path, twin];
        got.sort();
        let mut want = [first, second];
        want.sort_unstable();
        assert_eq!(got, want);
    }
    let bench = Bench::new();
    bench.write("\u{e9}.js", "1").write("e\u{301}.js", "2");
    let text = bench.import().unwrap_err().to_string();
    assert!(text.contains("\\u{e9}.js") && text.contains("e\\u{301}.js"), "{text}");
}

#[test]
fn a19_twin_directories_collide_but_equal_names_in_two_directories_do_not() {
    let bench = Bench::new();
    bench.write("Src/a.js", "").write("src/b.js", "");
    assert!(matches!(bench.refusal(), (_, Kind::Collision { .. })));
    let bench = Bench::new();
    bench.write("one/A", "").write("two/a", "");
    bench.import().unwrap();
}

#[test]
fn ws2_every_offender_is_listed_up_to_a_bound() {
    let bench = Bench::new();
    symlink("x", bench.at("a-link")).unwrap();
    bench.write("b/A", "").write("b/a", "");
    nix::unistd::mkfifo(&bench.at("c-pipe"), Mode::S_IRWXU).unwrap();
    bench.write("d-big", vec![0u8; 262_145]);
    let refused = bench.refused();
    let paths: Vec<_> = refused.listed().iter().map(|r| r.path.as_str()).collect();
    assert_eq!(paths, ["a-link", "b/a", "c-pipe", "d-big"]);
    for i in 0..30 {
        symlink("x", bench.at(format!("l{i:02}"))).unwrap();
    }
    let refused = bench.refused();
    assert_eq!((refused.listed().len(), refused.total()), (20, 34));
    assert!(refused.to_string().contains("14 more are not listed"));
}

#[test]
fn ws2_unreadable_files_and_directories_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    if is_root() {
        return; // Root reads everything; races.rs has the files that fail for root.
    }
    let bench = Bench::new();
    bench.write("file", "").write("dir/x", "");
    std::fs::set_permissions(bench.at("file"), PermissionsExt::from_mode(0o000)).unwrap();
    std::fs::set_permissions(bench.at("dir"), PermissionsExt::from_mode(0o000)).unwrap();
    let got = salaam::workspace::import::import(
        &bench.project,
        &bench.copy(),
        &salaam::workspace::policy::Limits::fixed(),
    );
    std::fs::set_permissions(bench.at("dir"), PermissionsExt::from_mode(0o700)).unwrap();
    let text = got.unwrap_err().to_string();
    assert!(text.contains("'dir' is unreadable") && text.contains("'file' is unreadable"), "{text}");
}

#[test]
fn ws2_a_project_that_is_missing_or_a_file_is_refused() {
    let bench = Bench::new();
    for path in ["missing", "file"] {
        bench.write("file", "");
        let limits = salaam::workspace::policy::Limits::fixed();
        let error = salaam::workspace::import::import(&bench.at(path), &bench.copy(), &limits).unwrap_err();
        assert!(error.to_string().contains("cannot be opened"), "{error}");
        assert!(!bench.copy().exists());
    }
}
