//! B22: disks that really fail under a patch, a refresh and an import: full, out of inodes, or answering
//! EIO; and B12 on a state directory that is full. After each the error names the path and the cause,
//! nothing has changed, reads go on, the service restarts, and with the fault gone the same call works.

use crate::cells::{conclude, start, story};
use crate::checker::{self, Findings};
use crate::child::{Child, PLAIN, Place};
use crate::disk::{Disk, Strace, apart};
use crate::host_rows::{Row, cause, settled, swept, until};
use crate::report::{Cell, Report};
use crate::service::Ask;
use crate::{import_checker, patch_checker};
use salaam::domain::digest::Digest;
use salaam::domain::ids::{RunId, SessionId};
use salaam::domain::outcome::Cause;
use salaam::domain::run::Run;
use salaam::domain::session::{Session, Workspace};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub const ROWS: &[Row] = &[
    ("B12", "a full disk, commands", "ENOSPC for real", |r| full_disk(r)),
    ("B12", "a full disk, a patch", "ENOSPC for real", |r| row(r, Work::Patch, Fault::Ledger)),
    ("B22", "patch", "ENOSPC, ext4 is full", |r| row(r, Work::Patch, Fault::Full)),
    ("B22", "patch", "ENOSPC, tmpfs has no inode", |r| row(r, Work::Patch, Fault::Starved)),
    ("B22", "patch", "EIO of write", |r| row(r, Work::Patch, Fault::Eio("write"))),
    ("B22", "patch", "EIO of syncfs", |r| row(r, Work::Patch, Fault::Eio("syncfs"))),
    ("B22", "patch", "EIO of rename", |r| row(r, Work::Patch, Fault::Eio("renameat2"))),
    ("B22", "patch", "EIO of fsync", |r| row(r, Work::Patch, Fault::Eio("fsync"))),
    ("B22", "refresh", "ENOSPC, ext4 is full", |r| row(r, Work::Refresh, Fault::Full)),
    ("B22", "refresh", "ENOSPC, tmpfs has no inode", |r| row(r, Work::Refresh, Fault::Starved)),
    ("B22", "refresh", "EIO of write", |r| row(r, Work::Refresh, Fault::Eio("write"))),
    ("B22", "refresh", "EIO of syncfs", |r| row(r, Work::Refresh, Fault::Eio("syncfs"))),
    ("B22", "refresh", "EIO of rename", |r| row(r, Work::Refresh, Fault::Eio("renameat2"))),
    ("B22", "refresh", "EIO of fsync", |r| row(r, Work::Refresh, Fault::Eio("fsync"))),
    ("B22", "import", "ENOSPC, ext4 is full", |r| row(r, Work::Import, Fault::Full)),
    ("B22", "import", "ENOSPC, tmpfs has no inode", |r| row(r, Work::Import, Fault::Starved)),
    ("B22", "import", "EIO of write", |r| row(r, Work::Import, Fault::Eio("write"))),
    ("B22", "import", "EIO of syncfs", |r| row(r, Work::Import, Fault::Eio("syncfs"))),
    ("B22", "import", "EIO of rename", |r| row(r, Work::Import, Fault::Eio("renameat2"))),
    ("B22", "import", "EIO of fsync", |r| row(r, Work::Import, Fault::Eio("fsync"))),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Patch,
    Refresh,
    Import,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Full,
    Starved,
    /// Of this system call.
    Eio(&'static str),
    /// The disk is the ledger's.
    Ledger,
}

/// A file that does not fit into what [`Disk::fill`] leaves, and is far below the limit of 262,144 bytes.
const BIG: usize = 200_000;
/// Time for the fault to come between the check of the space and the first write.
const PAUSE: &str = "1*sleep(1500)";

/// What a fault takes back when it is over.
enum Broken<'a> {
    Disk(&'a Disk),
    Calls(Strace),
}

impl Broken<'_> {
    fn end(self) {
        match self {
            Self::Disk(disk) => disk.free(),
            Self::Calls(strace) => assert!(strace.end() > 0, "no call was failed"),
        }
    }
}

fn row(report: &Mutex<Report>, work: Work, fault: Fault) -> Cell {
    apart(|| on_disk(report, work, fault))
}

