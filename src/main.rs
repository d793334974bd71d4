//! The `sal` executable: dispatches before any thread or runtime exists.

use std::process::ExitCode;

fn main() -> ExitCode {
    // WIRING: `supervise DIR` and `probe …` are dispatched here, before the command line is parsed.
    salaam::cli::main()
}
