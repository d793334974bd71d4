//! B10, and B12 for the journal: each boundary of a publication met by SIGKILL, EIO and ENOSPC, and by a
//! second kill during the recovery; over the real store.

use crate::cells::{MODES, Mode, story};
use crate::checker::{self, Findings};
use crate::child::{Child, Place};
use crate::patch_checker;
use crate::report::{Cell, Report};
use crate::service::Ask;
use crate::trial;
use libtest_mimic::Trial;
use salaam::domain::change::{Base, TreeChange};
use salaam::domain::digest::Digest;
use salaam::domain::ids::SessionId;
use salaam::domain::manifest::{FileEntry, TreeManifest};
use salaam::domain::relpath::RelPath;
use salaam::domain::session::Workspace;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the publication changes: one file anew, one made, one as it was.
const TARGET: &[(&str, &str)] = &[("lib/new.js", "new"), ("main.js", "2"), ("other.js", "kept")];

/// The change of the cells, on `workspace` as it is.
pub fn change(workspace: &Workspace) -> TreeChange {
    let path = |text| RelPath::parse(text).unwrap();
    let files = TARGET.iter().map(|(name, text)| FileEntry {
        path: path(name),
        executable: false,
        length: text.len() as u64,
        content: Digest::of(text.as_bytes()),
    });
    TreeChange {
        base: Base { revision: workspace.revision, digest: workspace.digest.clone() },
        target: TreeManifest::new(files.collect(), vec![]),
        written: TARGET[..2].iter().map(|(name, text)| (path(name), text.as_bytes().to_vec())).collect(),
    }
}

/// What leads to a point.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A publication on a base that stays as it is.
    Plain,
    /// A step before fails, so that the publication is undone.
    Fails,
    /// Somebody writes into the base meanwhile.
    Edited,
    /// A refresh.
    Refresh,
}

#[derive(Clone, Copy)]
struct Point {
    name: &'static str,
    /// Tasks of `fail` before the one that strikes.
    skip: &'static str,
    way: Way,
}

const fn point(name: &'static str) -> Point {
    Point { name, skip: "", way: Way::Plain }
}

const fn on(way: Way, name: &'static str) -> Point {
    Point { name, skip: "", way }
}

const POINTS: &[Point] = &[
    point("commit.application.before"),
    point("commit.application.after"),
    point("stage.before"),
    point("stage.file.before"),
    Point { skip: "1*off->", ..point("stage.file.after") },
    point("stage.after"),
    point("sync.before"),
    point("sync.after"),
    point("rename.before"),
    point("rename.after"),
    point("commit.publish.before"),
    point("commit.publish.after"),
    on(Way::Fails, "discard.before"),
    on(Way::Fails, "discard.after"),
    on(Way::Fails, "commit.unpublished.before"),
    on(Way::Fails, "commit.unpublished.after"),
    on(Way::Edited, "keep.before"),
    on(Way::Edited, "keep.after"),
    on(Way::Edited, "commit.unpublished.before"),
    on(Way::Edited, "commit.unpublished.after"),
    on(Way::Refresh, "commit.application.after"),
    on(Way::Refresh, "stage.file.after"),
    on(Way::Refresh, "sync.after"),
    on(Way::Refresh, "rename.after"),
    on(Way::Refresh, "commit.publish.before"),
    on(Way::Refresh, "commit.publish.after"),
];

/// What kills a recovery, by turns; which of a line strikes depends on where the first kill left it.
const RECOVERY: &[&str] = &[
    "settle.rename.before=1*return(kill);discard.before=1*return(kill);keep.before=1*return(kill)",
    "settle.rename.after=1*return(kill);discard.after=1*return(kill);keep.after=1*return(kill)",
    "commit.publish.before=1*return(kill);commit.unpublished.before=1*return(kill)",
    "commit.publish.after=1*return(kill);commit.unpublished.after=1*return(kill)",
];

pub fn trials(report: &Arc<Mutex<Report>>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for point in POINTS {
        let more: &[Mode] = if point.name.starts_with("commit.") { &[Mode::Sticky("EROFS")] } else { &[] };
        for mode in MODES.iter().chain(more) {
            let turns = if *mode == Mode::KillTwice { RECOVERY.len() } else { 1 };
            for turn in 0..turns {
                let row = if more.is_empty() || mode.kills() { "B10" } else { "B12" };
                let label = format!("{}{}", point.name, point.label());
                let mut name = format!("{row}_{label}_{}", mode.name());
                if turns > 1 {
                    name.push_str(&format!("_{turn}"));
                }
                let report = Arc::clone(report);
                trials.push(trial(name.to_lowercase().replace([' ', ','], "_"), move || {
                    let cell = run(point, *mode, turn, &report);
                    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                    let label = if turns > 1 { format!("{label}, turn {turn}") } else { label };
                    report.enter(row, &label, mode.name(), cell);
                }));
            }
        }
    }
    trials.extend(plants());
    trials
}

