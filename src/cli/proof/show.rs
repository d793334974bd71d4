//! `sal proof show`: prints the startup proof, also while no service runs.

use crate::cli::args::State;
use crate::cli::connect::with_client;
use crate::cli::failure::{Done, Failure};
use crate::cli::output::Output;
use crate::domain::refusal::{Code, Refusal};
use std::path::Path;
use std::process::ExitCode;

/// Arguments of `proof show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    state: State,
}

impl Show {
    /// Prints the report.
    pub(crate) fn run(self, out: Output) -> Done {
        let state = self.state.path()?;
        let asked = with_client(&state, async |mut client| print(out, &client.proof().await?));
        match asked {
            // A proof that failed denies the start: only the file can tell why.
            Err(Failure::Refused(refusal)) if refusal.code == Code::NotRunning => {
                print(out, &stored(&state)?)
            }
            other => other,
        }
    }
}

fn print(out: Output, proof: &serde_json::Value) -> Done {
    if out.is_json() {
        out.object(proof)?;
    } else {
        out.document(&format!("{proof:#}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn stored(state: &Path) -> Result<serde_json::Value, Refusal> {
    let path = state.join("executor-proof.json");
    let fault = |error: &dyn std::fmt::Display| {
        Refusal::new(
            Code::NotFound,
            format!("there is no readable proof at {}: {error}", path.display()),
            format!("start a service with an executor: sal service start --state {}", state.display()),
        )
    };
    let bytes = std::fs::read(&path).map_err(|error| fault(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| fault(&error))
}
