//! `sal workspace refresh`: adopts reviewed edits of the current root as a new revision.

use crate::api::wire;
use crate::cli::args::OneSession;
use crate::cli::connect::with_client;
use crate::cli::failure::Done;
use crate::cli::output::{Output, Text};
use crate::domain::digest::Digest;
use std::process::ExitCode;

/// Arguments of `workspace refresh`.
#[derive(Debug, clap::Args)]
pub(crate) struct Refresh {
    #[command(flatten)]
    at: OneSession,
    /// The current revision
    #[arg(long, value_name = "N")]
    revision: u32,
    /// The observed digest that was reviewed
    #[arg(long, value_name = "DIGEST", value_parser = Digest::parse)]
    digest: Digest,
}

impl Refresh {
    /// Adopts the edits and shows the workspace.
    pub(crate) fn run(self, out: Output) -> Done {
        let Self { at: OneSession { session, state }, revision, digest } = self;
        with_client(&state.path()?, async |mut client| {
            let asked = wire::Refresh { revision, digest: digest.to_string() };
            out.either(&client.refresh(&session, &asked).await?, |workspace| text(workspace, revision))?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

fn text(workspace: &wire::Workspace, before: u32) -> Text {
    let text = if workspace.revision == before {
        Text::default().line("nothing to adopt: the directory holds what the revision says")
    } else {
        Text::default()
    };
    text.field("workspace", &workspace.id)
        .field("revision", workspace.revision)
        .field("digest", &workspace.digest)
        .field("root", &workspace.root)
}
