//! B20, B21: each boundary of an import (a session's creation) and of a removal, met by SIGKILL, EIO and
//! ENOSPC, and by a second kill during the recovery; over the real store (WS.1, WS.5).

use crate::cells::{MODES, Mode, story};
use crate::checker::{self, Findings};
use crate::child::{Child, Place};
use crate::import_checker;
use crate::report::{Cell, Report};
use crate::service::Ask;
use crate::trial;
use libtest_mimic::Trial;
use salaam::domain::ids::SessionId;
use salaam::domain::session::Session;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
struct Point {
    row: &'static str,
    name: &'static str,
    /// Tasks of `fail` before the one that strikes.
    skip: &'static str,
}

const fn import(name: &'static str) -> Point {
    Point { row: "B20", name, skip: "" }
}

const fn removal(name: &'static str) -> Point {
    Point { row: "B21", name, skip: "" }
}

const POINTS: &[Point] = &[
    import("commit.session.before"),
    import("commit.session.after"),
    import("import.before"),
    import("import.file.before"),
    Point { skip: "1*off->", ..import("import.file.after") },
    import("import.after"),
    import("import.sync.before"),
    import("import.sync.after"),
    import("import.rename.before"),
    import("import.rename.after"),
    import("import.done.before"),
    import("import.done.after"),
    import("commit.import.before"),
    import("commit.import.after"),
    removal("commit.removing.before"),
    removal("commit.removing.after"),
    removal("remove.rename.before"),
    removal("remove.rename.after"),
    removal("remove.tree.before"),
    removal("remove.tree.after"),
    removal("commit.dropped.before"),
    removal("commit.dropped.after"),
];

/// What kills a recovery; which of a line strikes depends on where the first kill left it.
const RECOVERY: &[&str] = &[
    "unstage.before=1*return(kill);remove.rename.before=1*return(kill);commit.dropped.before=1*return(kill)",
    "unstage.after=1*return(kill);remove.rename.after=1*return(kill);commit.dropped.after=1*return(kill)",
];

pub fn trials(report: &Arc<Mutex<Report>>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for point in POINTS {
        for mode in MODES {
            let turns = if mode == Mode::KillTwice { RECOVERY.len() } else { 1 };
            for turn in 0..turns {
                let mut name = format!("{}_{}_{}", point.row, point.name, mode.name());
                let mut label = point.name.to_owned();
                if turns > 1 {
                    name.push_str(&format!("_{turn}"));
                    label.push_str(&format!(", turn {turn}"));
                }
                let report = Arc::clone(report);
                trials.push(trial(name.to_lowercase().replace([' ', ','], "_"), move || {
                    let cell = run(point, mode, turn, &report);
                    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                    report.enter(point.row, &label, mode.name(), cell);
                }));
            }
        }
    }
    trials.extend(plants());
    trials
}

fn run(point: &Point, mode: Mode, turn: usize, report: &Mutex<Report>) -> Cell {
    let place = Place::real();
    let mut told = Vec::new();
    let asked = if point.row == "B21" {
        // Its import must not strike.
        let mut service = place.healthy();
        let session = service.session(&place);
        service.stop();
        Ask::Remove { session }
    } else {
        Ask::Session { project: place.project() }
    };
    let mut faults = format!("{}={}{}", point.name, point.skip, mode.action_in_service());
    if let (Mode::Sticky(error), true) = (mode, point.name.starts_with("commit.")) {
        // Nor can the ledger be opened again while the error stays.
        faults.push_str(&format!(";reopen.before=return({error})"));
    }
    let (mut first, said) = place.serve(&faults);
    assert!(said.is_some_and(|said| said["ready"] == true), "the first start\n{}", story(&place));
    assert!(first.tell(&asked));
    until_struck(&place, point);
    match mode {
        Mode::Kill | Mode::KillTwice => first.kill(),
        Mode::Once(_) => {
            answered(&mut first, &mut told);
            first.until_ready();
            assert!(listed(&mut first).len() <= 1);
            first.stop();
        }
        Mode::Sticky(_) => {
            answered(&mut first, &mut told);
            let quick = Instant::now();
            assert!(first.ask(&Ask::Status).is_some());
            listed(&mut first);
            if point.name.starts_with("commit.") {
                let more = first.ask(&Ask::Session { project: place.project() }).unwrap();
                assert_eq!(more["error"]["code"], "not_ready", "{more}\n{}", story(&place));
            }
            assert!(quick.elapsed() < Duration::from_secs(1), "{:?}", quick.elapsed());
            first.kill();
        }
    }
    if mode == Mode::KillTwice {
        let before = place.strikes();
        let (mut second, _) = place.serve(RECOVERY[turn]);
        second.kill();
        if place.strikes() == before {
            return Cell::None("the first kill leaves nothing of this to recover");
        }
    }
    // The recovery alone; then the same is asked once more, and the workspace is one to work in.
    place.healthy().stop();
    conclude(&place, &told, report);
    let mut service = place.healthy();
    let there = listed(&mut service);
    let end = match (&asked, there.first()) {
        (Ask::Remove { session }, Some(_)) => {
            assert_eq!(service.ask(&Ask::Remove { session: session.clone() }).unwrap()["removed"], true);
            "there, then removed"
        }
        (Ask::Remove { .. }, None) => "removed",
        (_, Some(_)) => "made",
        (_, None) => "nothing left, then made",
    };
    let session =
        if point.row == "B20" && !there.is_empty() { there[0].id.clone() } else { service.session(&place) };
    let patched = service.ask(&Ask::Publish { session: session.clone(), call: "c".into() }).unwrap();
    assert_eq!(patched["revision"], 2, "{patched}");
    service.stop();
    conclude(&place, &[session], report);
    Cell::Swept { strikes: place.strikes(), end: end.into() }
}

