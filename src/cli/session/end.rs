//! `sal session end`: ends a session and keeps its workspace.

use super::text;
use crate::cli::args::OneSession;
use crate::cli::connect::with_client;
use crate::cli::failure::Done;
use crate::cli::output::Output;
use std::process::ExitCode;

/// Arguments of `session end`.
#[derive(Debug, clap::Args)]
pub(crate) struct End {
    #[command(flatten)]
    at: OneSession,
}

impl End {
    /// Ends the session and shows it.
    pub(crate) fn run(self, out: Output) -> Done {
        let OneSession { session, state } = self.at;
        with_client(&state.path()?, async |mut client| {
            out.either(&client.end_session(&session).await?, text::full)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}
