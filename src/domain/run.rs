//! The life of a run: states, events and the only legal steps between them (CMD.4, 5, 8).
//!
//! ```text
//!  requested ──create──▶ creating ──launched──▶ running ──exit──▶ finishing ──removed──▶ finished
//!      │                    │                      │
//!      └────────────────────┴──────── lost ────────┴─────────────────────────────────▶ interrupted
//! ```
//! `start_failed` leads from requested or creating to finishing: the container, as far as it came to
//! be, must still be removed before the run is finished.

use super::digest::Digest;
use super::ids::{ContainerId, ExecId, RunId, SessionId, StepKey};
use super::job::ImagePin;
use super::outcome::Outcome;
use super::relpath::RelPath;
use serde::{Deserialize, Serialize};

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Intent committed; no engine call yet.
    Requested,
    /// The engine was asked; the command may not run yet.
    Creating,
    /// The command runs, or may run.
    Running,
    /// The exit was observed; removal is under way.
    Finishing,
    /// Terminal: outcome and removal are certain.
    Finished,
    /// Terminal: the truth is unknowable.
    Interrupted,
}

impl RunState {
    /// True for the two states that never change again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Finished | Self::Interrupted)
    }
}

/// What can happen to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// The intent was committed; every history begins with it, and no run takes it again.
    Requested,
    /// The engine was asked to create the container.
    CreateAsked,
    /// The supervisor let the command go.
    Launched,
    /// A person ordered a cancel.
    CancelRequested,
    /// The outcome is known.
    Ended {
        /// How it ended.
        outcome: Outcome,
    },
    /// Removal was confirmed.
    Removed,
    /// Removal could not be confirmed; what is left.
    RemovalUncertain {
        /// What is still there.
        left: Vec<String>,
    },
    /// Nobody can know.
    Lost {
        /// Why.
        detail: String,
    },
    /// What a lost run had left is gone; its outcome stays as it is.
    CleanedUp,
}

/// An event as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Position in the order of all events of the ledger; this, and not the time, tells what came first.
    pub seq: u64,
    /// Wall-clock time of the commit, RFC 3339, for people only.
    pub at: String,
    /// What happened.
    pub event: RunEvent,
}

/// An event that may not happen in a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {state:?} cannot take the event {event}")]
pub struct IllegalStep {
    /// The state.
    pub state: RunState,
    /// The event's name.
    pub event: String,
}

/// Gives the state after `event`, or refuses it.
///
/// # Errors
/// [`IllegalStep`]; the run keeps its state.
pub fn step(state: RunState, event: &RunEvent) -> Result<RunState, IllegalStep> {
    use RunState as S;
    match (state, event) {
        (S::Requested, RunEvent::CreateAsked) => Ok(S::Creating),
        (S::Creating, RunEvent::Launched) => Ok(S::Running),
        (S::Requested | S::Creating | S::Running, RunEvent::CancelRequested) => Ok(state),
        // A supervisor's records may be read all at once, so the launch may be seen with the end.
        (S::Requested | S::Creating | S::Running, RunEvent::Ended { .. }) => Ok(S::Finishing),
        (S::Finishing, RunEvent::Removed) => Ok(S::Finished),
        (S::Finishing, RunEvent::RemovalUncertain { .. }) => Ok(S::Finishing),
        (S::Requested | S::Creating | S::Running, RunEvent::Lost { .. }) => Ok(S::Interrupted),
        (S::Interrupted, RunEvent::CleanedUp) => Ok(S::Interrupted),
        _ => Err(IllegalStep { state, event: format!("{event:?}") }),
    }
}

/// Whether the container's traces are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cleanup {
    /// Nothing was ever made.
    None,
    /// Not removed yet.
    Pending,
    /// Checked: no cgroup of it is left, and so no process; its mounts end with its namespace.
    Confirmed,
    /// Something may be left; no new grants until it is settled (CMD.9).
    Uncertain,
}

/// Output so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSize {
    /// Bytes kept, addressed by offset.
    pub stored_bytes: u64,
    /// Bytes that the command wrote.
    pub total_bytes: u64,
    /// True when some were not kept.
    pub truncated: bool,
}

/// How near the limits a run came; `None` where the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headroom {
    /// Peak memory in bytes.
    pub memory_peak: Option<u64>,
    /// Peak processes and threads.
    pub pids_peak: Option<u64>,
    /// CPU time in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Throttled time in milliseconds.
    pub throttled_ms: Option<u64>,
}

