//! The documents of an image as a registry gives them: index, manifest, configuration.
#![no_main]

#[path = "../image_targets.rs"]
#[allow(dead_code)]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::documents(data);
});
