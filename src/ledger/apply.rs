//! What an event does to a run: the pure fold that both the ledger's rows and the live view follow.

use crate::domain::outcome::Outcome;
use crate::domain::run::{
    Cleanup, Headroom, IllegalStep, OutputSize, Run, RunEvent, RunIntent, RunState, step,
};

/// Name of the recovery phase in which a run waits until what it may have left is gone.
pub const RECONCILE: &str = "reconcile";

/// What is known beside the events of one transaction; `None` leaves the run as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Size of the output.
    pub output: Option<OutputSize>,
    /// How near the limits it came.
    pub headroom: Option<Headroom>,
    /// Whether a lost run's traces are gone; the other events say it themselves.
    pub cleanup: Option<Cleanup>,
}

/// A run as it is when only its intent is committed.
pub fn requested(intent: RunIntent) -> Run {
    Run {
        intent,
        state: RunState::Requested,
        cancel_requested: false,
        outcome: None,
        output: OutputSize::default(),
        headroom: Headroom::default(),
        cleanup: Cleanup::None,
        recovery_phase: None,
    }
}

/// Applies one event.
///
/// # Errors
/// [`IllegalStep`]; the run is unchanged.
pub fn apply(run: &mut Run, event: &RunEvent) -> Result<(), IllegalStep> {
    // Once is enough: what is gone cannot be cleaned up again.
    if *event == RunEvent::CleanedUp && run.cleanup != Cleanup::Uncertain {
        return Err(IllegalStep { state: run.state, event: format!("{event:?}") });
    }
    run.state = step(run.state, event)?;
    match event {
        RunEvent::CreateAsked => run.cleanup = Cleanup::Pending,
        RunEvent::Requested | RunEvent::Launched => {}
        RunEvent::CancelRequested => run.cancel_requested = true,
        RunEvent::Ended { outcome } => {
            run.outcome = Some(outcome.clone());
            run.cleanup = Cleanup::Pending;
        }
        RunEvent::Removed | RunEvent::CleanedUp => {
            run.cleanup = Cleanup::Confirmed;
            run.recovery_phase = None;
        }
        RunEvent::RemovalUncertain { .. } => {
            run.cleanup = Cleanup::Uncertain;
            run.recovery_phase = Some(RECONCILE.to_owned());
        }
        RunEvent::Lost { detail } => {
            run.outcome = Some(Outcome::interrupted(detail.clone()));
            run.recovery_phase = None;
        }
    }
    Ok(())
}

impl Facts {
    /// Writes what is known into `run`, after the events.
    pub fn settle(&self, run: &mut Run) {
        if let Some(output) = self.output {
            run.output = output;
        }
        if let Some(headroom) = self.headroom {
            run.headroom = headroom;
        }
        if let Some(cleanup) = self.cleanup {
            run.cleanup = cleanup;
            if cleanup == Cleanup::Uncertain {
                run.recovery_phase = Some(RECONCILE.to_owned());
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::domain::digest::Digest;
    use crate::domain::ids::{ContainerId, ExecId, RunId, SessionId, StepKey};
    use crate::domain::job::ImagePin;
    use crate::domain::relpath::RelPath;

    /// An intent for tests.
    pub fn intent() -> RunIntent {
        let digest = Digest::of(b"");
        let pin = ImagePin {
            reference: "r".into(),
            index: None,
            manifest: digest.clone(),
            config: digest.clone(),
            diff_ids: vec![],
        };
        RunIntent {
            run_id: RunId::fresh(),
            session_id: SessionId::fresh(),
            container_id: ContainerId::fresh(),
            exec_id: ExecId::fresh(),
            step_key: StepKey::parse("k").unwrap(),
            command: "true".into(),
            cwd: RelPath::default(),
            revision: 1,
            digest: digest.clone(),
            image: pin,
            profile: digest,
            executor: "scripted".into(),
            engine: "e".into(),
            boot_id: "boot-1".into(),
            deadline_ns: 0,
        }
    }

    #[test]
    fn cmd4_an_illegal_event_leaves_the_run_unchanged() {
        let mut run = requested(intent());
        let before = run.clone();
        assert!(apply(&mut run, &RunEvent::Removed).is_err());
        assert_eq!(run, before);
    }
}
