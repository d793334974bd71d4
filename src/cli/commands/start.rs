//! `sal commands start`: starts a command, with --wait also shows its output and exits as it does.

use super::wait::wait;
use crate::api::wire;
use crate::cli::args::OneSession;
use crate::cli::connect::with_client;
use crate::cli::failure::Done;
use crate::cli::output::Output;
use crate::cli::run_text;
use crate::domain::ids::StepKey;
use crate::domain::relpath::{BadPath, RelPath};
use std::process::ExitCode;

/// Arguments of `commands start`.
#[derive(Debug, clap::Args)]
pub(crate) struct Start {
    #[command(flatten)]
    at: OneSession,
    /// The text for the image's /bin/sh -c
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    command: String,
    /// Makes the start idempotent: the same key answers the same run [default: a fresh one]
    #[arg(long, value_name = "KEY")]
    step_key: Option<StepKey>,
    /// Directory of the workspace to run in [default: its root]
    #[arg(long, value_name = "RELATIVE", value_parser = relative)]
    cwd: Option<RelPath>,
    /// Refuse to start on any other workspace revision
    #[arg(long, value_name = "N")]
    revision: Option<u32>,
    /// Stream the output and exit with the command's exit code
    #[arg(long)]
    wait: bool,
}

fn relative(text: &str) -> Result<RelPath, BadPath> {
    RelPath::parse(text)
}

impl Start {
    /// Starts the command.
    pub(crate) fn run(self, out: Output) -> Done {
        let OneSession { session, state } = self.at;
        let state = state.path()?;
        let asked = wire::StartCommand {
            command: self.command,
            step_key: self.step_key.map(Into::into),
            cwd: self.cwd.map(Into::into),
            revision: self.revision,
        };
        with_client(&state, async |mut client| {
            let run = client.start(&session, &asked, false).await?;
            if self.wait {
                return wait(client, &session, run, &state, out).await;
            }
            out.either(&run, run_text::full)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}
