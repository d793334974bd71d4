//! `sal commands reconcile`: settles a run whose backend or cleanup is uncertain.

use crate::cli::args::OneRun;
use crate::cli::connect::with_client;
use crate::cli::failure::Done;
use crate::cli::output::Output;
use crate::cli::run_text;
use std::process::ExitCode;

/// Arguments of `commands reconcile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Reconcile {
    #[command(flatten)]
    run: OneRun,
}

impl Reconcile {
    /// Settles the run and shows it.
    pub(crate) fn run(self, out: Output) -> Done {
        let OneRun { at, run_id } = self.run;
        with_client(&at.state.path()?, async |mut client| {
            out.either(&client.reconcile(&at.session, &run_id).await?, run_text::full)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}
