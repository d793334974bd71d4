//! Executors: one trait, several backends, one conformance suite (design rule 4).

pub mod lock;
pub mod native;
pub mod oci;
pub mod scripted;
pub mod seccomp;

use crate::domain::ids::{ContainerId, RunId};
use crate::domain::job::Job;
use crate::domain::record::Record;
use std::future::Future;
use std::pin::Pin;
use tokio::sync::mpsc;

/// A boxed future, so that the trait can be used as an object.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why an executor could not do what was asked. The run's state is then to be learned by watching.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// A file of the run directory could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The supervisor could not be started.
    #[error("the supervisor could not be started: {0}")]
    Spawn(std::io::Error),
    /// The host lacks something that the profile needs.
    #[error("{what}; {hint}")]
    Host {
        /// What is missing.
        what: String,
        /// The next step.
        hint: String,
    },
}

/// What is seen of a run, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// The next record; the first watch after a restart replays all from the beginning.
    Record(Record),
    /// Nobody supervises the run any more; no record will follow.
    Gone,
}

/// What is known of a run without watching it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Somebody lives who will record the run's end.
    pub supervised: bool,
    /// Its records so far.
    pub records: Vec<Record>,
}

/// A backend that runs containers. All calls but [`Executor::launch`] are idempotent by run id.
pub trait Executor: Send + Sync + 'static {
    /// The backend's name in runs and proofs: `oci`, `docker` or `scripted`.
    fn name(&self) -> &'static str;

    /// Identity of the engine and the kernel; a change withdraws the proof (PRF.4).
    fn identity(&self) -> String {
        self.name().to_owned()
    }

    /// Starts the life of the job's container. Returns once someone supervises it; what becomes of
    /// it is told by [`Executor::watch`]. A second launch of a run is an error, never a second container.
    fn launch(&self, job: Job) -> Fut<'_, Result<(), ExecError>>;

    /// Tells every record of the run from the first, then new ones as they come, then
    /// [`Observed::Gone`].
    fn watch(&self, run: &RunId) -> mpsc::Receiver<Observed>;

    /// Reads what is known of a run now. Blocks for no longer than a file takes to read.
    fn survey(&self, run: &RunId) -> Survey;

    /// Names what still lives of a run: its supervisor, and processes in its container. Changes nothing.
    fn alive(&self, run: &RunId, container: &ContainerId) -> Fut<'_, Result<Vec<String>, ExecError>>;

    /// Orders the container and all its descendants killed. A run that is gone is no error.
    fn cancel(&self, run: &RunId) -> Fut<'_, Result<(), ExecError>>;

    /// Kills and removes whatever still bears these ids, supervisors included; answers what is left of
    /// each, in the order asked (empty: confirmed removal).
    fn sweep(&self, runs: Vec<(RunId, ContainerId)>) -> Fut<'_, Result<Vec<Vec<String>>, ExecError>>;

    /// Deletes the run's working files, once its completion is committed.
    fn forget(&self, run: &RunId) -> Fut<'_, Result<(), ExecError>>;
}
