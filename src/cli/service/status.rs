//! `sal service status`: whether the service is ready, and why not.

use super::text;
use crate::cli::args::State;
use crate::cli::connect::with_client;
use crate::cli::failure::Done;
use crate::cli::output::Output;
use std::process::ExitCode;

/// Arguments of `service status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    #[command(flatten)]
    state: State,
}

impl Status {
    /// Shows the state.
    pub(crate) fn run(self, out: Output) -> Done {
        let state = self.state.path()?;
        with_client(&state, async |mut client| {
            let mut client_status = client.status().await?;
            // The service may number its processes in a namespace of its own.
            if let Some(pid) = client.service_pid().and_then(|pid| u32::try_from(pid).ok()) {
                client_status.pid = pid;
            }
            out.either(&client_status, |status| text::full(status, &state))?;
            Ok(ExitCode::SUCCESS)
        })
    }
}