fn on_disk(report: &Mutex<Report>, work: Work, fault: Fault) -> Cell {
    let mut place = Place::real();
    place.setup.reopen_ms = 200;
    let disk = disk(&mut place, fault);
    fs::write(place.project().join("a-big.js"), "x".repeat(BIG)).unwrap();
    let point = if work == Work::Import { "import.file" } else { "stage" };
    let (mut service, said) = place.serve(&format!("{point}.before={PAUSE}"));
    assert!(said.is_some_and(|said| said["ready"] == true), "{}", story(&place));
    let made = (work != Work::Import).then(|| service.session(&place));
    let before = made.as_ref().map(|session| Facts::of(&mut service, session));
    let ask = ask(work, &place, &before);
    if let (Work::Refresh, Some(facts)) = (work, &before) {
        fs::write(facts.root().join("by-hand.js"), "y".repeat(BIG)).unwrap();
    }
    let edited = before.as_ref().map(|facts| facts.tree());
    // Most faults come while the work pauses, once the room was looked for; a ledger fails at once.
    let broken = if fault == Fault::Ledger {
        disk.fill(0);
        assert!(service.tell(&ask));
        Broken::Disk(&disk)
    } else {
        assert!(service.tell(&ask));
        let passed = |point: &str| place.traced().into_iter().find(|line| line[1] == point);
        let pause = format!("{point}.before");
        until("the pause", &place, || passed(&pause).is_some());
        let aside = match &before {
            Some(facts) => {
                facts.workspace_dir(&place).join(format!(".staging-{}", passed(&pause).unwrap()[2]))
            }
            None => PathBuf::from(&passed("import.before").unwrap()[2]),
        };
        breaks(&place, &disk, &service, work, fault, &aside)
    };
    let refused = service.answered();
    let message =
        refused["error"]["message"].as_str().unwrap_or_else(|| panic!("{refused}\n{}", story(&place)));
    named(&place, fault, message);
    let hint = refused["error"]["hint"].as_str().unwrap();
    let undecided = fault == Fault::Eio("fsync") && work != Work::Import;
    assert!(hint.contains(if undecided { "finds out by itself" } else { "disk" }), "{refused}");
    // Nothing has changed, and reads go on while the disk fails.
    unchanged(&mut service, &before, &edited);
    // The failing write is that of one path, which is another the next time.
    if fault != Fault::Eio("write") {
        let again = service.ask(&ask).unwrap();
        let message = again["error"]["message"].as_str();
        let message = message.unwrap_or_else(|| panic!("{again}\n{}", story(&place)));
        if matches!(fault, Fault::Full | Fault::Starved) {
            // Seen before anything is written.
            assert!(message.contains("inodes free; the copy needs"), "{message}");
        }
        unchanged(&mut service, &before, &edited);
    }
    // A start over the failing disk is clean too; the faults of strace end with the process.
    let broken = match broken {
        Broken::Disk(disk) if fault != Fault::Ledger => {
            service.stop();
            service = place.healthy();
            unchanged(&mut service, &before, &edited);
            Broken::Disk(disk)
        }
        broken => broken,
    };
    broken.end();
    service.until_ready();
    let done = match &made {
        // A refresh has no call id: all but its last sync had come about, and the service publishes it.
        Some(session) if work == Work::Refresh && undecided => by_itself(&mut service, session),
        // While the service decides on what it could not, the call may find the place taken.
        _ => loop {
            let said = service.ask(&ask).unwrap();
            if !undecided || said["error"]["code"] != "busy" {
                break said;
            }
            std::thread::sleep(Duration::from_millis(20));
        },
    };
    let (session, revision) = match made {
        Some(session) => {
            assert_eq!(done["revision"], 2, "{done}\n{}", story(&place));
            (session, 2)
        }
        None => (serde_json::from_value(done["session"].clone()).unwrap(), 1),
    };
    if work == Work::Patch {
        assert_eq!(service.ask(&ask).unwrap(), done, "asked again");
    }
    let last = Facts::of(&mut service, &session);
    assert_eq!(last.workspace.revision, revision);
    service.stop();
    place.healthy().stop();
    let edited = (work == Work::Refresh).then_some(1);
    let mut all = vec![import_checker_of(&place, &session, work), checker::check(&place)];
    all.push(patch_checker::check(&place, edited, std::slice::from_ref(&last.workspace)));
    for findings in all {
        report.lock().unwrap_or_else(PoisonError::into_inner).found(&findings);
        assert!(findings.is_clean(), "{findings:#?}\n{}", story(&place));
    }
    swept("refused, then done")
}

