//! An image in a tar archive, read up to its layers.
#![no_main]

#[path = "../image_targets.rs"]
#[allow(dead_code)]
mod targets;

// In memory, where the host has that.
static SCRATCH: std::sync::LazyLock<tempfile::TempDir> = std::sync::LazyLock::new(|| {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::archive(&SCRATCH.path().join("image.tar"), data);
});
