//! `sal workspace inspect`: the revision, and how its directory differs from it now.

use crate::api::wire::WorkspaceView;
use crate::cli::args::OneSession;
use crate::cli::connect::with_client;
use crate::cli::failure::Done;
use crate::cli::output::{Output, Text, name};
use std::process::ExitCode;

/// Arguments of `workspace inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    at: OneSession,
}

impl Inspect {
    /// Shows the workspace.
    pub(crate) fn run(self, out: Output) -> Done {
        let OneSession { session, state } = self.at;
        with_client(&state.path()?, async |mut client| {
            let view = client.workspace(&session).await?;
            out.either(&view, text)?;
            if !out.is_json() && view.observed_digest != view.digest {
                let (revision, digest) = (view.revision, &view.observed_digest);
                out.note(&format!(
                    "to adopt exactly this: sal workspace refresh {session} --revision {revision} --digest {digest}"
                ));
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

fn text(view: &WorkspaceView) -> Text {
    Text::default()
        .field("workspace", &view.id)
        .field("revision", view.revision)
        .field("digest", &view.digest)
        .field("observed", &view.observed_digest)
        .field("root", &view.root)
        .lines(&view.changes, |change| format!("{:<10} {}", name(&change.change), change.path))
        .lines(&view.excluded, |left_out| format!("excluded   {}  ({})", left_out.path, left_out.reason))
        .lines(&view.blocked, |blocked| format!("kept       {}  ({})", blocked.kept, blocked.detail))
}
