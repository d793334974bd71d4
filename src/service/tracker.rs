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
mod tests {
    use super::*;
    use crate::domain::ids::{ContainerId, ExecId};
    use crate::domain::outcome::{Cause, Ending, Evidence};
    use crate::ledger::apply::{requested, tests::intent};
    use proptest::prelude::*;

    /// What the world holds of one run: the supervisor's records, in order, and what a sweep leaves.
    #[derive(Clone, Debug)]
    struct World {
        records: Vec<Record>,
        left: Vec<String>,
    }

    fn world() -> impl Strategy<Value = World> {
        let left = || prop_oneof![3 => Just(vec![]), 1 => Just(vec!["cgroup".to_owned()])];
        let end = prop_oneof![
            (0u8..3).prop_map(|n| (Ending::Exited(n), None)),
            Just((Ending::Signalled(9), Some(Forced::Cancel))),
            Just((Ending::Signalled(9), Some(Forced::Deadline))),
            Just((Ending::Unknown, None)),
        ]
        .prop_map(|(ending, forced)| Record::Exited {
            ending,
            evidence: Evidence { forced, ..Default::default() },
        });
        let fail = any::<bool>().prop_map(|mismatch| Record::StartFailed {
            stage: "verify".into(),
            detail: String::new(),
            mismatch,
        });
        let unlaunched = || Record::Exited {
            ending: Ending::Unknown,
            evidence: Evidence { forced: Some(Forced::Cancel), ..Default::default() },
        };
        let start = || Record::Supervising { pid: 1, start_ticks: 1, container_id: ContainerId::fresh() };
        let launch = || Record::Launching { exec_id: ExecId::fresh(), pid: 2, start_ticks: 2 };
        let whole = prop_oneof![
            (end, left()).prop_map(move |(end, left)| vec![start(), launch(), end, Record::Removed { left }]),
            (fail, left()).prop_map(move |(fail, left)| vec![start(), fail, Record::Removed { left }]),
            left().prop_map(move |left| vec![start(), unlaunched(), Record::Removed { left }]),
            left().prop_map(move |left| vec![start(), Record::Removed { left }]),
            left().prop_map(move |left| vec![start(), launch(), Record::Removed { left }]),
        ];
        (whole, 0usize..5, left()).prop_map(|(mut records, kept, left)| {
            records.truncate(kept);
            World { records, left }
        })
    }

    /// The ledger as a model: its row and its events.
    struct Book {
        row: Run,
        events: Vec<RunEvent>,
        commits: u32,
    }

    impl Book {
        fn commit(&mut self, tracker: &mut Tracker) {
            if tracker.must_commit() {
                let (events, facts) = tracker.take_pending();
                for event in &events {
                    apply(&mut self.row, event).expect("a legal step");
                }
                facts.settle(&mut self.row);
                self.events.extend(events);
                self.commits += 1;
                tracker.committed(self.row.clone());
            }
        }
    }

    fn settled(run: &Run) -> bool {
        crate::service::settled(run)
    }

    fn exited(kept: &[u8], told: &[u8], stored: u64) -> Run {
        let mut tracker = Tracker::new(requested(intent()), 1);
        tracker.output_found(Kept { bytes: kept.to_vec(), most: 64 });
        tracker.observe(Record::Launching { exec_id: ExecId::fresh(), pid: 2, start_ticks: 2 });
        let evidence = Evidence {
            stored_bytes: stored,
            total_bytes: stored,
            output: Some(Digest::of(told)),
            ..Evidence::default()
        };
        tracker.observe(Record::Exited { ending: Ending::Exited(0), evidence });
        tracker.run().clone()
    }

    #[test]
    fn cmd10_what_was_forced_stays_the_cause_of_a_changed_output() {
        for (forced, cause) in [(Forced::Cancel, Cause::Cancelled), (Forced::Deadline, Cause::Deadline)] {
            let mut tracker = Tracker::new(requested(intent()), 1);
            tracker.output_found(Kept { bytes: vec![], most: 64 });
            tracker.observe(Record::Launching { exec_id: ExecId::fresh(), pid: 2, start_ticks: 2 });
            let evidence = Evidence {
                forced: Some(forced),
                stored_bytes: 3,
                output: Some(Digest::of(b"abc")),
                ..Evidence::default()
            };
            tracker.observe(Record::Exited { ending: Ending::Signalled(9), evidence });
            assert_eq!(tracker.run().outcome.as_ref().unwrap().cause, cause);
        }
    }

