//! `sal workspace refresh`: adopts reviewed edits of the current root. Not built yet.

use crate::cli::args::OneSession;
use crate::cli::failure::{Done, Failure};
use crate::domain::digest::Digest;

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
    /// Refuses: the verb is not built.
    pub(crate) fn run(self) -> Done {
        let Self { at, revision, digest } = self;
        let asked = format!("sal workspace refresh {} to {digest} after revision {revision}", at.session);
        Err(Failure::not_built(&asked))
    }
}
