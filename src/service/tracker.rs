//! What an observation means for a run: the driver's decisions, without its side effects.
//!
//! The tracker holds the run as it is known now. Events that the ledger has not got yet are pending:
//! creation and launch wait for the next commit that must happen, since the supervisor's own fsynced
//! records tell them again after a crash. So the plain path costs three commits: intent, exit, removal.

use super::output::Kept;
use crate::domain::digest::Digest;
use crate::domain::outcome::{Cause, Evidence, Forced, Outcome, judge};
use crate::domain::record::Record;
use crate::domain::run::{Cleanup, Headroom, OutputSize, Run, RunEvent, RunState};
use crate::ledger::{Facts, apply};

/// A run under observation.
#[derive(Debug)]
pub struct Tracker {
    run: Run,
    pending: Vec<RunEvent>,
    facts: Facts,
    must_commit: bool,
    launched: bool,
    launch_error: Option<String>,
    alarms: Vec<Alarm>,
    file_size: u64,
    phase: Option<String>,
    kept: Option<Kept>,
}

/// A reason to withdraw readiness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// A container's effective configuration was not the profile (PRF.4).
    Mismatch(String),
    /// This may be left behind (CMD.9).
    Left(Vec<String>),
}

impl Tracker {
    /// Starts from the run as the ledger has it; `file_size` is the profile's limit, named in outcomes.
    pub fn new(run: Run, file_size: u64) -> Self {
        let launched = matches!(run.state, RunState::Running | RunState::Finishing);
        Self {
            run,
            pending: Vec::new(),
            facts: Facts::default(),
            must_commit: false,
            launched,
            launch_error: None,
            alarms: Vec::new(),
            file_size,
            phase: None,
            kept: None,
        }
    }

    /// The run as it is known now, pending events included.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// True when something must be committed before it is told.
    pub fn must_commit(&self) -> bool {
        self.must_commit
    }

    /// Takes what is to be committed; the caller answers with [`Tracker::committed`].
    pub fn take_pending(&mut self) -> (Vec<RunEvent>, Facts) {
        self.must_commit = false;
        (std::mem::take(&mut self.pending), std::mem::take(&mut self.facts))
    }

    /// Takes the ledger's row as the truth.
    pub fn committed(&mut self, run: Run) {
        self.run = run;
        self.show_phase();
    }

    /// Takes the reasons to withdraw readiness seen since the last call.
    pub fn take_alarms(&mut self) -> Vec<Alarm> {
        std::mem::take(&mut self.alarms)
    }

    /// Remembers that the launch failed; if no record says otherwise, that is the outcome.
    pub fn launch_failed(&mut self, error: String) {
        self.launch_error = Some(error);
    }

    /// Names the recovery phase that a re-adopted run shows until its end.
    pub fn adopted(&mut self, phase: &str) {
        self.phase = Some(phase.to_owned());
        self.show_phase();
    }

    fn show_phase(&mut self) {
        if !self.run.state.is_terminal() && self.run.recovery_phase.is_none() {
            self.run.recovery_phase.clone_from(&self.phase);
        }
    }

    /// Orders a cancel; false when the end was observed already.
    pub fn cancel(&mut self) -> bool {
        if self.run.outcome.is_some() || self.run.state.is_terminal() {
            return false;
        }
        if !self.run.cancel_requested {
            self.push(RunEvent::CancelRequested);
            self.must_commit = true;
        }
        true
    }

    /// Takes the next record; one that was applied before a restart changes nothing.
    pub fn observe(&mut self, record: Record) {
        match record {
            Record::Supervising { .. } => self.reach_creating(),
            Record::Launching { .. } => self.reach_running(),
            Record::StartFailed { stage, detail, mismatch } => {
                if mismatch {
                    self.alarms.push(Alarm::Mismatch(format!(
                        "the container of run {} did not match the profile: {detail}",
                        self.run.intent.run_id
                    )));
                }
                self.end(Outcome::start_failed(format!("{stage}: {detail}")));
            }
            Record::Exited { ending, evidence } => {
                if self.run.outcome.is_some() {
                    return;
                }
                let changed = self.output_changed(&evidence);
                self.facts.output = Some(OutputSize {
                    stored_bytes: evidence.stored_bytes,
                    total_bytes: evidence.total_bytes,
                    truncated: evidence.total_bytes > evidence.stored_bytes,
                });
                self.facts.headroom = Some(Headroom {
                    memory_peak: evidence.memory_peak,
                    pids_peak: evidence.pids_peak,
                    cpu_ms: evidence.cpu_ms,
                    throttled_ms: evidence.throttled_ms,
                });
                // A supervisor that is cancelled before the launch tells an end without a launch.
                let mut outcome = if !self.launched && evidence.forced == Some(Forced::Cancel) {
                    Outcome::cancelled_before_start()
                } else {
                    judge(ending, &evidence, self.file_size)
                };
                // What was forced stays the cause (CMD.10).
                if let (Some(detail), None) = (changed, evidence.forced) {
                    (outcome.cause, outcome.detail) = (Cause::OutputChanged, detail);
                }
                self.end(outcome);
            }
            // A supervisor that removed knows whether it had let the command go.
            Record::Removed { left } => {
                self.finish(left, "the container was removed before its end was seen", true);
            }
        }
    }

