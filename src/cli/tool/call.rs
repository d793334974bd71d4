//! `sal tool call`: what a model does with a session's tools, from a shell.

use crate::cli::args::OneSession;
use crate::cli::connect::with_client;
use crate::cli::failure::{Done, Failure};
use crate::cli::output::Output;
use crate::domain::files::request::MAX_REQUEST;
use crate::domain::files::{NAME, Request};
use crate::domain::ids::CallId;
use crate::domain::refusal::{Code, Refusal};
use clap::builder::PossibleValuesParser;
use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;

/// Arguments of `tool call`.
#[derive(Debug, clap::Args)]
pub(crate) struct Call {
    #[command(flatten)]
    at: OneSession,
    /// The tool; its request is read from standard input as JSON
    #[arg(value_name = "TOOL", value_parser = PossibleValuesParser::new([NAME, "salaam_command"]))]
    tool: String,
    /// Makes a patch idempotent: the same id answers what the patch made the first time
    #[arg(long, value_name = "ID")]
    call_id: Option<CallId>,
}

impl Call {
    /// Calls the tool and prints its answer, which is JSON with or without --json.
    pub(crate) fn run(self, out: Output) -> Done {
        let OneSession { session, state } = self.at;
        let state = state.path()?;
        let request = request()?;
        with_client(&state, async |mut client| {
            out.object(&client.call_tool(&session, &self.tool, self.call_id.as_ref(), request).await?)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

fn request() -> Result<Vec<u8>, Failure> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(Failure::Usage(
            "the request is read from standard input; redirect a file to it".to_owned(),
        ));
    }
    let mut request = Vec::new();
    // One byte more than the most shows that there is more.
    let read = input.lock().take(MAX_REQUEST as u64 + 1).read_to_end(&mut request);
    read.map_err(|error| {
        let message = format!("standard input could not be read: {error}");
        Failure::from(Refusal::new(Code::Invalid, message, "give the request on standard input"))
    })?;
    Request::check_length(request.len())?;
    Ok(request)
}
