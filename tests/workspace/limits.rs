//! WS.3: at each limit a tree enters, one past it the error names the limit, the figure and the path.

use super::Bench;
use salaam::domain::refusal::{Code, Refusal};
use salaam::workspace::import::{ImportError, import};
use salaam::workspace::policy::Limits;

fn message(bench: &Bench, parts: &[&str]) {
    let error = bench.import().unwrap_err();
    assert_eq!(Refusal::from(&error).code, Code::LimitExceeded);
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn ws3_512_files_enter_and_513_do_not() {
    let bench = Bench::new();
    for i in 0..512 {
        bench.write(format!("f{i:03}"), "");
    }
    assert_eq!(bench.import().unwrap().manifest.files().len(), 512);
    std::fs::remove_dir_all(bench.copy()).unwrap();
    for i in 512..700 {
        bench.write(format!("f{i}"), "");
    }
    message(&bench, &["the tree holds 700 files", "the limit is 512", "'f512'"]);
}

#[test]
fn ws3_four_mebibytes_enter_and_one_byte_more_does_not() {
    let bench = Bench::new();
    for i in 0..16 {
        bench.write(format!("f{i:02}"), vec![b'x'; 262_144]);
    }
    assert_eq!(bench.import().unwrap().manifest.total_bytes(), 4 << 20);
    std::fs::remove_dir_all(bench.copy()).unwrap();
    bench.write("g", "x");
    message(&bench, &["the tree holds 4194305 bytes", "the limit is 4194304", "'g'"]);
}

#[test]
fn ws3_a_file_of_262145_bytes_does_not_enter() {
    let bench = Bench::new();
    bench.write("src/big.bin", vec![0; 262_145]);
    message(&bench, &["'src/big.bin' has 262145 bytes", "the limit for one file is 262144"]);
}

#[test]
fn ws3_16_components_enter_and_17_do_not() {
    let bench = Bench::new();
    let deep = ["d"; 15].join("/");
    bench.write(format!("{deep}/f"), "");
    bench.import().unwrap();
    std::fs::remove_dir_all(bench.copy()).unwrap();
    bench.write(format!("{deep}/d/f"), "");
    message(&bench, &["17 path components", "the limit is 16", &format!("'{deep}/d/f'")]);
}

#[test]
fn ws3_2048_entries_are_walked_and_no_more() {
    let bench = Bench::new();
    for i in 0..2_048 {
        std::fs::create_dir(bench.at(format!("d{i}"))).unwrap();
    }
    bench.import().unwrap();
    std::fs::remove_dir_all(bench.copy()).unwrap();
    std::fs::create_dir(bench.at("one-more")).unwrap();
    message(&bench, &["at least 2049 entries", "the limit is 2048"]);
}

#[test]
fn a19_names_of_255_bytes_and_paths_past_4096_bytes() {
    let bench = Bench::new();
    let long = "\u{e9}".repeat(127) + "x";
    assert_eq!(long.len(), 255);
    bench.write(&long, "long");
    assert_eq!(bench.import().unwrap().manifest.files()[0].path.as_str(), long);
    // Sixteen such names are longer than a path argument may be; only descriptors reach the file.
    let bench = Bench::new();
    let mut dir = nix::dir::Dir::open(&bench.project, nix::fcntl::OFlag::O_RDONLY, mode()).unwrap();
    for _ in 0..15 {
        use std::os::fd::AsRawFd as _;
        nix::sys::stat::mkdirat(Some(dir.as_raw_fd()), long.as_str(), mode()).unwrap();
        let flags = nix::fcntl::OFlag::O_RDONLY;
        dir = nix::dir::Dir::openat(Some(dir.as_raw_fd()), long.as_str(), flags, mode()).unwrap();
    }
    let got = import(&bench.project, &bench.copy(), &Limits::fixed()).unwrap();
    assert_eq!(got.manifest.empty_dirs()[0].as_str().len(), 15 * 256 - 1);
}

fn mode() -> nix::sys::stat::Mode {
    nix::sys::stat::Mode::S_IRWXU
}

#[test]
fn ws3_free_space_is_checked_first() {
    let bench = Bench::new();
    bench.write("a", "x");
    let limits = Limits { total_bytes: u64::MAX, ..Limits::fixed() };
    let error = import(&bench.project, &bench.copy(), &limits).unwrap_err();
    assert!(matches!(error, ImportError::NoSpace { .. }), "{error}");
    assert!(error.to_string().contains("bytes"));
    assert!(!bench.copy().exists());
}
