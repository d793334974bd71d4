//! The cells that strike at a point: row × point × side × mode.

use crate::checker::{self, Findings};
use crate::child::{Child, LONG, PLAIN, Place};
use crate::report::{Cell, Report};
use crate::service::Ask;
use crate::trial;
use libtest_mimic::Trial;
use salaam::domain::ids::SessionId;
use salaam::domain::outcome::Cause;
use salaam::domain::run::{Cleanup, Run};
use salaam::service::settled;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How a point is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// SIGKILL at the point.
    Kill,
    /// The error once; the process goes on.
    Once(&'static str),
    /// The error from then on.
    Sticky(&'static str),
    /// SIGKILL at the point, and again during the recovery.
    KillTwice,
}

pub const MODES: [Mode; 6] = [
    Mode::Kill,
    Mode::Once("EIO"),
    Mode::Sticky("EIO"),
    Mode::Once("ENOSPC"),
    Mode::Sticky("ENOSPC"),
    Mode::KillTwice,
];

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "SIGKILL",
            Self::Once("EIO") => "EIO once",
            Self::Sticky("EIO") => "EIO from then on",
            Self::Once("EBUSY") => "EBUSY once",
            Self::Sticky("EBUSY") => "EBUSY from then on",
            Self::Once("EROFS") => "EROFS once",
            Self::Sticky("EROFS") => "EROFS from then on",
            Self::Once(_) => "ENOSPC once",
            Self::Sticky(_) => "ENOSPC from then on",
            Self::KillTwice => "SIGKILL, and again in recovery",
        }
    }

    pub fn action_in_service(self) -> String {
        self.action(At::Service)
    }

    fn action(self, at: At) -> String {
        match self {
            // Else the service might settle the run before it is killed itself.
            Self::KillTwice if at == At::Supervisor => "1*return(kill_both)".into(),
            Self::Kill | Self::KillTwice => "1*return(kill)".into(),
            Self::Once(error) => format!("1*return({error})"),
            Self::Sticky(error) => format!("return({error})"),
        }
    }

    pub fn kills(self) -> bool {
        matches!(self, Self::Kill | Self::KillTwice)
    }
}

/// Which process passes a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Service,
    Supervisor,
}

/// A point of the table.
#[derive(Clone, Copy)]
struct Point {
    row: &'static str,
    /// With its side, as `fault` spells it.
    name: &'static str,
    at: At,
    /// Tasks of `fail` before the one that strikes.
    skip: &'static str,
    /// Faults beside it, that lead to the point.
    beside: &'static str,
    /// Whether the command is cancelled.
    cancel: bool,
    /// How the run may end when the point kills, and when it answers an error.
    killed: &'static [Cause],
    failed: &'static [Cause],
    /// Why errors do not apply, if so.
    no_error: Option<&'static str>,
}

impl Point {
    fn is_commit(&self) -> bool {
        self.name.starts_with("commit.")
    }
}

const EXITED: &[Cause] = &[Cause::Exited];
const CANCELLED: &[Cause] = &[Cause::Cancelled];
const LOST: &[Cause] = &[Cause::Interrupted];
const FAILED: &[Cause] = &[Cause::StartFailed];
/// The truth stands in a file that a kill may or may not leave behind: both are true.
const EITHER: &[Cause] = &[Cause::Exited, Cause::Interrupted];

const fn point(
    row: &'static str,
    name: &'static str,
    at: At,
    killed: &'static [Cause],
    failed: &'static [Cause],
) -> Point {
    Point { row, name, at, skip: "", beside: "", cancel: false, killed, failed, no_error: None }
}

const fn cancelled(mut point: Point) -> Point {
    point.cancel = true;
    point
}

/// The exit is committed before the removal is known: otherwise one commit may hold both.
const fn slow_removal(mut point: Point) -> Point {
    point.beside = "rmdir.before=1*sleep(150);";
    point
}

