//! The `sal` executable: dispatches before any thread or runtime exists.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Neither entry may pay for the command line, and neither is part of it.
    let args: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    match args.first().and_then(|a| a.to_str()) {
        Some("supervise") => salaam::supervisor::main(&args[1..]),
        Some("probe") => salaam::proof::probe::main(&args[1..]),
        _ => salaam::cli::main(),
    }
}