impl Point {
    fn label(&self) -> &'static str {
        match self.way {
            Way::Plain => "",
            Way::Fails => " (of a failure)",
            Way::Edited => " (base edited)",
            Way::Refresh => " (refresh)",
        }
    }

    /// Faults beside the one that strikes.
    fn beside(&self) -> &'static str {
        match self.way {
            Way::Plain | Way::Refresh => "",
            Way::Fails => "stage.after=1*return(EIO);",
            // Time for the edit.
            Way::Edited => "sync.before=1*sleep(120);",
        }
    }
}

fn run(point: &Point, mode: Mode, turn: usize, report: &Mutex<Report>) -> Cell {
    let place = Place::real();
    let faults = format!("{}{}={}{}", point.beside(), point.name, point.skip, mode.action_in_service());
    let (mut first, said) = place.serve(&faults);
    assert!(said.is_some_and(|said| said["ready"] == true), "the first start\n{}", story(&place));
    let session = first.session(&place);
    let root = workspace(&mut first, &session).root;
    if point.way == Way::Refresh {
        std::fs::write(Path::new(&root).join("main.js"), "edited").unwrap();
    }
    assert!(first.tell(&ask(point, &session)));
    if point.way == Way::Edited {
        until(&place, "passed sync.before");
        std::fs::write(Path::new(&root).join("main.js"), "edited").unwrap();
    }
    until(&place, &format!("struck {}", point.name));
    let mut acknowledged = Vec::new();
    match mode {
        Mode::Kill | Mode::KillTwice => first.kill(),
        Mode::Once(_) => {
            acknowledged.extend(first.said_workspace());
            first.until_ready();
            decided(&place);
            first.stop();
        }
        Mode::Sticky(_) => {
            acknowledged.extend(first.said_workspace());
            under_errors(point, first, &session);
        }
    }
    if mode == Mode::KillTwice && !second_kill(&place, turn) {
        return Cell::None("the first kill leaves nothing of this to recover");
    }
    let edited = matches!(point.way, Way::Edited | Way::Refresh).then_some(1);
    // The recovery alone, then the same call once more: it is answered, or done.
    place.healthy().stop();
    conclude(&place, edited, &acknowledged, report);
    let mut service = place.healthy();
    let before = workspace(&mut service, &session);
    if point.way == Way::Edited {
        assert_eq!(before.revision, 1, "{}", story(&place));
        std::fs::write(Path::new(&root).join("main.js"), "1").unwrap();
    }
    let last =
        service.ask_workspace(&ask(point, &session)).unwrap_or_else(|e| panic!("{e}\n{}", story(&place)));
    // A refresh has no receipt; under a lasting error another publication may have come after it.
    let want = if point.way == Way::Refresh { before.revision.max(2) } else { 2 };
    assert_eq!(last.revision, want, "{}", story(&place));
    for workspace in &acknowledged {
        assert_eq!(*workspace, last);
    }
    assert_eq!(service.ask_workspace(&ask(point, &session)), Ok(last.clone()), "asked again");
    service.stop();
    acknowledged.push(last);
    conclude(&place, edited.filter(|_| point.way == Way::Refresh), &acknowledged, report);
    let end = if before.revision > 1 { "published" } else { "not published, then published" };
    Cell::Swept { strikes: place.strikes(), end: end.into() }
}

fn ask(point: &Point, session: &SessionId) -> Ask {
    match point.way {
        Way::Refresh => Ask::Refresh { session: session.clone() },
        _ => Ask::Publish { session: session.clone(), call: "c".into() },
    }
}

fn workspace(service: &mut Child, session: &SessionId) -> Workspace {
    service.ask_workspace(&Ask::Workspace { session: session.clone() }).unwrap()
}

