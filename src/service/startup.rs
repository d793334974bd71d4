//! Start-up as a chain of values, each consumed by the next, so that no phase can be left out (PRF.1):
//!
//! ```text
//!  StateDir ─▶ Opened (ledger checked) ─▶ Chosen (executor, workspaces) ─▶ Recovered ─▶ Proved ─▶ Service
//! ```
//! A client can be accepted only with the [`Service`] at the end.

use super::clock;
use super::core::{Backend, Core, blocking};
use super::facade::Service;
use super::mend;
use super::ports::{Prover, WorkspacePort};
use super::recovery;
use super::sessions;
use super::settle;
use super::state_dir::StateDir;
use super::types::Graces;
use crate::domain::refusal::{Code, Refusal};
use crate::ledger::{Ledger, WallClock};
use std::path::Path;
use std::sync::Arc;

/// The state directory is locked, the ledger open and checked.
#[must_use]
pub struct Opened {
    state: StateDir,
    ledger: Ledger,
    graces: Graces,
}

/// The executor and the workspaces are chosen; nothing was done with them yet.
#[must_use]
pub struct Chosen {
    core: Arc<Core>,
}

/// Every unsettled run of the last service is settled, adopted or kept.
#[must_use]
pub struct Recovered {
    core: Arc<Core>,
}

/// Every control was proved, or no commands are run.
#[must_use]
pub struct Proved {
    core: Arc<Core>,
}

impl Opened {
    /// Locks the state directory and opens its ledger.
    ///
    /// # Errors
    /// `unsafe_path`, `already_running`, or the ledger's refusal naming a newer format or damage.
    pub async fn open(state: &Path) -> Result<Self, Refusal> {
        let path = state.to_owned();
        blocking(move || {
            let state = StateDir::lock(&path)?;
            let ledger = Ledger::open(&state.ledger())?;
            Ok(Self { state, ledger, graces: Graces::default() })
        })
        .await
    }

    /// The locked directory, for those who keep files in it.
    pub fn state(&self) -> &StateDir {
        &self.state
    }

    /// Waits otherwise long than by default, for tests of what comes after the wait.
    pub fn with_graces(self, graces: Graces) -> Self {
        Self { graces, ..self }
    }

    /// Takes wall-clock times from `clock`, for tests of clocks that jump.
    pub fn with_clock(self, clock: WallClock) -> Self {
        Self { ledger: self.ledger.with_clock(clock), ..self }
    }

    /// Chooses what commands run with (`None`: no commands) and where workspaces live (`None`: ordinary
    /// sessions only).
    ///
    /// # Errors
    /// `host` when the boot cannot be told.
    pub fn choose(
        self,
        backend: Option<Backend>,
        workspaces: Option<Arc<dyn WorkspacePort>>,
    ) -> Result<Chosen, Refusal> {
        let boot_id = clock::boot_id()?;
        Ok(self.choose_in_boot(backend, workspaces, boot_id))
    }

    /// [`Opened::choose`] under a boot id of the caller's, for tests of a reboot.
    pub fn choose_in_boot(
        self,
        backend: Option<Backend>,
        workspaces: Option<Arc<dyn WorkspacePort>>,
        boot_id: String,
    ) -> Chosen {
        let Self { state, ledger, graces } = self;
        Chosen { core: Arc::new(Core::new(state, ledger, backend, workspaces, boot_id, graces)) }
    }
}

impl Chosen {
    /// Checks that the workspaces lie below the chosen coding root. Then finishes half-made sessions, decides
    /// on applications that were cut off, settles what can be settled, adopts what lives.
    ///
    /// # Errors
    /// `conflict` for another coding root; the refusal of whatever could not be read or written.
    pub async fn recover(self) -> Result<Recovered, Refusal> {
        sessions::check_coding_root(&self.core).await?;
        sessions::finish_unfinished(&self.core).await?;
        if settle::settle_all(&self.core).await? > 0 {
            self.core.undecided.notify_one();
        }
        recovery::recover(&self.core).await?;
        Ok(Recovered { core: self.core })
    }
}

impl Recovered {
    /// Runs the proof of the chosen executor.
    ///
    /// # Errors
    /// The prover's refusal, which denies the start.
    pub async fn prove(self, prover: &dyn Prover) -> Result<Proved, Refusal> {
        let before = self.core.backend.as_ref().map(|backend| backend.executor.identity());
        let summary = prover.prove().await?;
        let _ = self.core.proof.set(summary);
        if let Some(identity) = before {
            let _ = self.core.proved.set(identity);
        }
        Ok(Proved { core: self.core })
    }

    /// Goes on without a proof, as a service without an executor may.
    ///
    /// # Errors
    /// `proof_failed` when an executor was chosen.
    pub fn without_commands(self) -> Result<Proved, Refusal> {
        match &self.core.backend {
            None => Ok(Proved { core: self.core }),
            Some(backend) => Err(Refusal::new(
                Code::ProofFailed,
                format!("the executor '{}' was not proved", backend.executor.name()),
                "prove it, or start with --coding-executor none",
            )),
        }
    }
}

impl Proved {
    /// Opens the service; must be called within a runtime.
    pub fn ready(self) -> Service {
        self.core.readiness.started();
        let mender = tokio::spawn(mend::mend(Arc::downgrade(&self.core)));
        let _ = self.core.mender.set(mender.abort_handle());
        Service::new(self.core)
    }
}
