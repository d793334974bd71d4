//! The crash matrix: each boundary of a command's life, before and after it, met by SIGKILL, by EIO and
//! ENOSPC once and for good, and by a second kill during the recovery (rows B1–B22 of the table
//! that `target/faults.md` gets).
//!
//! The service is a child process over the native executor, so that all rows run real containers; it
//! leaves out only the HTTP layer and the proof. A cell counts only if its point was struck, and the
//! checker (`checker.rs`) believes the ledger, the kernel and the trace of the points alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cells;
mod checker;
mod child;
#[path = "../fixtures/disk.rs"]
mod disk;
mod disk_rows;
#[path = "../e2e/host.rs"]
#[allow(dead_code)]
mod host;
mod host_rows;
mod import_checker;
mod import_rows;
mod patch_checker;
mod patch_rows;
mod pid_namespace;
mod planted;
mod report;
mod service;
mod starts;
/// The adapter of the real store, as the program wires it.
#[path = "../../src/cli/service/workspaces.rs"]
mod workspaces;
#[path = "../service/world.rs"]
#[allow(dead_code)]
mod world;

use libtest_mimic::{Arguments, Failed, Trial};
use report::Report;
// The adapter names its neighbours from the crate's root.
use salaam::{domain, workspace};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

/// Cells that run at once: most of a cell is waiting.
const WORKERS: usize = 4;

fn main() -> ExitCode {
    salaam::fault::arm();
    let args: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    match args.first().and_then(|arg| arg.to_str()) {
        Some("supervise") => salaam::supervisor::main(&args[1..]),
        Some("serve") => service::main(&args[1]),
        Some("pid-namespace") => pid_namespace::inside(&args[1]),
        _ => matrix(),
    }
}

fn matrix() -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads = Some(args.test_threads.unwrap_or(WORKERS));
    let report = Arc::new(Mutex::new(Report::default()));
    let mut trials = cells::trials(&report);
    trials.extend(host_rows::trials(&report));
    trials.extend(patch_rows::trials(&report));
    trials.extend(import_rows::trials(&report));
    trials.extend(planted::trials());
    let whole = args.filter.is_none();
    let conclusion = libtest_mimic::run(&args, trials);
    let report = report.lock().unwrap_or_else(PoisonError::into_inner);
    if whole {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/target/faults.md");
        std::fs::write(path, report.table()).unwrap();
    }
    println!("{}", report.summary());
    conclusion.exit_code()
}

/// Turns a panic of a case into its failure.
pub fn trial(name: String, case: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(case)).map_err(|e| {
            let text = e.downcast_ref::<String>().cloned();
            let text = text.or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Failed::from(text.unwrap_or_else(|| "panicked".to_owned()))
        })
    })
}
