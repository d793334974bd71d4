//! The seeds of the fuzz targets, through the functions that a fuzzer calls (IMG.2, IMG.3).

#[path = "../../fuzz/image_targets.rs"]
mod targets;

use std::path::Path;

/// Runs every seed of a target and names those that were taken.
fn run(name: &str, target: impl Fn(&[u8]) -> bool) -> Vec<String> {
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
fn img2_the_seeds_of_the_documents_target_pass_and_reach_both_answers() {
    assert_eq!(run("documents", targets::documents), ["docker", "index", "manifest", "zstd"]);
}

#[test]
fn img3_the_seeds_of_the_archive_target_pass_and_reach_both_answers() {
    let dir = tempfile::tempdir().unwrap();
    let taken = run("archive", |data| targets::archive(&dir.path().join("image.tar"), data));
    assert_eq!(taken, ["docker", "layout", "linked"]);
}

#[test]
fn img2_the_seeds_of_the_layer_target_pass_and_reach_both_answers() {
    let dir = tempfile::tempdir().unwrap();
    let taken = run("layer", |data| targets::layer(dir.path(), data));
    assert_eq!(taken, ["gzip", "opaque", "pax", "plain", "through", "unreadable"]);
}
