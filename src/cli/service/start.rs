//! `sal service start`: starts the service in the background and waits until it is ready, or runs it
//! in the foreground.

use super::options::{ExecutorKind, Options, Provider};
use super::{detach, foreground};
use crate::cli::args::{ImageStore, State};
use crate::cli::failure::{Done, Failure};
use crate::cli::output::Output;
use crate::cli::places::absolute;
use std::path::PathBuf;

/// Arguments of `service start`.
#[derive(Debug, clap::Args)]
pub(crate) struct Start {
    #[command(flatten)]
    state: State,
    /// Who answers in a conversation
    #[arg(long, value_enum, default_value_t = Provider::None, env = "SAL_PROVIDER", hide_env_values = true)]
    provider: Provider,
    /// Private directory for workspaces, outside every project; enables coding sessions
    #[arg(long, value_name = "DIR", env = "SAL_CODING_ROOT", hide_env_values = true)]
    coding_root: Option<PathBuf>,
    /// Local socket of a Docker engine; selects the docker executor
    #[arg(long, value_name = "SOCK", env = "SAL_CODING_SOCKET", hide_env_values = true)]
    coding_socket: Option<PathBuf>,
    /// Who runs commands [default: docker with --coding-socket, else oci with --coding-root, else none]
    #[arg(long, value_enum, value_name = "EXECUTOR", env = "SAL_CODING_EXECUTOR", hide_env_values = true)]
    coding_executor: Option<ExecutorKind>,
    /// The image that commands run in, pinned by digest [default: that of the image store]
    #[arg(long, value_name = "REF", env = "SAL_IMAGE", hide_env_values = true)]
    image: Option<String>,
    #[command(flatten)]
    store: ImageStore,
    /// Stay in the foreground, for systemd and CI; log to standard error
    #[arg(long)]
    foreground: bool,
    /// Report on standard output to the waiting parent, then let go of it
    #[arg(long, hide = true, requires = "foreground")]
    detached: bool,
}

impl Start {
    /// Starts the service.
    pub(crate) fn run(self, out: Output) -> Done {
        let (in_foreground, detached) = (self.foreground, self.detached);
        let options = self.options()?;
        match (in_foreground, detached) {
            (true, true) => foreground::run_detached(&options),
            (true, false) => foreground::run(&options, out),
            (false, _) => detach::start(&options, out),
        }
    }

    fn options(self) -> Result<Options, Failure> {
        let executor = match (self.coding_executor, &self.coding_socket, &self.coding_root) {
            (Some(asked), _, _) => asked,
            (None, Some(_), _) => ExecutorKind::Docker,
            (None, None, Some(_)) => ExecutorKind::Oci,
            (None, None, None) => ExecutorKind::None,
        };
        let usage = |text: &str| Err(Failure::Usage(text.to_owned()));
        if executor != ExecutorKind::None && self.coding_root.is_none() {
            return usage("an executor needs --coding-root DIR, where workspaces lie");
        }
        if (executor == ExecutorKind::Docker) != self.coding_socket.is_some() {
            return usage("--coding-socket SOCK and the docker executor need each other");
        }
        let place = |path: Option<PathBuf>| path.as_deref().map(absolute).transpose();
        Ok(Options {
            state: self.state.path()?,
            coding_root: place(self.coding_root)?,
            executor,
            coding_socket: place(self.coding_socket)?,
            image: self.image,
            image_store: self.store.path()?,
            provider: self.provider,
        })
    }
}
