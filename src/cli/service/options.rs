//! What `service start` was asked for, checked and made absolute.

use std::ffi::OsString;
use std::path::PathBuf;

/// Which executor runs commands (SVC.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ExecutorKind {
    /// libcontainer, no daemon
    Oci,
    /// The Engine API on --coding-socket
    Docker,
    /// Refuse commands; file tools work
    None,
}

/// Who answers in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Provider {
    /// The Messages API
    Anthropic,
    /// The user's own claude program
    Claude,
    /// Nobody: operator and MCP use only
    None,
}

/// Everything that a service is assembled from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The state directory.
    pub(crate) state: PathBuf,
    /// Where workspaces lie; without it there are ordinary sessions only.
    pub(crate) coding_root: Option<PathBuf>,
    /// Who runs commands.
    pub(crate) executor: ExecutorKind,
    /// The Engine API's socket, for the docker executor.
    pub(crate) coding_socket: Option<PathBuf>,
    /// The image to run commands in; else the store's default.
    pub(crate) image: Option<String>,
    /// Where images lie.
    pub(crate) image_store: PathBuf,
    /// Who answers in a conversation.
    pub(crate) provider: Provider,
}

impl Options {
    /// The arguments that make `sal service start` come to the same options.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut all: Vec<OsString> = vec!["--state".into(), self.state.clone().into()];
        let mut add = |flag: &str, value: Option<OsString>| {
            if let Some(value) = value {
                all.extend([flag.into(), value]);
            }
        };
        add("--coding-root", self.coding_root.clone().map(Into::into));
        add("--coding-socket", self.coding_socket.clone().map(Into::into));
        add("--coding-executor", value_name(self.executor));
        add("--provider", value_name(self.provider));
        add("--image", self.image.clone().map(Into::into));
        add("--image-store", Some(self.image_store.clone().into()));
        all
    }
}

fn value_name(value: impl clap::ValueEnum) -> Option<OsString> {
    value.to_possible_value().map(|value| value.get_name().into())
}
