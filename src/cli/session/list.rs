//! `sal session list`: all sessions, oldest first.

use super::text;
use crate::cli::args::State;
use crate::cli::connect::with_client;
use crate::cli::failure::Done;
use crate::cli::output::{Output, Text};
use std::process::ExitCode;

/// Arguments of `session list`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    #[command(flatten)]
    state: State,
}

impl List {
    /// Lists the sessions.
    pub(crate) fn run(self, out: Output) -> Done {
        with_client(&self.state.path()?, async |mut client| {
            let all = client.sessions().await?;
            out.either(&all, |all| Text::default().lines(&all.sessions, text::brief))?;
            Ok(ExitCode::SUCCESS)
        })
    }
}