const POINTS: &[Point] = &[
    point("B1", "commit.intent.before", At::Service, EXITED, EXITED),
    point("B1", "commit.intent.after", At::Service, LOST, LOST),
    point("B2", "rundir.before", At::Service, LOST, FAILED),
    point("B2", "rundir.after", At::Service, LOST, FAILED),
    // The supervisor lives, and may have its lock already or not.
    point("B2", "spawn.after", At::Service, EITHER, EITHER),
    point("B3", "record.supervising.before", At::Supervisor, LOST, LOST),
    point("B3", "record.supervising.after", At::Supervisor, LOST, LOST),
    point("B3", "cgroup.before", At::Supervisor, LOST, FAILED),
    point("B3", "cgroup.after", At::Supervisor, LOST, FAILED),
    point("B3", "create.before", At::Supervisor, LOST, FAILED),
    point("B3", "create.after", At::Supervisor, LOST, FAILED),
    Point {
        beside: "create.before=1*return(EIO);",
        ..point("B3", "record.start_failed.before", At::Supervisor, LOST, LOST)
    },
    Point {
        beside: "create.before=1*return(EIO);",
        ..point("B3", "record.start_failed.after", At::Supervisor, FAILED, FAILED)
    },
    point("B4", "record.launching.before", At::Supervisor, LOST, FAILED),
    point("B4", "record.sync.before", At::Supervisor, LOST, FAILED),
    point("B4", "record.launching.after", At::Supervisor, LOST, FAILED),
    point("B4", "go.before", At::Supervisor, LOST, FAILED),
    Point {
        no_error: Some("the gate is open: nothing is left that could fail"),
        ..point("B4", "go.after", At::Supervisor, LOST, &[])
    },
    point("B6", "record.exited.before", At::Supervisor, LOST, LOST),
    Point { skip: "1*off->", ..point("B6", "record.sync.before", At::Supervisor, EITHER, EITHER) },
    point("B6", "record.exited.after", At::Supervisor, EXITED, EXITED),
    point("B7", "commit.exit.before", At::Service, EXITED, EXITED),
    point("B7", "commit.exit.after", At::Service, EXITED, EXITED),
    slow_removal(point("B7", "commit.removal.before", At::Service, EXITED, EXITED)),
    slow_removal(point("B7", "commit.removal.after", At::Service, EXITED, EXITED)),
    point("B7", "forget.before", At::Service, EXITED, EXITED),
    cancelled(point("B9", "commit.cancel.before", At::Service, CANCELLED, CANCELLED)),
    cancelled(point("B9", "commit.cancel.after", At::Service, CANCELLED, CANCELLED)),
    cancelled(Point {
        no_error: Some("the order goes to a pidfd; its failure is the sweep's case (B18)"),
        ..point("B9", "cancel.before", At::Service, CANCELLED, &[])
    }),
    cancelled(Point {
        no_error: Some("the order was sent: nothing is left that could fail"),
        ..point("B9", "cancel.after", At::Service, CANCELLED, &[])
    }),
    cancelled(point("B9", "record.exited.before", At::Supervisor, LOST, LOST)),
    cancelled(point("B9", "record.exited.after", At::Supervisor, CANCELLED, CANCELLED)),
    point("B11", "rmdir.before", At::Supervisor, EXITED, EXITED),
    point("B11", "rmdir.after", At::Supervisor, EXITED, EXITED),
    point("B11", "record.removed.before", At::Supervisor, EXITED, EXITED),
    point("B11", "record.removed.after", At::Supervisor, EXITED, EXITED),
];

/// What kills a recovery, by turns; which of a line strikes depends on where the first kill left the run.
const RECOVERY: &[&str] = &[
    "commit.recovery.before=1*return(kill);commit.exit.before=1*return(kill);commit.removal.before=1*return(kill)",
    "commit.recovery.after=1*return(kill);commit.exit.after=1*return(kill);commit.removal.after=1*return(kill)",
    "forget.before=1*return(kill)",
    "sweep.before=1*return(kill);commit.exit.before=1*return(kill);commit.removal.before=1*return(kill)",
];
/// What kills a recovery that only observes a living command again.
const ADOPTION: &str = "adopt.before=1*return(kill)";

pub fn trials(report: &Arc<Mutex<Report>>) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut turn = 0;
    for point in POINTS {
        let busy: &[Mode] = match point.row {
            "B11" => &[Mode::Once("EBUSY"), Mode::Sticky("EBUSY")],
            _ if point.name.starts_with("commit.") => &[Mode::Sticky("EROFS")],
            _ => &[],
        };
        for mode in MODES.iter().chain(busy) {
            turn += 1;
            let (report, turn) = (Arc::clone(report), turn);
            let name = format!("{}_{}{}_{}", point.row, point.skip.len(), point.name, mode.name());
            trials.push(trial(name.to_lowercase().replace([' ', ','], "_"), move || {
                let cell = run(point, *mode, turn, &report);
                let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                let label = if point.skip.is_empty() { String::new() } else { " (of the exit)".into() };
                report.enter(point.row, &format!("{}{label}", point.name), mode.name(), cell);
            }));
        }
    }
    trials
}

