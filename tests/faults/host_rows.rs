//! Rows without a point: signals and kills from outside, clocks and boots.

use crate::cells::{conclude, second_kill, start, story};
use crate::child::{LONG, PLAIN, Place, STATUS};
use crate::report::{Cell, Report};
use crate::service::Ask;
use crate::trial;
use crate::{disk_rows, pid_namespace, starts};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use salaam::domain::ids::{RunId, SessionId};
use salaam::domain::outcome::Cause;
use salaam::domain::record::Record;
use salaam::domain::run::{Cleanup, Run, RunState};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub type Row = (&'static str, &'static str, &'static str, fn(&Mutex<Report>) -> Cell);

const ROWS: &[Row] = &[
    ("B7", "recovery: the commit, before", "EIO", |r| {
        in_recovery(r, "commit.recovery.before=1*return(EIO)", true)
    }),
    ("B7", "recovery: the commit, before", "ENOSPC", |r| {
        in_recovery(r, "commit.recovery.before=return(ENOSPC)", true)
    }),
    ("B7", "recovery: the commit, after", "EIO", |r| {
        in_recovery(r, "commit.recovery.after=1*return(EIO)", true)
    }),
    ("B7", "recovery: the commit, after", "ENOSPC", |r| {
        in_recovery(r, "commit.recovery.after=return(ENOSPC)", true)
    }),
    ("B7", "recovery: the sweep", "EIO", |r| in_recovery(r, "sweep.before=return(EIO)", false)),
    ("B7", "recovery: the sweep", "ENOSPC", |r| in_recovery(r, "sweep.before=1*return(ENOSPC)", false)),
    ("B7", "recovery: the deletion", "EIO", |r| in_recovery(r, "forget.before=return(EIO)", false)),
    ("B12", "opening the ledger again", "EIO twice", |r| reopens(r, "EIO")),
    ("B12", "opening the ledger again", "ENOSPC twice", |r| reopens(r, "ENOSPC")),
    ("B12", "uncertain cleanup in a failing commit", "EBUSY and EIO", |r| uncertain_and_unrecorded(r)),
    ("B5", "a command runs", "SIGKILL of the service", |r| service_ends(r, End::Kill, false)),
    ("B5", "a command runs", "SIGTERM of the service", |r| service_ends(r, End::Stop, false)),
    ("B5", "a command runs", "OOM kill of the service", |r| service_ends(r, End::Oom, false)),
    ("B5", "a command runs", "SIGKILL, and again in recovery", |r| service_ends(r, End::Kill, true)),
    ("B5", "a command runs", "EIO, ENOSPC", |_| {
        Cell::None("a running command asks nothing of the service's disk")
    }),
    ("B8", "exit while the service is down", "SIGKILL of the service", |r| exits_alone(r, false)),
    ("B8", "exit while the service is down", "SIGKILL, and again in recovery", |r| exits_alone(r, true)),
    ("B8", "exit while the service is down", "EIO, ENOSPC", |_| {
        Cell::None("the supervisor's own records: B6; their reading in recovery: B7")
    }),
    ("B9", "cancel, then restart at once", "SIGTERM of the service", |r| stop_in_cancel(r)),
    ("B15", "process id of a dead supervisor", "forced reuse", |_| pid_namespace::reuse()),
    ("B16", "another boot, the command ran", "boot id changed", |r| reboot(r, false)),
    ("B16", "another boot, the exit was recorded", "boot id changed", |r| reboot(r, true)),
    ("B17", "wall clock", "±1 h and ±10 years", |r| clock(r)),
    ("B17", "wall clock", "SIGKILL, EIO, ENOSPC", |_| {
        Cell::None("a clock that jumps fails nothing; see the other rows")
    }),
    ("B18", "a command runs", "SIGKILL of the supervisor", |r| supervisor_killed(r, false)),
    ("B18", "a command runs", "SIGKILL of supervisor and service, and again in recovery", |r| {
        supervisor_killed(r, true)
    }),
    ("B18", "a command runs", "SIGSTOP of the supervisor, cancel", |r| supervisor_stopped(r, true)),
    ("B18", "a command runs", "SIGSTOP of the supervisor, deadline", |r| supervisor_stopped(r, false)),
];

pub fn trials(report: &Arc<Mutex<Report>>) -> Vec<Trial> {
    let tables = [ROWS, starts::ROWS, disk_rows::ROWS];
    tables
        .into_iter()
        .flatten()
        .map(|(row, point, mode, case)| {
            let report = Arc::clone(report);
            let name = format!("{row}_{point}_{mode}").to_lowercase().replace([' ', ',', ';'], "_");
            trial(name, move || {
                let cell = case(&report);
                report.lock().unwrap_or_else(PoisonError::into_inner).enter(row, point, mode, cell);
            })
        })
        .collect()
}

pub fn swept(end: impl std::fmt::Debug) -> Cell {
    // The fault of these rows is done by the row itself.
    Cell::Swept { strikes: 1, end: format!("{end:?}") }
}

/// A service with a command that runs; answers session and run.
fn running(place: &mut Place, command: &str) -> (crate::child::Child, SessionId, RunId) {
    let mut service = place.healthy();
    let session = service.session(place);
    let run = service.run(&start(&session, command)).unwrap().unwrap();
    let id = run.intent.run_id;
    place.acknowledged.push(id.clone());
    let now = service.run(&Ask::Running { session: session.clone(), run: id.clone() }).unwrap().unwrap();
    assert_eq!(now.state, RunState::Running);
    (service, session, id)
}

pub fn settled(service: &mut crate::child::Child, session: &SessionId, run: &RunId) -> Run {
    let ask = Ask::Settled { session: session.clone(), run: run.clone() };
    service.run(&ask).unwrap().unwrap()
}

pub fn cause(run: &Run) -> Cause {
    run.outcome.as_ref().unwrap().cause
}

fn exit_code(run: &Run) -> Option<u8> {
    run.outcome.as_ref().unwrap().exit_code
}

/// An error in the recovery of a run whose supervisor and service are gone: the start is denied, or the
/// service opens without readiness, or only a deletion waits; the next start mends it.
fn in_recovery(report: &Mutex<Report>, faults: &str, denied: bool) -> Cell {
    let mut place = Place::new();
    let (mut service, session, run) = running(&mut place, LONG);
    service.kill();
    let pid = supervisor(&place, &run);
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    // Until then its lock is held, and the run would be adopted.
    until("the supervisor's end", &place, || !is_running(pid));
    let before = place.strikes();
    let (mut second, said) = place.serve(faults);
    let said = said.unwrap();
    assert!(place.strikes() > before, "not struck");
    if denied {
        assert_eq!(said["denied"]["code"], "not_ready", "{said}");
    } else if faults.starts_with("sweep") {
        assert_eq!(said["ready"], false, "{said}");
        assert!(said["reason"].to_string().contains("uncertain"), "{said}");
    } else {
        assert_eq!(said["ready"], true, "{said}");
    }
    second.kill();
    let mut service = place.healthy();
    let last = settled(&mut service, &session, &run);
    assert_eq!(
        (cause(&last), exit_code(&last), last.cleanup),
        (Cause::Interrupted, None, Cleanup::Confirmed)
    );
    service.until_ready();
    service.stop();
    conclude(&place, report);
    swept(cause(&last))
}

/// The first two attempts to open the ledger again fail too.
fn reopens(report: &Mutex<Report>, error: &str) -> Cell {
    let mut place = Place::new();
    let faults = format!("commit.exit.before=1*return({error});reopen.before=2*return({error})");
    let (mut service, said) = place.serve(&faults);
    assert_eq!(said.unwrap()["ready"], true);
    let session = service.session(&place);
    let run = service.run(&start(&session, PLAIN)).unwrap().unwrap().intent.run_id;
    place.acknowledged.push(run.clone());
    let last = settled(&mut service, &session, &run);
    assert_eq!((cause(&last), exit_code(&last)), (Cause::Exited, Some(STATUS)));
    place.told(&last);
    service.until_ready();
    let struck = |point: &str| place.traced().iter().filter(|l| l[0] == "struck" && l[1] == point).count();
    assert_eq!((struck("commit.exit.before"), struck("reopen.before")), (1, 2));
    service.stop();
    conclude(&place, report);
    swept(cause(&last))
}

/// The commit that says "uncertain" comes through although it fails: readiness must not come back with
/// the ledger.
fn uncertain_and_unrecorded(report: &Mutex<Report>) -> Cell {
    let mut place = Place::new();
    let (mut service, said) =
        place.serve("rmdir.before=return(EBUSY);commit.removal.after=1*return(EIO);sweep.before=return(EIO)");
    assert_eq!(said.unwrap()["ready"], true);
    let session = service.session(&place);
    let run = service.run(&start(&session, PLAIN)).unwrap().unwrap().intent.run_id;
    place.acknowledged.push(run.clone());
    let end = settled(&mut service, &session, &run);
    assert_eq!(end.cleanup, Cleanup::Uncertain);
    until("the strike", &place, || {
        place.traced().iter().any(|l| l[0] == "struck" && l[1] == "commit.removal.after")
    });
    // Long enough for the ledger to be open again.
    std::thread::sleep(Duration::from_millis(500));
    let status = service.ask(&Ask::Status).unwrap();
    assert!(status["ready"] == false && status["reason"].to_string().contains("uncertain"), "{status}");
    service.kill();
    let mut service = place.healthy();
    let last = settled(&mut service, &session, &run);
    assert_eq!((cause(&last), last.cleanup), (Cause::Exited, Cleanup::Confirmed));
    service.stop();
    conclude(&place, report);
    swept(cause(&last))
}

enum End {
    Kill,
    Stop,
    Oom,
}

/// B5: the command goes on, is adopted, and ends exactly; its output is whole.
fn service_ends(report: &Mutex<Report>, end: End, twice: bool) -> Cell {
    let mut place = Place::new();
    let (mut service, session, run) = running(&mut place, "sleep 1.5; echo out; exit 7");
    match end {
        End::Kill => service.kill(),
        End::Stop => service.terminate(),
        End::Oom => {
            let group = Group::of(service.pid());
            assert!(service.ask(&Ask::Hog).is_none(), "it was not ended");
            assert!(group.oom_kills() > 0, "not by the kernel");
            drop(service);
        }
    }
    if twice && let Some(reason) = second_kill(&place, 0) {
        panic!("{reason}");
    }
    let mut service = place.healthy();
    let live = service.run(&Ask::Run { session: session.clone(), run: run.clone() }).unwrap().unwrap();
    let last = settled(&mut service, &session, &run);
    if !twice {
        assert_eq!((live.state.is_terminal(), live.recovery_phase.as_deref()), (false, Some("adopted")));
    }
    assert_eq!((cause(&last), exit_code(&last)), (Cause::Exited, Some(STATUS)));
    assert_eq!(service.run(&start(&session, "sleep 1.5; echo out; exit 7")).unwrap().unwrap(), last);
    service.stop();
    conclude(&place, report);
    swept(cause(&last))
}

/// A memory cgroup of the test's own around one process.
struct Group(std::path::PathBuf);

impl Group {
    fn of(pid: i32) -> Self {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let parent = if v1.exists() { v1 } else { Path::new("/sys/fs/cgroup") };
        let dir = parent.join(format!("sal-fault-{pid}"));
        fs::create_dir(&dir).unwrap();
        let limit = if v1.exists() { "memory.limit_in_bytes" } else { "memory.max" };
        fs::write(dir.join(limit), (64 << 20).to_string()).unwrap();
        fs::write(dir.join("cgroup.procs"), pid.to_string()).unwrap();
        Self(dir)
    }

    fn oom_kills(&self) -> u64 {
        let text = fs::read_to_string(self.0.join("memory.oom_control"))
            .or_else(|_| fs::read_to_string(self.0.join("memory.events")))
            .unwrap();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn records(place: &Place, run: &RunId) -> Vec<Record> {
    let path = place.setup.state.join("runs").join(run.as_str()).join("records");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn supervisor(place: &Place, run: &RunId) -> i32 {
    records(place, run)
        .iter()
        .find_map(|record| match record {
            Record::Supervising { pid, .. } => Some(*pid),
            _ => None,
        })
        .unwrap()
}

pub fn until(what: &str, place: &Place, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(15);
    while !done() {
        assert!(Instant::now() < end, "{what} does not come\n{}", story(place));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// B8: the status is recorded, and no supervisor waits for a service to tell it to.
fn exits_alone(report: &Mutex<Report>, twice: bool) -> Cell {
    let mut place = Place::new();
    let (mut service, session, run) = running(&mut place, "sleep 0.3; echo out; exit 7");
    let pid = supervisor(&place, &run);
    service.kill();
    until("the supervisor's end", &place, || !is_running(pid));
    assert!(
        records(&place, &run)
            .iter()
            .any(|record| matches!(record, Record::Removed { left } if left.is_empty()))
    );
    if twice && let Some(reason) = second_kill(&place, 1) {
        panic!("{reason}");
    }
    let mut service = place.healthy();
    let last = settled(&mut service, &session, &run);
    assert_eq!((cause(&last), exit_code(&last)), (Cause::Exited, Some(STATUS)));
    service.stop();
    conclude(&place, report);
    swept(cause(&last))
}

/// Neither gone nor a zombie that nobody has reaped yet.
pub fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// B9: the stop does not wait for the cancel, and the cancel is finished by the next service.
fn stop_in_cancel(report: &Mutex<Report>) -> Cell {
    let mut place = Place::new();
    place.cancelled = true;
    let (mut service, session, run) = running(&mut place, LONG);
    let pid = supervisor(&place, &run);
    // The order cannot be carried out while the supervisor stands still, so the stop comes in between.
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    service.tell(&Ask::Cancel { session: session.clone(), run: run.clone() });
    let db = place.setup.state.join("ledger.db");
    until("the commit of the cancel", &place, || {
        let db = rusqlite::Connection::open(&db).unwrap();
        db.query_row("SELECT count(*) FROM events WHERE event LIKE '%cancel_requested%'", [], |r| {
            r.get::<_, i64>(0)
        })
        .is_ok_and(|n| n == 1)
    });
    service.terminate();
    kill(Pid::from_raw(pid), Signal::SIGCONT).unwrap();
    let mut service = place.healthy();
    let last = settled(&mut service, &session, &run);
    assert_eq!((cause(&last), last.state), (Cause::Cancelled, RunState::Finished));
    service.stop();
    conclude(&place, report);
    swept(cause(&last))
}

/// B16: after a reboot nothing of the run lives; what was recorded stands.
fn reboot(report: &Mutex<Report>, recorded: bool) -> Cell {
    let mut place = Place::new();
    let command = if recorded { "sleep 0.3; echo out; exit 7" } else { LONG };
    let (mut service, session, run) = running(&mut place, command);
    service.kill();
    let pid = supervisor(&place, &run);
    if recorded {
        until("the supervisor's end", &place, || !is_running(pid));
    } else {
        // The host's end takes the supervisor, and the kernel its container.
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        until("the supervisor's end", &place, || !is_running(pid));
    }
    place.setup.boot = "boot-2".into();
    let mut service = place.healthy();
    let last = settled(&mut service, &session, &run);
    if recorded {
        assert_eq!((cause(&last), exit_code(&last)), (Cause::Exited, Some(STATUS)));
    } else {
        assert_eq!((cause(&last), exit_code(&last)), (Cause::Interrupted, None));
        assert!(last.outcome.as_ref().unwrap().detail.contains("the host was restarted"));
    }
    service.stop();
    conclude(&place, report);
    swept(cause(&last))
}

/// B17: a wall clock that jumps while commands run.
fn clock(report: &Mutex<Report>) -> Cell {
    let mut place = Place::new();
    let mut service = place.healthy();
    let session = service.session(&place);
    for hours in [1, -1, 87_600, -87_600] {
        let key = format!("k{hours}");
        let ask = Ask::Start { session: session.clone(), key, command: "sleep 0.2; echo out; exit 7".into() };
        let run = service.run(&ask).unwrap().unwrap().intent.run_id;
        place.acknowledged.push(run.clone());
        service.run(&Ask::Running { session: session.clone(), run: run.clone() }).unwrap().unwrap();
        service.ask(&Ask::Jump { hours }).unwrap();
        let last = settled(&mut service, &session, &run);
        assert_eq!((cause(&last), exit_code(&last)), (Cause::Exited, Some(STATUS)), "{hours} h");
        service.ask(&Ask::Jump { hours: 0 }).unwrap();
    }
    // Nor does a jump put a deadline off: thirty seconds of boot time.
    place.cancelled = true;
    let ask =
        Ask::Start { session: session.clone(), key: "long".into(), command: "echo out; sleep 60".into() };
    let begin = Instant::now();
    let run = service.run(&ask).unwrap().unwrap().intent.run_id;
    place.acknowledged.push(run.clone());
    service.run(&Ask::Running { session: session.clone(), run: run.clone() }).unwrap().unwrap();
    service.ask(&Ask::Jump { hours: -87_600 }).unwrap();
    // Longer than the patience for one answer.
    std::thread::sleep(Duration::from_secs(20));
    let last = settled(&mut service, &session, &run);
    assert_eq!(cause(&last), Cause::Deadline);
    let took = begin.elapsed().as_secs();
    assert!((29..36).contains(&took), "{took} s");
    service.stop();
    let db = rusqlite::Connection::open(place.setup.state.join("ledger.db")).unwrap();
    let years: i64 =
        db.query_row("SELECT count(DISTINCT substr(at, 1, 4)) FROM events", [], |row| row.get(0)).unwrap();
    assert!(years >= 3, "the ledger saw the jumps: {years} different years");
    drop(db);
    conclude(&place, report);
    swept(Cause::Exited)
}

/// B18: the container does not outlive its supervisor, and the service says what it knows.
fn supervisor_killed(report: &Mutex<Report>, both: bool) -> Cell {
    let mut place = Place::new();
    let (mut service, session, run) = running(&mut place, LONG);
    kill(Pid::from_raw(supervisor(&place, &run)), Signal::SIGKILL).unwrap();
    if both {
        service.kill();
        if let Some(reason) = second_kill(&place, 2) {
            panic!("{reason}");
        }
        service = place.healthy();
    }
    let quick = Instant::now();
    assert!(service.ask(&Ask::Status).is_some());
    assert!(quick.elapsed() < Duration::from_secs(1));
    let last = settled(&mut service, &session, &run);
    assert_eq!(
        (cause(&last), exit_code(&last), last.cleanup),
        (Cause::Interrupted, None, Cleanup::Confirmed)
    );
    service.until_ready();
    service.stop();
    conclude(&place, report);
    swept(cause(&last))
}

/// B18: a supervisor that stands still is taken over, at a cancel or past the deadline.
fn supervisor_stopped(report: &Mutex<Report>, cancel: bool) -> Cell {
    let mut place = Place::new();
    place.cancelled = cancel;
    place.setup.removal_ms = 500;
    let (mut service, session, run) = running(&mut place, "echo out; sleep 60; exit 7");
    kill(Pid::from_raw(supervisor(&place, &run)), Signal::SIGSTOP).unwrap();
    let begin = Instant::now();
    let ask = if cancel {
        Ask::Cancel { session: session.clone(), run: run.clone() }
    } else {
        // Longer than the patience for one answer.
        std::thread::sleep(Duration::from_secs(20));
        Ask::Settled { session: session.clone(), run: run.clone() }
    };
    let last = service.run(&ask).unwrap().unwrap();
    let quick = Instant::now();
    assert!(service.ask(&Ask::Status).is_some());
    assert!(quick.elapsed() < Duration::from_secs(1));
    assert!(begin.elapsed() < Duration::from_secs(if cancel { 10 } else { 36 }), "{:?}", begin.elapsed());
    assert_eq!(
        (cause(&last), exit_code(&last), last.cleanup),
        (Cause::Interrupted, None, Cleanup::Confirmed)
    );
    service.until_ready();
    service.stop();
    conclude(&place, report);
    swept(cause(&last))
}
