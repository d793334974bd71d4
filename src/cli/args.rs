//! Arguments that several verbs take.

use super::failure::Failure;
use super::places;
use crate::domain::ids::{RunId, SessionId};
use crate::domain::refusal::Refusal;
use std::path::PathBuf;

/// `--state DIR`.
#[derive(Debug, clap::Args)]
pub(crate) struct State {
    /// State directory of the service [default: $XDG_STATE_HOME/salaam or ~/.local/state/salaam]
    #[arg(long, value_name = "DIR", env = "SAL_STATE", hide_env_values = true)]
    state: Option<PathBuf>,
}

impl State {
    /// The absolute path.
    pub(crate) fn path(&self) -> Result<PathBuf, Refusal> {
        places::state(self.state.as_deref())
    }
}

/// `--image-store DIR`.
#[derive(Debug, clap::Args)]
pub(crate) struct ImageStore {
    /// Where images are kept [default: $XDG_DATA_HOME/salaam/images or ~/.local/share/salaam/images]
    #[arg(long, value_name = "DIR", env = "SAL_IMAGE_STORE", hide_env_values = true)]
    image_store: Option<PathBuf>,
}

impl ImageStore {
    /// The absolute path.
    pub(crate) fn path(&self) -> Result<PathBuf, Refusal> {
        places::image_store(self.image_store.as_deref())
    }
}

/// One session of one service.
#[derive(Debug, clap::Args)]
pub(crate) struct OneSession {
    /// The session
    #[arg(value_name = "SESSION_ID")]
    pub(crate) session: SessionId,
    #[command(flatten)]
    pub(crate) state: State,
}

/// One run of one session.
#[derive(Debug, clap::Args)]
pub(crate) struct OneRun {
    #[command(flatten)]
    pub(crate) at: OneSession,
    /// The run, as `commands start` named it
    #[arg(long, value_name = "RUN_ID")]
    pub(crate) run_id: RunId,
}

/// A path as JSON can carry it.
pub(crate) fn utf8(path: PathBuf) -> Result<String, Failure> {
    path.into_os_string()
        .into_string()
        .map_err(|path| Failure::Usage(format!("the path '{}' is not UTF-8", path.to_string_lossy())))
}
