//! `sal commands cancel`: cancels a run and waits until it is gone.

use crate::cli::args::OneRun;
use crate::cli::connect::with_client;
use crate::cli::failure::Done;
use crate::cli::output::Output;
use crate::cli::run_text;
use std::process::ExitCode;

/// Arguments of `commands cancel`.
#[derive(Debug, clap::Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    run: OneRun,
}

impl Cancel {
    /// Cancels the run and shows it.
    pub(crate) fn run(self, out: Output) -> Done {
        let OneRun { at, run_id } = self.run;
        with_client(&at.state.path()?, async |mut client| {
            out.either(&client.cancel(&at.session, &run_id).await?, run_text::cancelled)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}
