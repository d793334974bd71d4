//! Whether new runs are granted, and if not, why (CMD.9, PRF.4).

use crate::domain::refusal::{Code, Refusal};
use std::sync::{Mutex, PoisonError};

/// The reasons against granting; none means ready. A reason stays until the service is restarted.
#[derive(Debug)]
pub struct Readiness {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    starting: bool,
    stopping: bool,
    reasons: Vec<(String, String)>,
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
    pub fn withdraw(&self, reason: impl Into<String>, hint: impl Into<String>) {
        let (reason, hint) = (reason.into(), hint.into());
        self.with(|s| {
            // What is looked at before each command is found again each time.
            if !s.reasons.iter().any(|(known, _)| *known == reason) {
                tracing::warn!(%reason, "readiness withdrawn");
                s.reasons.push((reason, hint));
            }
        });
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
            } else if let Some((reason, hint)) = s.reasons.first() {
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
    fn cmd9_a_reason_is_kept_once_and_the_first_is_told() {
        let readiness = Readiness::default();
        readiness.started();
        for reason in ["a cgroup is left", "the engine changed", "a cgroup is left"] {
            readiness.withdraw(reason, "restart the service");
        }
        assert_eq!(readiness.with(|s| s.reasons.len()), 2);
        assert_eq!(readiness.check().unwrap_err().message, "a cgroup is left");
    }
}
