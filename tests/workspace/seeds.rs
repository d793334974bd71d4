//! The seeds of the fuzz targets, through the functions that a fuzzer calls (FT.2, A20).

#[path = "../../fuzz/targets.rs"]
mod targets;

use proptest::prelude::*;
use std::path::Path;

/// Runs every seed of a target and names those that were taken.
fn run(name: &str, target: fn(&[u8]) -> bool) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(name);
    let mut taken = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if target(&std::fs::read(&path).unwrap()) {
            taken.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    taken.sort();
    taken
}

#[test]
fn ft2_the_seeds_of_the_patch_target_pass_and_reach_both_answers() {
    assert_eq!(run("patch", targets::patch), ["bit", "crlf", "edit", "edits", "pair", "several"]);
}

#[test]
fn a20_the_seeds_of_the_path_target_pass_and_reach_both_answers() {
    let taken = run("path", targets::path);
    assert_eq!(taken, ["accents", "bidi", "empty", "excluded", "hidden", "plain", "root", "tab"]);
}

#[test]
fn ws7_the_seeds_of_the_diff_target_pass_and_reach_both_answers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/diff");
    let all = std::fs::read_dir(folder).unwrap().map(|seed| seed.unwrap().file_name().into_string().unwrap());
    let not: Vec<String> = ["binary", "latin1", "mode", "same"].map(str::to_owned).to_vec();
    let mut want: Vec<String> = all.filter(|name| !not.contains(name)).collect();
    want.sort();
    assert!(want.len() > 10);
    assert_eq!(run("diff", targets::diff), want);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A small part of what a fuzzer does: bytes of a seed are replaced, dropped and doubled.
    #[test]
    fn ft2_mutated_seeds_break_nothing(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..6),
    ) {
        for (name, target) in
            [("patch", targets::patch as fn(&[u8]) -> bool), ("path", targets::path), ("diff", targets::diff)]
        {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(name);
            let mut seeds: Vec<_> = std::fs::read_dir(folder).unwrap().map(|seed| seed.unwrap().path()).collect();
            seeds.sort();
            let mut data = std::fs::read(which.get(&seeds)).unwrap();
            for (at, byte, what) in &changes {
                if data.is_empty() {
                    data.push(*byte);
                }
                let at = at.index(data.len());
                match what {
                    0 => data[at] = *byte,
                    1 => drop(data.remove(at)),
                    _ => data.insert(at, data[at]),
                }
            }
            target(&data);
        }
    }
}
