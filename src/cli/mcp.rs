//! `sal mcp`: serves a session's tools to an MCP client. Not built yet.

use super::args::OneSession;
use super::failure::{Done, Failure};

/// Arguments of `mcp`.
#[derive(Debug, clap::Args)]
pub(crate) struct Mcp {
    #[command(flatten)]
    at: OneSession,
}

impl Mcp {
    /// Refuses: the verb is not built.
    pub(crate) fn run(self) -> Done {
        Err(Failure::not_built(&format!("sal mcp {}", self.at.session)))
    }
}
