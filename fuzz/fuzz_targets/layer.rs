//! A layer's archive, unpacked into a store. Run it without privileges.
#![no_main]

#[path = "../image_targets.rs"]
#[allow(dead_code)]
mod targets;

// In memory, where the host has that.
static SCRATCH: std::sync::LazyLock<tempfile::TempDir> = std::sync::LazyLock::new(|| {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::layer(SCRATCH.path(), data);
});
