//! What the parts of a running service share.

use super::driver::Live;
use super::plan::Configured;
use super::ports::{ProofSummary, WorkspacePort};
use super::readiness::{Doubt, Readiness};
use super::state_dir::StateDir;
use super::sweep::{left_hint, uncertain};
use super::tracker::{Alarm, Tracker};
use super::types::Graces;
use crate::domain::digest::Digest;
use crate::domain::ids::{RunId, SessionId, WorkspaceId};
use crate::domain::job::Bundle;
use crate::domain::manifest::TreeManifest;
use crate::domain::profile::Profile;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::run::{Run, RunIntent};
use crate::exec::Executor;
use crate::ledger::{Ledger, LedgerError};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::OwnedRwLockReadGuard;

/// Manifests that are remembered; the largest legal one has 2,048 entries, some 100 KiB.
const MANIFESTS: usize = 8;

/// What commands run with.
#[derive(Clone)]
pub struct Backend {
    /// The executor.
    pub executor: Arc<dyn Executor>,
    /// The image, unpacked.
    pub bundle: Bundle,
    /// Our own executable, mounted for probes.
    pub probe: PathBuf,
}

pub(super) struct Core {
    pub state: StateDir,
    pub ledger: Ledger,
    pub backend: Option<Backend>,
    pub workspaces: Option<Arc<dyn WorkspacePort>>,
    pub profile: Profile,
    pub graces: Graces,
    pub boot_id: String,
    pub readiness: Readiness,
    pub proof: OnceLock<ProofSummary>,
    /// The executor's identity when it was proved.
    pub proved: OnceLock<String>,
    pub started: String,
    /// Held shared while a start is between its admission and its driver, and while directories of
    /// workspaces are changed ([`Core::enter`]), so that a stop can wait for it.
    pub starting: Arc<tokio::sync::RwLock<()>>,
    /// Held by whoever settles or adopts runs that have no driver: at a start, after a failure of the
    /// ledger, or by order of a person. Else two of them could settle one run.
    pub settling: tokio::sync::Mutex<()>,
    /// Told when an application stays undecided that a later attempt may decide on.
    pub undecided: Arc<tokio::sync::Notify>,
    /// Manifests read last, the latest at the end. Revisions are never rewritten, so none goes stale.
    manifests: Mutex<Vec<(WorkspaceId, u32, Arc<TreeManifest>)>>,
    /// The task that opens the ledger again after a failure.
    pub mender: OnceLock<tokio::task::AbortHandle>,
    live: Mutex<HashMap<RunId, Live>>,
    /// The workspaces in which somebody follows an application.
    applying: Mutex<HashSet<WorkspaceId>>,
}

impl Core {
    pub fn new(
        state: StateDir,
        ledger: Ledger,
        backend: Option<Backend>,
        workspaces: Option<Arc<dyn WorkspacePort>>,
        boot_id: String,
        graces: Graces,
    ) -> Self {
        Self {
            state,
            ledger,
            backend,
            workspaces,
            profile: Profile::fixed(),
            graces,
            boot_id,
            readiness: Readiness::default(),
            proof: OnceLock::new(),
            proved: OnceLock::new(),
            started: jiff::Timestamp::now().to_string(),
            starting: Arc::default(),
            settling: tokio::sync::Mutex::default(),
            undecided: Arc::default(),
            mender: OnceLock::new(),
            manifests: Mutex::default(),
            live: Mutex::new(HashMap::new()),
            applying: Mutex::default(),
        }
    }

    /// The workspaces in which somebody follows an application.
    pub fn applying(&self) -> MutexGuard<'_, HashSet<WorkspaceId>> {
        self.applying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manifest of a published revision, from memory if it was read lately.
    ///
    /// # Errors
    /// An error of reading the ledger.
    pub async fn manifest(&self, id: &WorkspaceId, revision: u32) -> Result<Arc<TreeManifest>, LedgerError> {
        let held = || self.manifests.lock().unwrap_or_else(PoisonError::into_inner);
        let known =
            held().iter().find(|(of, n, _)| of == id && *n == revision).map(|(_, _, m)| Arc::clone(m));
        if let Some(manifest) = known {
            return Ok(manifest);
        }
        let manifest = Arc::new(self.ledger.manifest(id, revision).await?);
        let mut held = held();
        if held.len() >= MANIFESTS {
            held.remove(0);
        }
        held.push((id.clone(), revision, Arc::clone(&manifest)));
        Ok(manifest)
    }

