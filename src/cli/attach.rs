//! `sal attach`: shows and continues a conversation. Not built yet.

use super::args::OneSession;
use super::failure::{Done, Failure};

/// Arguments of `attach`.
#[derive(Debug, clap::Args)]
pub(crate) struct Attach {
    #[command(flatten)]
    at: OneSession,
}

impl Attach {
    /// Refuses: the verb is not built.
    pub(crate) fn run(self) -> Done {
        Err(Failure::not_built(&format!("sal attach {}", self.at.session)))
    }
}
