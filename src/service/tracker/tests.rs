//! Records, orders and crashes, one by one and against a model.

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

fn fresh() -> Tracker {
    Tracker::new(requested(intent()), 1)
}

fn launch(tracker: &mut Tracker) {
    tracker.observe(Record::Launching { exec_id: ExecId::fresh(), pid: 2, start_ticks: 2 });
}

fn exit(forced: Option<Forced>, stored_bytes: u64, total_bytes: u64) -> Record {
    let evidence = Evidence { forced, stored_bytes, total_bytes, ..Evidence::default() };
    let ending = if forced.is_some() { Ending::Signalled(9) } else { Ending::Exited(3) };
    Record::Exited { ending, evidence }
}

#[test]
fn cmd4_records_move_the_run_and_give_their_events_once() {
    let supervising = || Record::Supervising { pid: 1, start_ticks: 1, container_id: ContainerId::fresh() };
    let mut tracker = fresh();
    tracker.observe(supervising());
    assert_eq!((tracker.run().state, tracker.must_commit()), (RunState::Creating, false));
    launch(&mut tracker);
    assert_eq!((tracker.run().state, tracker.must_commit()), (RunState::Running, false));
    tracker.observe(exit(None, 0, 0));
    assert_eq!((tracker.run().state, tracker.must_commit()), (RunState::Finishing, true));
    let (events, _) = tracker.take_pending();
    assert!(matches!(events[..], [RunEvent::CreateAsked, RunEvent::Launched, RunEvent::Ended { .. }]));
    // Read once more, as after a restart, they change nothing.
    tracker.observe(supervising());
    launch(&mut tracker);
    tracker.observe(exit(None, 9, 9));
    tracker.observe(Record::StartFailed { stage: "x".into(), detail: "x".into(), mismatch: false });
    assert!(!tracker.must_commit() && tracker.take_pending() == (vec![], Facts::default()));
    tracker.observe(Record::Removed { left: vec![] });
    assert_eq!(
        (tracker.run().state, tracker.take_pending().0),
        (RunState::Finished, vec![RunEvent::Removed])
    );
    // A launch that is the first thing seen tells the creation with it.
    let mut tracker = fresh();
    launch(&mut tracker);
    assert_eq!(tracker.take_pending().0, [RunEvent::CreateAsked, RunEvent::Launched]);
}

#[test]
fn cmd9_a_lost_run_is_uncertain_exactly_if_something_is_left() {
    for (left, cleanup) in [(vec![], Cleanup::Confirmed), (vec!["cgroup".to_owned()], Cleanup::Uncertain)] {
        let mut tracker = fresh();
        launch(&mut tracker);
        tracker.over(left.clone(), "lost");
        assert_eq!(tracker.take_pending().1.cleanup, Some(cleanup));
        let want = if left.is_empty() { vec![] } else { vec![Alarm::Left(left)] };
        assert_eq!(tracker.take_alarms(), want);
    }
}

#[test]
fn cmd8_a_phase_is_shown_until_the_end_and_never_over_another() {
    let mut tracker = fresh();
    tracker.adopted("adopted");
    assert_eq!(tracker.run().recovery_phase.as_deref(), Some("adopted"));
    // The ledger's row is the truth, and the phase is shown on it too.
    let mut row = tracker.run().clone();
    (row.recovery_phase, row.cancel_requested) = (None, true);
    tracker.committed(row.clone());
    assert!(tracker.run().cancel_requested);
    assert_eq!(tracker.run().recovery_phase.as_deref(), Some("adopted"));
    row.recovery_phase = Some("reconcile".into());
    tracker.committed(row.clone());
    assert_eq!(tracker.run().recovery_phase.as_deref(), Some("reconcile"));
    (row.recovery_phase, row.state) = (None, RunState::Finished);
    tracker.committed(row);
    assert_eq!(tracker.run().recovery_phase, None);
}