/// The workspace once its revision has moved without anybody's asking.
fn by_itself(service: &mut Child, session: &SessionId) -> serde_json::Value {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let now = service.ask(&Ask::Workspace { session: session.clone() }).unwrap();
        if now["revision"] == 2 {
            return now;
        }
        assert!(Instant::now() < end, "{now}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The checker of imports holds old revisions to their digest, which a refresh by its nature breaks.
fn import_checker_of(place: &Place, session: &SessionId, work: Work) -> Findings {
    let mut found = import_checker::check(place, std::slice::from_ref(session));
    if work == Work::Refresh {
        found.invented.retain(|what| !what.contains("r00001"));
    }
    found
}

/// Moves what the fault is about to a disk of its own.
fn disk(place: &mut Place, fault: Fault) -> Disk {
    if fault == Fault::Ledger {
        return Disk::tmpfs(&place.setup.state, 4, 1_000);
    }
    let dir = place.path().join("disk");
    let disk = match fault {
        Fault::Starved => Disk::tmpfs(&dir, 64, 4_096),
        _ => Disk::ext4(&dir, 32),
    };
    place.setup.coding = dir.join("coding");
    fs::DirBuilder::new().mode(0o700).create(&place.setup.coding).unwrap();
    disk
}

fn breaks<'a>(
    place: &Place,
    disk: &'a Disk,
    service: &Child,
    work: Work,
    fault: Fault,
    aside: &Path,
) -> Broken<'a> {
    let told = place.path().join("calls");
    match fault {
        Fault::Full => disk.fill(BIG as u64 / 2),
        Fault::Starved => disk.starve(2),
        Fault::Ledger => disk.fill(0),
        Fault::Eio(call) => {
            let path = match call {
                // The first that is written: the ledger's files and the answers are others.
                "write" => Some(aside.join("a-big.js")),
                // The directory that the new name stands in; an import's first one is the coding root's.
                "fsync" if work == Work::Import => Some(place.setup.coding.clone()),
                "fsync" => aside.parent().map(Path::to_owned),
                _ => None,
            };
            return Broken::Calls(Strace::eio(service.pid(), call, path.as_deref(), told));
        }
    }
    Broken::Disk(disk)
}

/// The error names the directory or file and the system's word.
fn named(place: &Place, fault: Fault, message: &str) {
    let word = match fault {
        Fault::Full | Fault::Starved => "No space left on device",
        Fault::Eio(_) => "Input/output error",
        Fault::Ledger => {
            assert!(message.contains("full") || message.contains("disk I/O error"), "{message}");
            return;
        }
    };
    let coding = place.setup.coding.to_string_lossy();
    assert!(message.contains(word) && message.contains(&*coding), "{message}");
}

fn ask(work: Work, place: &Place, before: &Option<Facts>) -> Ask {
    match (work, before) {
        (Work::Patch, Some(facts)) => Ask::Call {
            session: facts.session.clone(),
            call: Some("c-1".into()),
            request: json!({ "operation": "patch", "revision": 1, "files": [
                { "path": "main.js", "expected_hash": Digest::of(b"1").as_str(), "content": "2" },
                { "path": "b.js", "expected_hash": null, "content": "z".repeat(BIG) },
            ] }),
        },
        (Work::Refresh, Some(facts)) => Ask::Refresh { session: facts.session.clone() },
        _ => Ask::Session { project: place.project() },
    }
}

/// What a failed change must leave as it was.
struct Facts {
    session: SessionId,
    workspace: Workspace,
}

impl Facts {
    fn of(service: &mut Child, session: &SessionId) -> Self {
        let workspace = service.ask(&Ask::Workspace { session: session.clone() }).unwrap();
        Self { session: session.clone(), workspace: serde_json::from_value(workspace).unwrap() }
    }

    fn workspace_dir(&self, place: &Place) -> PathBuf {
        place.setup.coding.join(self.workspace.id.as_str())
    }

