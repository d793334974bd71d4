//! `sal session create`: makes a session, with --coding from a private copy of the project.

use super::text;
use crate::api::wire;
use crate::cli::args::{State, utf8};
use crate::cli::connect::with_client;
use crate::cli::failure::{Done, Failure};
use crate::cli::output::Output;
use crate::cli::places::absolute;
use crate::cli::progress::shown;
use crate::domain::ids::SessionId;
use crate::domain::session::SessionKind;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `session create`.
#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    #[command(flatten)]
    state: State,
    /// The project directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    cwd: PathBuf,
    /// Import a private copy of the project, for file tools and commands
    #[arg(long)]
    coding: bool,
    /// Make a child of this session
    #[arg(long, value_name = "SESSION_ID")]
    parent: Option<SessionId>,
    /// Make the child read-only
    #[arg(long, requires = "parent")]
    read_only: bool,
}

impl Create {
    /// Makes the session and shows it.
    pub(crate) fn run(self, out: Output) -> Done {
        if self.parent.is_some() {
            return Err(Failure::not_built("session create --parent"));
        }
        let kind = if self.coding { SessionKind::Coding } else { SessionKind::Ordinary };
        let asked = wire::CreateSession { kind, cwd: utf8(absolute(&self.cwd)?)? };
        with_client(&self.state.path()?, async |mut client| {
            let made = shown("importing", client.create_session(&asked)).await?;
            out.either(&made, text::full)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}
