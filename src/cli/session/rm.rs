//! `sal session rm`: deletes a session, its workspace and its runs.

use crate::cli::args::OneSession;
use crate::cli::connect::with_client;
use crate::cli::failure::Done;
use crate::cli::output::{Output, Text};
use std::process::ExitCode;

/// Arguments of `session rm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Rm {
    #[command(flatten)]
    at: OneSession,
}

impl Rm {
    /// Deletes the session.
    pub(crate) fn run(self, out: Output) -> Done {
        let OneSession { session, state } = self.at;
        with_client(&state.path()?, async |mut client| {
            out.either(&client.remove_session(&session).await?, |gone| {
                Text::default().field("removed", &gone.removed)
            })?;
            Ok(ExitCode::SUCCESS)
        })
    }
}
