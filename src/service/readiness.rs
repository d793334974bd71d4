//! Whether new runs are granted, and if not, why (CMD.9, PRF.4).

use crate::domain::ids::RunId;
use crate::domain::refusal::{Code, Refusal};
use std::sync::{Mutex, PoisonError};

/// What a reason against granting is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Something of this run may be left; until it is settled.
    Left(RunId),
    /// The run's outcome could not be recorded; until the ledger is open again.
    Unrecorded(RunId),
    /// A container was not what the profile says; until the next proof.
    Mismatch,
    /// The engine or the kernel is not the proved one; until the next proof.
    Engine,
}

/// The reasons against granting; none means ready.
#[derive(Debug)]
pub struct Readiness {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    starting: bool,
    stopping: bool,
    reasons: Vec<(Doubt, String, String)>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self { state: Mutex::new(State { starting: true, stopping: false, reasons: Vec::new() }) }
    }
}

impl Readiness {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Marks the start-up as done.
    pub fn started(&self) {
        self.with(|s| s.starting = false);
    }

    /// Marks the service as stopping: nothing is granted any more.
    pub fn stopping(&self) {
        self.with(|s| s.stopping = true);
    }

    /// Withdraws readiness; `hint` is the next step.
    pub fn withdraw(&self, doubt: Doubt, reason: impl Into<String>, hint: impl Into<String>) {
        let (reason, hint) = (reason.into(), hint.into());
        self.with(|s| {
            // What is looked at before each command is found again each time.
            if s.reasons.iter().any(|(_, known, _)| *known == reason) {
                return;
            }
            tracing::warn!(%reason, "readiness withdrawn");
            // Of one run only what was found last is true.
            if matches!(doubt, Doubt::Left(_) | Doubt::Unrecorded(_)) {
                s.reasons.retain(|(known, ..)| *known != doubt);
            }
            s.reasons.push((doubt, reason, hint));
        });
    }

    /// Takes back what was withdrawn over `doubt`.
    pub fn restore(&self, doubt: &Doubt) {
        self.with(|s| s.reasons.retain(|(known, ..)| known != doubt));
    }

    /// Why readiness was withdrawn over what `run` may have left, if so.
    pub fn reason_of(&self, run: &RunId) -> Option<String> {
        let doubt = Doubt::Left(run.clone());
        self.with(|s| {
            s.reasons.iter().find(|(known, ..)| *known == doubt).map(|(_, reason, _)| reason.clone())
        })
    }

    /// Whether anything new is taken at all.
    ///
    /// # Errors
    /// `not_ready` once the service is stopping.
    pub fn check_open(&self) -> Result<(), Refusal> {
        self.with(|s| if s.stopping { Err(stopping()) } else { Ok(()) })
    }

    /// Answers the first reason against granting.
    ///
    /// # Errors
    /// `not_ready`.
    pub fn check(&self) -> Result<(), Refusal> {
        self.with(|s| {
            if s.stopping {
                Err(stopping())
            } else if s.starting {
                Err(Refusal::new(Code::NotReady, "the service is still starting", "repeat in a moment"))
            } else if let Some((_, reason, hint)) = s.reasons.first() {
                Err(Refusal::new(Code::NotReady, reason, hint))
            } else {
                Ok(())
            }
        })
    }
}

fn stopping() -> Refusal {
    Refusal::new(Code::NotReady, "the service is stopping", "start it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cmd9_a_reason_is_kept_once_and_the_first_is_told_until_it_is_settled() {
        let readiness = Readiness::default();
        readiness.started();
        let left = Doubt::Left(RunId::fresh());
        for (doubt, reason) in [
            (left.clone(), "a cgroup is left"),
            (Doubt::Engine, "the engine changed"),
            (left.clone(), "a cgroup is left"),
        ] {
            readiness.withdraw(doubt, reason, "restart the service");
        }
        assert_eq!(readiness.with(|s| s.reasons.len()), 2);
        assert_eq!(readiness.check().unwrap_err().message, "a cgroup is left");
        readiness.restore(&Doubt::Left(RunId::fresh()));
        assert_eq!(readiness.check().unwrap_err().message, "a cgroup is left");
        readiness.withdraw(left.clone(), "another cgroup is left", "");
        let Doubt::Left(run) = &left else { panic!("{left:?}") };
        assert_eq!(readiness.reason_of(run).as_deref(), Some("another cgroup is left"));
        assert_eq!(readiness.with(|s| s.reasons.len()), 2);
        readiness.restore(&left);
        assert_eq!(readiness.reason_of(run), None);
        assert_eq!(readiness.check().unwrap_err().message, "the engine changed");
        readiness.restore(&Doubt::Engine);
        readiness.check().unwrap();
    }
}