    /// The live runs, each with its driver.
    pub fn live(&self) -> MutexGuard<'_, HashMap<RunId, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run as its driver knows it, if it has one.
    pub fn view(&self, run: &RunId) -> Option<Run> {
        self.live().get(run).map(|live| live.watch.borrow().clone())
    }

    /// What commands run with, for the plan; `profile` is the digest of the profile.
    pub fn configured<'a>(&'a self, profile: &'a Digest) -> Option<Configured<'a>> {
        let backend = self.backend.as_ref()?;
        Some(Configured { executor: backend.executor.name(), image: &backend.bundle.pin, profile })
    }

    /// Withdraws readiness while `left` of a run may be there.
    pub fn doubt_left(&self, run: &RunIntent, left: &[String]) {
        let doubt = Doubt::Left(run.run_id.clone());
        self.readiness.withdraw(doubt, uncertain(&run.run_id, left), left_hint(run));
    }

    /// Withdraws readiness for what the tracker found.
    pub fn raise(&self, tracker: &mut Tracker) {
        for alarm in tracker.take_alarms() {
            match alarm {
                Alarm::Mismatch(reason) => self.readiness.withdraw(
                    Doubt::Mismatch,
                    reason,
                    "find what changed on the host, then restart the service for a new proof",
                ),
                Alarm::Left(left) => self.doubt_left(&tracker.run().intent, &left),
            }
        }
    }

    /// Whether new runs are granted.
    pub fn check_ready(&self) -> Result<(), Refusal> {
        if let Some(reason) = self.ledger.latched() {
            return Err(LedgerError::Latched(reason).into());
        }
        self.readiness.check()
    }

    pub fn backend(&self) -> Result<&Backend, Refusal> {
        self.backend.as_ref().ok_or_else(|| {
            Refusal::new(
                Code::Forbidden,
                "this service runs no commands: it was started with the executor 'none'",
                "restart it with --coding-executor oci or docker",
            )
        })
    }

    /// Whether the engine and the kernel are still those of the proof (PRF.4); if not, readiness goes.
    pub fn check_identity(&self) -> Result<(), Refusal> {
        let (Some(backend), Some(proved)) = (&self.backend, self.proved.get()) else { return Ok(()) };
        let now = backend.executor.identity();
        if now != *proved {
            self.readiness.withdraw(
                Doubt::Engine,
                format!("the engine is now '{now}'; '{proved}' was proved"),
                "restart the service for a new proof",
            );
        }
        self.check_ready()
    }

    /// Enters what a stop waits for. After the stop nothing may go on, since the next service decides on what
    /// is there.
    ///
    /// # Errors
    /// `not_ready` once the service is stopping.
    pub async fn enter(&self) -> Result<OwnedRwLockReadGuard<()>, Refusal> {
        let entered = Arc::clone(&self.starting).read_owned().await;
        self.readiness.check_open()?;
        Ok(entered)
    }

    pub fn workspaces(&self) -> Result<Arc<dyn WorkspacePort>, Refusal> {
        self.workspaces.clone().ok_or_else(|| {
            Refusal::new(
                Code::Forbidden,
                "this service keeps no workspaces: it was started without a coding root",
                "restart it with --coding-root DIR",
            )
        })
    }

    /// Reads a run of a session, live view first.
    pub async fn run(&self, session: &SessionId, run: &RunId) -> Result<Run, Refusal> {
        let found = match self.view(run) {
            Some(run) => run,
            None => self.ledger.run(run).await?,
        };
        if found.intent.session_id == *session {
            Ok(found)
        } else {
            Err(LedgerError::Absent { kind: "run", id: format!("{run} in session {session}") }.into())
        }
    }
}

/// Runs blocking work off the runtime's threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(stopped)?
}

/// Runs `work` to its end even if the asker goes away: a client that hangs up must not leave an intent
/// without its driver.
pub(super) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::spawn(work).await.map_err(stopped)?
}

fn stopped(error: tokio::task::JoinError) -> Refusal {
    Refusal::new(Code::Internal, format!("the operation was broken off: {error}"), "see the service's log")
}