    /// Ends the observation: no record will follow, and `left` is what a sweep could not remove. `why`
    /// tells how the supervisor was lost.
    pub fn over(&mut self, left: Vec<String>, why: &str) {
        // Only a sweep that came through keeps a late supervisor from letting the command go.
        let fenced = left.is_empty();
        self.finish(left, why, fenced);
    }

    fn finish(&mut self, left: Vec<String>, why: &str, fenced: bool) {
        if self.run.state.is_terminal() || self.run.cleanup == Cleanup::Uncertain {
            return;
        }
        if self.run.outcome.is_none() {
            self.measure_output();
            if self.launched {
                return self.lose(&left, format!("{why}; the exit status was not observed"));
            } else if !fenced {
                return self.lose(&left, format!("{why}; whether the command ran is not known"));
            } else if let Some(error) = self.launch_error.take() {
                self.end(Outcome::start_failed(error));
            } else if self.run.cancel_requested {
                self.end(Outcome::cancelled_before_start());
            } else {
                return self.lose(&left, format!("{why}; the command never ran"));
            }
        }
        if left.is_empty() {
            self.push(RunEvent::Removed);
        } else {
            self.alarm_left(&left);
            self.push(RunEvent::RemovalUncertain { left });
        }
        self.must_commit = true;
    }

    /// Tells what is kept of the output; due before an exit is observed and before the observation is over.
    pub fn output_found(&mut self, kept: Kept) {
        self.kept = Some(kept);
    }

    /// Why the kept output is not what the command wrote, if so: a stored prefix never changes (CMD.7).
    fn output_changed(&self, evidence: &Evidence) -> Option<String> {
        let (kept, recorded) = (self.kept.as_ref()?, evidence.output.as_ref()?);
        let length = usize::try_from(evidence.stored_bytes).unwrap_or(usize::MAX);
        match kept.bytes.get(..length) {
            Some(bytes) if Digest::of(bytes) == *recorded => None,
            Some(_) => Some(format!("the {length} stored bytes are not those that the command wrote")),
            None => Some(format!("{length} bytes were stored, {} are there", kept.bytes.len())),
        }
    }

    /// The size of the output where no record tells it.
    fn measure_output(&mut self) {
        if let Some(kept) = &self.kept {
            let stored_bytes = kept.bytes.len() as u64;
            let truncated = stored_bytes >= kept.most;
            self.facts.output = Some(OutputSize { stored_bytes, total_bytes: stored_bytes, truncated });
        }
    }

    fn lose(&mut self, left: &[String], detail: String) {
        self.push(RunEvent::Lost { detail });
        self.facts.cleanup = Some(if left.is_empty() { Cleanup::Confirmed } else { Cleanup::Uncertain });
        if !left.is_empty() {
            self.alarm_left(left);
        }
        self.must_commit = true;
    }

    fn end(&mut self, outcome: Outcome) {
        if self.run.outcome.is_none() && !self.run.state.is_terminal() {
            self.push(RunEvent::Ended { outcome });
            self.must_commit = true;
        }
    }

    fn reach_creating(&mut self) {
        if self.run.state == RunState::Requested {
            self.push(RunEvent::CreateAsked);
        }
    }

    fn reach_running(&mut self) {
        self.launched = true;
        self.reach_creating();
        if self.run.state == RunState::Creating {
            self.push(RunEvent::Launched);
        }
    }

    fn alarm_left(&mut self, left: &[String]) {
        self.alarms.push(Alarm::Left(left.to_vec()));
    }

    fn push(&mut self, event: RunEvent) {
        let mut next = self.run.clone();
        match apply(&mut next, &event) {
            Ok(()) => {
                self.run = next;
                self.pending.push(event);
            }
            // Only out-of-order records of a faulty backend lead here; the run keeps its state.
            Err(error) => tracing::error!(run = %self.run.intent.run_id, %error, "event ignored"),
        }
    }
}

#[cfg(test)]
mod tests;