fn run(point: &Point, mode: Mode, turn: usize, report: &Mutex<Report>) -> Cell {
    if let (false, Some(reason)) = (mode.kills(), point.no_error) {
        return Cell::None(reason);
    }
    let mut place = Place::new();
    place.cancelled = point.cancel;
    let mut faults = format!("{}{}={}{}", point.beside, point.name, point.skip, mode.action(point.at));
    if let (Mode::Sticky(error), true) = (mode, point.is_commit()) {
        // Nor can the ledger be opened again while the error stays.
        faults.push_str(&format!(";reopen.before=return({error})"));
    }
    let (mut first, said) = place.serve(&faults);
    assert!(said.is_some_and(|said| said["ready"] == true), "the first start");
    let session = first.session(&place);
    let other = first.session(&place);
    work(point, &mut place, &mut first, &session);
    until_struck(&place, point);
    match mode {
        Mode::Kill => after_a_kill(point, &mut place, first, &session),
        Mode::Once(_) => after_an_error(point, &mut place, first, &session),
        Mode::Sticky(_) => under_errors(point, &mut place, first, &session, &other),
        Mode::KillTwice => {
            first.kill();
            if let Some(reason) = second_kill(&place, turn) {
                return Cell::None(reason);
            }
        }
    }
    let end = last_service(point, &mut place, &session);
    let outcome = end.outcome.as_ref().unwrap();
    let allowed = if mode.kills() { point.killed } else { point.failed };
    let findings = checker::check(&place);
    report.lock().unwrap_or_else(PoisonError::into_inner).found(&findings);
    assert!(findings.is_clean(), "{findings:#?}\n{}", story(&place));
    assert!(allowed.contains(&outcome.cause), "{outcome:?} is none of {allowed:?}\n{}", story(&place));
    Cell::Swept { strikes: place.strikes(), end: format!("{:?}", outcome.cause) }
}

/// The log and the trace of a place, for a failure.
pub fn story(place: &Place) -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    format!("log:\n{}\ntrace:\n{}", read(place.path().join("log")), read(place.trace()))
}

/// Starts the command and takes it as far as it goes.
fn work(point: &Point, place: &mut Place, service: &mut Child, session: &SessionId) {
    let command = if point.cancel { LONG } else { PLAIN };
    let Some(Ok(run)) = service.run(&start(session, command)) else { return };
    let id = run.intent.run_id;
    place.acknowledged.push(id.clone());
    if point.cancel {
        let running = Ask::Running { session: session.clone(), run: id.clone() };
        let cancel = Ask::Cancel { session: session.clone(), run: id.clone() };
        if service.run(&running).is_some() && matches!(service.run(&cancel), Some(Ok(_))) {
            place.cancels.push(id);
        }
    }
}

pub fn start(session: &SessionId, command: &str) -> Ask {
    Ask::Start { session: session.clone(), key: "k".into(), command: command.into() }
}

