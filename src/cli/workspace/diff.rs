//! `sal workspace diff`: the changes since the import. Not built yet.

use crate::cli::args::OneSession;
use crate::cli::failure::{Done, Failure};

/// Arguments of `workspace diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    at: OneSession,
}

impl Diff {
    /// Refuses: the verb is not built.
    pub(crate) fn run(self) -> Done {
        Err(Failure::not_built(&format!("sal workspace diff {}", self.at.session)))
    }
}
