//! `sal commands inspect`: one run and its history.

use crate::cli::args::OneRun;
use crate::cli::connect::with_client;
use crate::cli::failure::Done;
use crate::cli::output::Output;
use crate::cli::run_text;
use std::process::ExitCode;

/// Arguments of `commands inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    run: OneRun,
}

impl Inspect {
    /// Shows the run and its history.
    pub(crate) fn run(self, out: Output) -> Done {
        let OneRun { at, run_id } = self.run;
        with_client(&at.state.path()?, async |mut client| {
            out.either(&client.run(&at.session, &run_id, false).await?, run_text::inspected)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}