    fn root(&self) -> PathBuf {
        PathBuf::from(&self.workspace.root)
    }

    /// The content and mode of each file of the root.
    fn tree(&self) -> Vec<(PathBuf, u32, Vec<u8>)> {
        let mut files: Vec<_> = fs::read_dir(self.root())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|e| (e.path(), e.metadata().unwrap().permissions().mode(), fs::read(e.path()).unwrap()))
            .collect();
        files.sort();
        files
    }
}

fn unchanged(service: &mut Child, before: &Option<Facts>, tree: &Option<Vec<(PathBuf, u32, Vec<u8>)>>) {
    let quick = Instant::now();
    let sessions: Vec<Session> = serde_json::from_value(service.ask(&Ask::Sessions).unwrap()).unwrap();
    let Some(facts) = before else {
        assert!(sessions.is_empty(), "{sessions:?}");
        return;
    };
    assert_eq!(sessions[0].workspace.as_ref(), Some(&facts.workspace));
    assert_eq!(Some(facts.tree()), *tree);
    let read = json!({ "operation": "read", "path": "main.js" });
    let read = service.ask(&Ask::Call { session: facts.session.clone(), call: None, request: read }).unwrap();
    assert_eq!(read["lines"][0]["text"], "1", "{read}");
    assert!(quick.elapsed() < Duration::from_secs(5), "{:?}", quick.elapsed());
    // No receipt answers the call: it would answer a change that is not there.
    let list = json!({ "operation": "list" });
    let list = service.ask(&Ask::Call { session: facts.session.clone(), call: None, request: list }).unwrap();
    assert!(list["revision"] == 1 && list["total"] == 3, "{list}");
}

/// B12: the state directory's file system is full, and has room again.
fn full_disk(report: &Mutex<Report>) -> Cell {
    apart(|| full_state(report))
}

fn full_state(report: &Mutex<Report>) -> Cell {
    let mut place = Place::new();
    place.setup.reopen_ms = 200;
    let small = Disk::tmpfs(&place.setup.state, 4, 1_000);
    let mut service = place.healthy();
    let session = service.session(&place);
    let first = service.run(&start(&session, PLAIN)).unwrap().unwrap().intent.run_id;
    place.acknowledged.push(first.clone());
    let end = settled(&mut service, &session, &first);
    assert_eq!(cause(&end), Cause::Exited);
    small.fill(0);
    // A few starts may still find room in pages that the ledger has; then one fails, and the next is refused.
    let refused = (0..200).find_map(|n| {
        let ask = Ask::Start { session: session.clone(), key: format!("k{n}"), command: PLAIN.into() };
        match service.run(&ask).unwrap() {
            Ok(run) => {
                place.acknowledged.push(run.intent.run_id.clone());
                let _ = settled_or_waiting(&mut service, &session, &run.intent.run_id);
                None
            }
            Err(refusal) => Some(refusal),
        }
    });
    let refused = refused.expect("a full disk refuses");
    assert!(refused["code"] == "not_ready" || refused["code"] == "internal", "{refused}");
    let quick = Instant::now();
    assert!(!service.ready());
    assert_eq!(
        service.run(&Ask::Run { session: session.clone(), run: first.clone() }).unwrap().unwrap(),
        end
    );
    assert!(quick.elapsed() < Duration::from_secs(1));
    small.free();
    service.until_ready();
    for run in place.acknowledged.clone() {
        let last = settled(&mut service, &session, &run);
        assert!(last.state.is_terminal(), "{last:?}");
    }
    let again = service.run(&start(&session, PLAIN)).unwrap().unwrap();
    assert_eq!(again, end);
    service.stop();
    conclude(&place, report);
    swept("refused, then ready again")
}

/// Waits for a run whose end may not be recordable.
fn settled_or_waiting(service: &mut crate::child::Child, session: &SessionId, run: &RunId) -> Option<Run> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let now = service.run(&Ask::Run { session: session.clone(), run: run.clone() })?.ok()?;
        if salaam::service::settled(&now) || now.recovery_phase.as_deref() == Some("unrecorded") {
            return Some(now);
        }
        assert!(Instant::now() < end, "{now:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