#[test]
fn cmd5_a_cancel_is_taken_until_the_end_is_seen_and_ordered_once() {
    let mut tracker = fresh();
    assert!(tracker.cancel() && tracker.must_commit());
    assert_eq!(tracker.take_pending().0, [RunEvent::CancelRequested]);
    assert!(tracker.cancel() && !tracker.must_commit(), "ordered once");
    launch(&mut tracker);
    tracker.observe(exit(None, 0, 0));
    assert!(!tracker.cancel());
    assert!(!tracker.take_pending().0.contains(&RunEvent::CancelRequested));
}

#[test]
fn cmd4_a_failed_launch_is_the_outcome_unless_a_record_says_otherwise() {
    let mut tracker = fresh();
    tracker.launch_failed("no such file".into());
    tracker.over(vec![], "lost");
    let outcome = tracker.run().outcome.clone().unwrap();
    assert_eq!((outcome.cause, outcome.detail.as_str()), (Cause::StartFailed, "no such file"));
    let mut tracker = fresh();
    tracker.launch_failed("no such file".into());
    launch(&mut tracker);
    tracker.observe(exit(None, 0, 0));
    tracker.over(vec![], "lost");
    assert_eq!(tracker.run().outcome.as_ref().unwrap().exit_code, Some(3));
}

#[test]
fn cmd5_only_a_cancel_before_the_launch_tells_an_end_without_one() {
    let end = |launched: bool, forced| {
        let mut tracker = fresh();
        if launched {
            launch(&mut tracker);
        }
        tracker.observe(exit(forced, 0, 0));
        let outcome = tracker.run().outcome.clone().unwrap();
        (outcome.cause, outcome.exit_code)
    };
    assert_eq!(end(false, Some(Forced::Cancel)), (Cause::Cancelled, None));
    assert_eq!(end(true, Some(Forced::Cancel)), (Cause::Cancelled, Some(137)));
    assert_eq!(end(false, Some(Forced::Deadline)), (Cause::Deadline, Some(137)));
    assert_eq!(end(true, None), (Cause::Exited, Some(3)));
}

#[test]
fn cmd7_output_is_truncated_exactly_if_more_was_written_than_kept() {
    for (stored, total, truncated) in [(0, 0, false), (5, 5, false), (5, 6, true)] {
        let mut tracker = fresh();
        launch(&mut tracker);
        tracker.observe(exit(None, stored, total));
        let output = tracker.take_pending().1.output.unwrap();
        assert_eq!((output.stored_bytes, output.total_bytes), (stored, total));
        assert_eq!(output.truncated, truncated, "{stored} of {total}");
    }
    // Without a record the file tells: at the bound more may have come.
    for (kept, truncated) in [(3, false), (4, true)] {
        let mut tracker = fresh();
        launch(&mut tracker);
        tracker.output_found(Kept { bytes: vec![0; kept], most: 4 });
        tracker.over(vec![], "lost");
        assert_eq!(tracker.take_pending().1.output.unwrap().truncated, truncated);
    }
}

#[test]
fn cmd9_alarms_are_raised_once_each() {
    let mut tracker = fresh();
    tracker.observe(Record::StartFailed { stage: "verify".into(), detail: "x".into(), mismatch: true });
    tracker.over(vec!["cgroup".into()], "lost");
    let alarms = tracker.take_alarms();
    assert!(
        matches!(&alarms[..], [Alarm::Mismatch(_), Alarm::Left(left)] if left == &["cgroup"]),
        "{alarms:?}"
    );
    assert!(tracker.take_alarms().is_empty());
    // What is settled or uncertain is not ended again.
    tracker.take_pending();
    tracker.over(vec![], "lost");
    assert!(!tracker.must_commit() && tracker.take_pending().0.is_empty());
}

fn exited(kept: &[u8], told: &[u8], stored: u64) -> Run {
    let mut tracker = fresh();
    tracker.output_found(Kept { bytes: kept.to_vec(), most: 64 });
    launch(&mut tracker);
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
        let mut tracker = fresh();
        tracker.output_found(Kept { bytes: vec![], most: 64 });
        launch(&mut tracker);
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