/// Waits until the trace has a line that starts so.
fn until(place: &Place, start: &str) {
    let end = Instant::now() + Duration::from_secs(15);
    let wanted = format!("{start} ");
    while !place.traced().iter().any(|line| line.join(" ").starts_with(&wanted)) {
        assert!(Instant::now() < end, "no '{start}'\n{}", story(place));
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// The error stays: reads are answered, and a ledger that takes nothing admits nothing.
fn under_errors(point: &Point, mut service: Child, session: &SessionId) {
    let quick = Instant::now();
    assert!(service.ask(&Ask::Status).is_some());
    let _ = workspace(&mut service, session);
    if point.name.starts_with("commit.") {
        let more = Ask::Publish { session: session.clone(), call: "other".into() };
        let refused = service.ask_workspace(&more).unwrap_err();
        assert!(refused.contains("not_ready") || refused.contains("busy"), "{refused}");
        assert!(!service.ready());
    }
    assert!(quick.elapsed() < Duration::from_secs(1), "{:?}", quick.elapsed());
    service.kill();
}

/// Waits until no application is undecided: the service does that by itself once its ledger is open, but
/// for what a disk error keeps open until the next change or start.
fn decided(place: &Place) {
    let end = Instant::now() + Duration::from_secs(2);
    while undecided(place) > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn undecided(place: &Place) -> i64 {
    let path = place.setup.state.join("ledger.db");
    let db = rusqlite::Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    db.busy_timeout(Duration::from_secs(5)).unwrap();
    db.query_row("SELECT count(*) FROM applications WHERE phase = 'intended'", [], |row| row.get(0)).unwrap()
}

/// Kills the recovery; false when it has nothing to do at these points.
fn second_kill(place: &Place, turn: usize) -> bool {
    if undecided(place) == 0 {
        return false;
    }
    let before = place.strikes();
    let (mut second, said) = place.serve(RECOVERY[turn]);
    assert!(said.is_none(), "the recovery was not struck: {said:?}\n{}", story(place));
    second.kill();
    place.strikes() > before
}

fn conclude(place: &Place, edited: Option<u32>, acknowledged: &[Workspace], report: &Mutex<Report>) {
    for findings in [patch_checker::check(place, edited, acknowledged), checker::check(place)] {
        report.lock().unwrap_or_else(PoisonError::into_inner).found(&findings);
        assert!(findings.is_clean(), "{findings:#?}\n{}", story(place));
    }
}

impl Child {
    /// Asks for a workspace; the refusal as text.
    fn ask_workspace(&mut self, ask: &Ask) -> Result<Workspace, String> {
        let said = self.ask(ask).ok_or("it died")?;
        serde_json::from_value(said.clone()).map_err(|_| said.to_string())
    }

    /// The answer to what was told last, if it is a workspace.
    fn said_workspace(&mut self) -> Option<Workspace> {
        serde_json::from_value(self.answered()).ok()
    }
}

type Plant = (&'static str, fn(&Place, &Workspace), fn(&Findings) -> &Vec<String>);

const PLANTS: &[Plant] = &[
    ("an_old_root_with_another_byte", |place, _| overwrite(place, "r00001"), |f| &f.invented),
    ("a_new_root_with_another_byte", |place, _| overwrite(place, "r00002"), |f| &f.invented),
    ("a_root_of_nobody", |place, ws| leave(place, ws, "r00003"), |f| &f.leftovers),
    (
        "a_staging_of_nobody",
        |place, ws| leave(place, ws, ".staging-app-00000000000000000000000000000000"),
        |f| &f.leftovers,
    ),
    (
        "a_revision_without_a_move",
        |place, _| sql(place, "UPDATE workspaces SET revision = 1"),
        |f| &f.invented,
    ),
    (
        "a_publication_without_its_event",
        |place, _| sql(place, "DELETE FROM application_events WHERE event LIKE '%published%'"),
        |f| &f.invented,
    ),
    ("a_receipt_that_is_gone", |place, _| sql(place, "DELETE FROM receipts"), |f| &f.lost),
    (
        "a_receipt_of_another_request",
        |place, _| sql(place, "UPDATE receipts SET request = 'sha256:0'"),
        |f| &f.invented,
    ),
    (
        "an_undecided_application",
        |place, _| {
            sql(
                place,
                "UPDATE applications SET phase = 'intended'; DELETE FROM application_events WHERE seq = 2",
            );
        },
        |f| &f.lost,
    ),
];

fn plants() -> Vec<Trial> {
    let planted = PLANTS.iter().map(|(name, plant, kind)| {
        trial(format!("planted_{name}_is_found"), move || {
            let place = Place::real();
            let mut service = place.healthy();
            let session = service.session(&place);
            let ask = Ask::Publish { session, call: "c".into() };
            let workspace = service.ask_workspace(&ask).unwrap();
            service.stop();
            let acknowledged = [workspace.clone()];
            let before = patch_checker::check(&place, None, &acknowledged);
            assert!(before.is_clean(), "before: {before:#?}");
            plant(&place, &workspace);
            let findings = patch_checker::check(&place, None, &acknowledged);
            assert!(!kind(&findings).is_empty(), "{findings:#?}");
        })
    });
    planted.collect()
}

fn overwrite(place: &Place, revision: &str) {
    for entry in std::fs::read_dir(&place.setup.coding).unwrap().flatten() {
        std::fs::write(entry.path().join(revision).join("other.js"), "kepT").unwrap();
    }
}

fn leave(place: &Place, workspace: &Workspace, name: &str) {
    std::fs::create_dir(place.setup.coding.join(workspace.id.as_str()).join(name)).unwrap();
}

fn sql(place: &Place, text: &str) {
    let db = rusqlite::Connection::open(place.setup.state.join("ledger.db")).unwrap();
    db.execute_batch(text).unwrap();
}