/// What was intended, fixed when the run is requested (CMD.3, 4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIntent {
    /// The run.
    pub run_id: RunId,
    /// Its session.
    pub session_id: SessionId,
    /// The container.
    pub container_id: ContainerId,
    /// The one launch attempt.
    pub exec_id: ExecId,
    /// The caller's key.
    pub step_key: StepKey,
    /// The command text.
    pub command: String,
    /// Working directory below `/work`.
    pub cwd: RelPath,
    /// Captured workspace revision.
    pub revision: u32,
    /// Captured manifest digest.
    pub digest: Digest,
    /// The image it runs in.
    pub image: ImagePin,
    /// Digest of the profile.
    pub profile: Digest,
    /// `oci`, `docker` or `scripted`.
    pub executor: String,
    /// Kernel and engine identity, as in the proof.
    pub engine: String,
    /// Boot in which the deadline is counted.
    pub boot_id: String,
    /// CLOCK_BOOTTIME instant of the deadline, in nanoseconds.
    pub deadline_ns: u64,
}

/// A run as the ledger holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// What was intended.
    pub intent: RunIntent,
    /// Where it is.
    pub state: RunState,
    /// True once a cancel is committed.
    pub cancel_requested: bool,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Its output.
    pub output: OutputSize,
    /// How near the limits it came.
    pub headroom: Headroom,
    /// Whether its traces are gone.
    pub cleanup: Cleanup,
    /// Name of the recovery phase it waits in, if any.
    pub recovery_phase: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events() -> [RunEvent; 9] {
        [
            RunEvent::Requested,
            RunEvent::CreateAsked,
            RunEvent::Launched,
            RunEvent::CancelRequested,
            RunEvent::Ended { outcome: Outcome::start_failed("x") },
            RunEvent::Removed,
            RunEvent::RemovalUncertain { left: vec!["x".into()] },
            RunEvent::Lost { detail: "x".into() },
            RunEvent::CleanedUp,
        ]
    }

    #[test]
    fn cmd4_the_plain_path() {
        let [_, create, launched, cancel, ended, removed, ..] = events();
        let mut s = RunState::Requested;
        for e in [create, launched, cancel, ended, removed] {
            s = step(s, &e).unwrap();
        }
        assert_eq!(s, RunState::Finished);
    }

    /// The model knows no states, only what has happened so far (CMD.4, 5, 8).
    #[derive(Default)]
    struct Model {
        created: bool,
        launched: bool,
        ended: bool,
        removed: bool,
        lost: bool,
    }

    impl Model {
        /// Takes the event if it may happen.
        fn take(&mut self, event: &RunEvent) -> bool {
            let open = !self.ended && !self.lost;
            let legal = match event {
                RunEvent::Requested => false,
                RunEvent::CreateAsked => open && !self.created,
                RunEvent::Launched => open && self.created && !self.launched,
                RunEvent::CancelRequested | RunEvent::Ended { .. } | RunEvent::Lost { .. } => open,
                RunEvent::Removed | RunEvent::RemovalUncertain { .. } => self.ended && !self.removed,
                RunEvent::CleanedUp => self.lost,
            };
            if legal {
                match event {
                    RunEvent::CreateAsked => self.created = true,
                    RunEvent::Launched => self.launched = true,
                    RunEvent::Ended { .. } => self.ended = true,
                    RunEvent::Lost { .. } => self.lost = true,
                    RunEvent::Removed => self.removed = true,
                    _ => {}
                }
            }
            legal
        }

        fn state(&self) -> RunState {
            match self {
                Self { lost: true, .. } => RunState::Interrupted,
                Self { removed: true, .. } => RunState::Finished,
                Self { ended: true, .. } => RunState::Finishing,
                Self { launched: true, .. } => RunState::Running,
                Self { created: true, .. } => RunState::Creating,
                _ => RunState::Requested,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        /// Any sequence of events: each is taken exactly if the model takes it, with the model's state
        /// after it; a refused one is an error that names state and event and changes nothing.
        #[test]
        fn cmd8_every_sequence_of_events_agrees_with_a_model(picks in prop::collection::vec(0usize..9, 0..24)) {
            let (events, mut model, mut state) = (events(), Model::default(), RunState::Requested);
            let mut ends = 0;
            for pick in picks {
                let event = &events[pick];
                let result = step(state, event);
                prop_assert_eq!(result.is_ok(), model.take(event), "{:?} in {:?}", event, state);
                match result {
                    Ok(next) => {
                        prop_assert!(!state.is_terminal() || next == state, "a terminal state changed");
                        ends += u32::from(!state.is_terminal() && next.is_terminal());
                        state = next;
                    }
                    Err(error) => {
                        prop_assert_eq!(error.state, state);
                        prop_assert_eq!(error.event, format!("{event:?}"));
                    }
                }
                prop_assert_eq!(state, model.state());
            }
            prop_assert!(ends <= 1);
        }
    }
}
