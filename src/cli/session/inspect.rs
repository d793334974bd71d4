//! `sal session inspect`: one session.

use super::text;
use crate::cli::args::OneSession;
use crate::cli::connect::with_client;
use crate::cli::failure::Done;
use crate::cli::output::Output;
use std::process::ExitCode;

/// Arguments of `session inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    at: OneSession,
}

impl Inspect {
    /// Shows the session.
    pub(crate) fn run(self, out: Output) -> Done {
        let OneSession { session, state } = self.at;
        with_client(&state.path()?, async |mut client| {
            out.either(&client.session(&session).await?, text::full)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}