/// Takes the answer; a session that was told must stay.
fn answered(service: &mut Child, told: &mut Vec<SessionId>) {
    let said = service.answered();
    if let Ok(id) = serde_json::from_value(said["session"].clone()) {
        told.push(id);
    } else {
        assert!(said["removed"] == true || said["error"]["message"].is_string(), "{said}");
    }
}

fn listed(service: &mut Child) -> Vec<Session> {
    serde_json::from_value(service.ask(&Ask::Sessions).unwrap()).unwrap()
}

fn until_struck(place: &Place, point: &Point) {
    let end = Instant::now() + Duration::from_secs(15);
    while !place.traced().iter().any(|line| line[0] == "struck" && line[1] == point.name) {
        assert!(Instant::now() < end, "{} was not struck\n{}", point.name, story(place));
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn conclude(place: &Place, told: &[SessionId], report: &Mutex<Report>) {
    for findings in [import_checker::check(place, told), checker::check(place)] {
        report.lock().unwrap_or_else(PoisonError::into_inner).found(&findings);
        assert!(findings.is_clean(), "{findings:#?}\n{}", story(place));
    }
}

type Plant = (&'static str, fn(&Place, &Session), fn(&Findings) -> &Vec<String>);

const PLANTS: &[Plant] = &[
    (
        "a_staging_of_an_import",
        |place, s| fs::create_dir(dir(place, s).join(".staging-r00001")).unwrap(),
        |f| &f.leftovers,
    ),
    (
        "a_workspace_of_nobody",
        |place, _| {
            fs::create_dir(place.setup.coding.join("ws-00000000000000000000000000000000")).unwrap();
        },
        |f| &f.leftovers,
    ),
    (
        "a_removal_half_done",
        |place, s| {
            let aside = place.setup.coding.join(format!(".removing-{}", workspace(s)));
            fs::rename(dir(place, s), aside).unwrap();
        },
        |f| &f.leftovers,
    ),
    ("an_import_half_done", |place, _| sql(place, "UPDATE sessions SET phase = 'importing'"), |f| &f.lost),
    ("a_session_that_is_gone", |place, _| sql(place, "DELETE FROM sessions"), |f| &f.lost),
    (
        "an_import_with_another_byte",
        |place, s| fs::write(dir(place, s).join("r00001/main.js"), "2").unwrap(),
        |f| &f.invented,
    ),
];

fn workspace(session: &Session) -> &str {
    session.workspace.as_ref().unwrap().id.as_str()
}

fn dir(place: &Place, session: &Session) -> std::path::PathBuf {
    place.setup.coding.join(workspace(session))
}

fn sql(place: &Place, text: &str) {
    let db = rusqlite::Connection::open(place.setup.state.join("ledger.db")).unwrap();
    db.execute_batch(text).unwrap();
}

fn plants() -> Vec<Trial> {
    let planted = PLANTS.iter().map(|(name, plant, kind)| {
        trial(format!("planted_{name}_is_found"), move || {
            let place = Place::real();
            let mut service = place.healthy();
            service.session(&place);
            let session = listed(&mut service).remove(0);
            service.stop();
            let told = [session.id.clone()];
            assert!(import_checker::check(&place, &told).is_clean());
            plant(&place, &session);
            let findings = import_checker::check(&place, &told);
            assert!(!kind(&findings).is_empty(), "{findings:#?}");
        })
    });
    planted.collect()
}
