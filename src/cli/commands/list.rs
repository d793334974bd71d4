//! `sal commands list`: the runs of a session, oldest first.

use crate::cli::args::OneSession;
use crate::cli::connect::with_client;
use crate::cli::failure::Done;
use crate::cli::output::{Output, Text};
use crate::cli::run_text;
use std::process::ExitCode;

/// Arguments of `commands list`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    #[command(flatten)]
    at: OneSession,
}

impl List {
    /// Lists the runs.
    pub(crate) fn run(self, out: Output) -> Done {
        let OneSession { session, state } = self.at;
        with_client(&state.path()?, async |mut client| {
            let all = client.runs(&session).await?;
            out.either(&all, |all| Text::default().lines(&all.runs, run_text::brief))?;
            Ok(ExitCode::SUCCESS)
        })
    }
}
