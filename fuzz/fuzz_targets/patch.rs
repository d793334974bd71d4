//! A request to `salaam_files`, from its bytes to the planned tree.
#![no_main]

#[path = "../targets.rs"]
#[allow(dead_code)]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::patch(data);
});