    #[test]
    fn cmd7_an_output_that_is_not_what_was_written_fails_the_run() {
        let cause = |run: Run| run.outcome.map(|outcome| (outcome.cause, outcome.exit_code));
        assert_eq!(cause(exited(b"abc", b"abc", 3)), Some((Cause::Exited, Some(0))));
        assert_eq!(cause(exited(b"", b"", 0)), Some((Cause::Exited, Some(0))));
        // What lies behind the recorded length was never told to anybody.
        assert_eq!(cause(exited(b"abcd", b"abc", 3)), Some((Cause::Exited, Some(0))));
        for kept in [&b"abX"[..], b"ab", b""] {
            assert_eq!(cause(exited(kept, b"abc", 3)), Some((Cause::OutputChanged, Some(0))), "{kept:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        /// Crashes and cancels at any point, with all records replayed after each crash, give legal steps,
        /// one end, one removal and an outcome that the records bear out.
        #[test]
        fn cmd8_any_crash_and_cancel_gives_one_end_that_the_records_bear_out(
            world in world(),
            crashes in prop::collection::vec(0usize..5, 0..4),
            cancel in prop::option::of(0usize..5),
        ) {
            let mut book = Book { row: requested(intent()), events: vec![], commits: 1 };
            let mut cancelled = false;
            for stop in crashes.iter().copied().map(Some).chain([None]) {
                if settled(&book.row) {
                    break;
                }
                let mut tracker = Tracker::new(book.row.clone(), 1);
                for (n, record) in world.records.iter().cloned().enumerate() {
                    if stop == Some(n) || settled(tracker.run()) {
                        break;
                    }
                    if cancel == Some(n) && !cancelled && tracker.cancel() {
                        cancelled = true;
                        book.commit(&mut tracker);
                        prop_assert!(book.row.cancel_requested);
                    }
                    tracker.observe(record);
                    book.commit(&mut tracker);
                }
                if stop.is_none() && !settled(tracker.run()) {
                    tracker.over(world.left.clone(), "lost");
                    book.commit(&mut tracker);
                }
            }
            let run = &book.row;
            prop_assert!(settled(run), "{:?}", run);
            let count = |f: fn(&RunEvent) -> bool| book.events.iter().filter(|e| f(e)).count();
            prop_assert_eq!(count(|e| matches!(e, RunEvent::Ended { .. } | RunEvent::Lost { .. })), 1);
            let removals = count(|e| matches!(e, RunEvent::Removed | RunEvent::RemovalUncertain { .. }));
            prop_assert!(removals <= 1);
            let cancels = count(|e| matches!(e, RunEvent::CancelRequested));
            prop_assert!(cancels <= 1);
            let launches = count(|e| matches!(e, RunEvent::Launched));
            let launching = world.records.iter().filter(|r| matches!(r, Record::Launching { .. })).count();
            prop_assert!(launches <= launching, "no launch is told that was not recorded");
            let removed = world.records.iter().find_map(|r| match r {
                Record::Removed { left } => Some(left.is_empty()),
                _ => None,
            });
            let clean = removed.unwrap_or(world.left.is_empty());
            prop_assert_eq!(run.cleanup, if clean { Cleanup::Confirmed } else { Cleanup::Uncertain });
            let has = |f: fn(&Record) -> bool| world.records.iter().any(f);
            let outcome = run.outcome.as_ref().expect("an outcome");
            if has(|r| matches!(r, Record::Exited { .. })) {
                prop_assert_eq!(run.state.is_terminal(), clean);
                prop_assert!(run.state == RunState::Finished || !clean);
            } else if has(|r| matches!(r, Record::StartFailed { .. })) {
                prop_assert_eq!(outcome.cause, Cause::StartFailed);
            } else {
                // Nobody saw an exit, so none may be told.
                prop_assert_eq!(outcome.exit_code, None);
                let told = removed.is_some() || world.left.is_empty();
                let never_ran = !has(|r| matches!(r, Record::Launching { .. })) && told;
                prop_assert_eq!(outcome.detail.contains("is not known"), !told && launching == 0);
                let want = if never_ran && run.cancel_requested { Cause::Cancelled } else { Cause::Interrupted };
                prop_assert_eq!(outcome.cause, want);
            }
            if cancel.is_none() && crashes.is_empty() {
                prop_assert!(book.commits <= 3);
            }
        }
    }
}
