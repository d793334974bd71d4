//! Parses the command line, runs the verb, and turns what happened into an exit code.

use super::failure::{Failure, OWN_FAILURE, PIPE_CLOSED, USAGE};
use super::output::Output;
use super::verbs::Sal;
use crate::domain::refusal::{Code, Refusal};
use clap::Parser as _;
use std::io::ErrorKind;
use std::process::ExitCode;

/// Runs `sal` with the arguments and the environment of the process.
pub fn main() -> ExitCode {
    let sal = match Sal::try_parse() {
        Ok(sal) => sal,
        Err(error) => return unparsed(&error),
    };
    let out = Output::new(sal.json);
    match sal.run(out) {
        Ok(code) => code,
        // The reader has seen enough: nothing to tell it, nor anybody else.
        Err(Failure::Write(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::from(PIPE_CLOSED),
        Err(failure) => {
            let (refusal, code) = failure.explain();
            out.refusal(&refusal);
            ExitCode::from(code)
        }
    }
}

/// Answers `--help`, `--version` and usage errors.
fn unparsed(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    // The flag itself was not parsed, but whoever gave it reads JSON.
    let json = std::env::args_os().any(|arg| arg == "--json");
    let out = Output::new(json);
    if !error.use_stderr() {
        return match out.document(&text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::from(PIPE_CLOSED),
            Err(_) => ExitCode::from(OWN_FAILURE),
        };
    }
    if json {
        let first = text.lines().next().unwrap_or_default();
        let message = first.strip_prefix("error: ").unwrap_or(first);
        out.refusal(&Refusal::new(Code::Invalid, message, "see --help"));
    } else {
        match text.strip_prefix("error: ") {
            Some(said) => out.note(said.trim_end()),
            None => out.note(&format!("a verb is missing\n\n{}", text.trim_end())),
        }
    }
    ExitCode::from(USAGE)
}
