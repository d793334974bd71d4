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

    fn ended() -> RunEvent {
        RunEvent::Ended { outcome: Outcome::start_failed("x") }
    }

    #[test]
    fn cmd4_the_plain_path_and_nothing_after_the_end() {
        let mut s = RunState::Requested;
        for e in
            [RunEvent::CreateAsked, RunEvent::Launched, RunEvent::CancelRequested, ended(), RunEvent::Removed]
        {
            s = step(s, &e).unwrap();
        }
        assert_eq!(s, RunState::Finished);
        for e in [
            RunEvent::CreateAsked,
            RunEvent::Launched,
            RunEvent::CancelRequested,
            ended(),
            RunEvent::Removed,
            RunEvent::Lost { detail: String::new() },
        ] {
            assert!(step(RunState::Finished, &e).is_err());
            assert!(step(RunState::Interrupted, &e).is_err());
        }
    }

    #[test]
    fn cmd4_no_finish_without_confirmed_removal() {
        assert!(step(RunState::Running, &RunEvent::Removed).is_err());
        let s = step(RunState::Running, &ended()).unwrap();
        assert_eq!(s, RunState::Finishing);
        assert_eq!(step(s, &RunEvent::RemovalUncertain { left: vec![] }).unwrap(), RunState::Finishing);
        assert!(step(s, &RunEvent::CleanedUp).is_err());
        assert!(step(RunState::Finished, &RunEvent::CleanedUp).is_err());
    }
}