fn until_struck(place: &Place, point: &Point) {
    let end = Instant::now() + Duration::from_secs(15);
    let name = point.name;
    while !place.traced().iter().any(|line| line[0] == "struck" && line[1] == name) {
        assert!(Instant::now() < end, "{name} was not struck\n{}", story(place));
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// The supervisor was killed: the service settles the run by itself. Or the service was killed.
fn after_a_kill(point: &Point, place: &mut Place, mut service: Child, session: &SessionId) {
    match point.at {
        At::Service => service.kill(),
        At::Supervisor => {
            let run = place.acknowledged[0].clone();
            let end = service.run(&Ask::Settled { session: session.clone(), run }).unwrap().unwrap();
            assert!(settled(&end));
            place.told(&end);
            service.stop();
        }
    }
}

/// The error is over: the service mends itself, settles what it can and grants again.
fn after_an_error(point: &Point, place: &mut Place, mut service: Child, session: &SessionId) {
    service.until_ready();
    for run in place.acknowledged.clone() {
        if point.cancel {
            let cancel = Ask::Cancel { session: session.clone(), run: run.clone() };
            service.run(&cancel).unwrap().unwrap();
        }
        let end = service.run(&Ask::Settled { session: session.clone(), run }).unwrap().unwrap();
        assert!(end.state.is_terminal(), "{end:?}\n{}", story(place));
        place.told(&end);
    }
    service.until_ready();
    service.stop();
}

/// The error stays: reads are answered, and what depends on the ledger is refused at once.
fn under_errors(
    point: &Point,
    place: &mut Place,
    mut service: Child,
    session: &SessionId,
    other: &SessionId,
) {
    let quick = Instant::now();
    assert!(service.ask(&Ask::Status).is_some());
    let runs = service.ask(&Ask::Runs { session: session.clone() }).unwrap();
    assert!(runs.is_array(), "{runs}");
    if point.is_commit() {
        // One operation failed; the next is refused, in another workspace too.
        let refused =
            service.run(&Ask::Start { session: other.clone(), key: "other".into(), command: "true".into() });
        let refused = refused.unwrap().unwrap_err();
        assert_eq!(refused["code"], "not_ready", "{refused}");
        assert!(!service.ready());
    } else if point.row == "B11" && point.name == "rmdir.before" {
        // Nothing can be removed: uncertain after at most the bound, and no grants; nor does reconcile guess.
        let run = place.acknowledged[0].clone();
        let ask = Ask::Settled { session: session.clone(), run: run.clone() };
        let end = service.run(&ask).unwrap().unwrap();
        assert_eq!(end.cleanup, Cleanup::Uncertain);
        assert!(!service.ready());
        let refused = service.run(&Ask::Reconcile { session: session.clone(), run }).unwrap().unwrap_err();
        assert_eq!(refused["code"], "not_ready", "{refused}");
        service.kill();
        return;
    }
    assert!(quick.elapsed() < Duration::from_secs(1), "{:?}", quick.elapsed());
    if !point.is_commit() && !point.cancel {
        let run = place.acknowledged[0].clone();
        let end = service.run(&Ask::Settled { session: session.clone(), run }).unwrap().unwrap();
        assert!(settled(&end));
        place.told(&end);
    }
    service.kill();
}

/// Kills the recovery; answers why not, if it does nothing that could be killed.
pub fn second_kill(place: &Place, turn: usize) -> Option<&'static str> {
    if unsettled(place) == 0 {
        return Some("the first kill leaves nothing to recover");
    }
    let before = place.strikes();
    for faults in [RECOVERY[turn % RECOVERY.len()], ADOPTION] {
        let (mut second, said) = place.serve(faults);
        let end = Instant::now() + Duration::from_secs(3);
        while said.is_some() && second.is_alive() && place.strikes() == before && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        second.kill();
        if place.strikes() > before {
            return None;
        }
    }
    panic!("the recovery was not struck\n{}", story(place));
}

fn unsettled(place: &Place) -> i64 {
    let path = place.setup.state.join("ledger.db");
    let db = rusqlite::Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    db.busy_timeout(Duration::from_secs(5)).unwrap();
    db.query_row("SELECT count(*) FROM runs WHERE open = 1 OR uncertain = 1", [], |row| row.get(0)).unwrap()
}

/// A service without faults has the last word: the same key answers the one run, settled.
fn last_service(point: &Point, place: &mut Place, session: &SessionId) -> Run {
    let mut service = place.healthy();
    for run in place.acknowledged.clone() {
        if point.cancel {
            service.run(&Ask::Cancel { session: session.clone(), run }).unwrap().unwrap();
        }
    }
    let command = if point.cancel { LONG } else { PLAIN };
    let answered = service.run(&start(session, command)).unwrap().unwrap_or_else(|e| panic!("{e}"));
    let id = answered.intent.run_id;
    if let Some(first) = place.acknowledged.first() {
        assert_eq!(*first, id, "the key answers another run");
    }
    place.acknowledged.push(id.clone());
    let mut ask = |ask: &Ask| -> Result<Run, Value> { service.run(ask).unwrap() };
    let end = ask(&Ask::Settled { session: session.clone(), run: id.clone() }).unwrap();
    // Asked once more, by key and by id: the end does not change.
    assert_eq!(ask(&start(session, command)).unwrap(), end);
    assert_eq!(ask(&Ask::Run { session: session.clone(), run: id }).unwrap(), end);
    service.until_ready();
    service.stop();
    end
}

/// Checks a place and enters it in the report; panics when something is wrong.
pub fn conclude(place: &Place, report: &Mutex<Report>) -> Findings {
    let findings = checker::check(place);
    report.lock().unwrap_or_else(PoisonError::into_inner).found(&findings);
    assert!(findings.is_clean(), "{findings:#?}\n{}", story(place));
    findings
}
