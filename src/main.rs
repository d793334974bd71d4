//! The `sal` executable: dispatches before any thread or runtime exists.

fn main() {}
