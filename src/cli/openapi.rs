//! `sal openapi`: prints the description of the control interface.

use super::failure::Done;
use super::output::Output;
use std::process::ExitCode;

/// Prints the document that `docs/openapi.json` is a copy of.
pub(crate) fn run(out: Output) -> Done {
    out.document(&crate::api::openapi::document())?;
    Ok(ExitCode::SUCCESS)
}
