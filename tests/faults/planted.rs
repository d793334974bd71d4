//! The checker finds what is planted: a duplicate, an invented status, a lost run, each kind of leftover.

use crate::cells::start;
use crate::checker::{Findings, check};
use crate::child::{PLAIN, Place};
use crate::service::Ask;
use crate::trial;
use libtest_mimic::Trial;
use salaam::domain::ids::{ContainerId, RunId};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

type Plant = (&'static str, fn(&mut Place, &RunId, &ContainerId) -> Planted, fn(&Findings) -> &Vec<String>);

/// What must be taken away again.
#[derive(Default)]
struct Planted {
    process: Option<std::process::Child>,
    mount: Option<std::path::PathBuf>,
    dir: Option<std::path::PathBuf>,
}

impl Drop for Planted {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
        if let Some(dir) = &self.mount {
            nix::mount::umount(dir).unwrap();
        }
        for _ in 0..100 {
            // A cgroup is busy until its processes are reaped.
            if self.dir.as_ref().is_none_or(|dir| fs::remove_dir(dir).is_ok()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

const PLANTS: &[Plant] = &[
    (
        "a_second_launch",
        |place, run, _| trace(place, &format!("passed go.before {run} 1")),
        |f| &f.duplicates,
    ),
    (
        "a_second_run_of_the_key",
        |place, _, _| {
            sql(place, "CREATE TABLE copy AS SELECT * FROM runs; DROP INDEX runs_open; ALTER TABLE runs RENAME TO old;
            ALTER TABLE copy RENAME TO runs;
            INSERT INTO runs SELECT seq + 1, id, session_id, workspace_id, step_key, intent, progress, open,
            uncertain FROM runs")
        },
        |f| &f.duplicates,
    ),
    (
        "a_line_twice_in_the_output",
        |place, run, _| append(&place.setup.state.join("outputs").join(run.as_str()), "out\n"),
        |f| &f.duplicates,
    ),
    (
        "an_invented_exit_code",
        |place, _, _| sql(place, "UPDATE runs SET progress = json_set(progress, '$.outcome.exit_code', 0)"),
        |f| &f.invented,
    ),
    (
        "a_status_that_nobody_saw",
        |place, _, _| {
            let kept = fs::read_to_string(place.trace()).unwrap();
            let kept: String =
                kept.lines().filter(|l| !l.contains("record.exited")).map(|l| format!("{l}\n")).collect();
            fs::write(place.trace(), kept).unwrap();
            Planted::default()
        },
        |f| &f.invented,
    ),
    (
        "never_ran_of_one_that_did",
        |place, _, _| {
            sql(
                place,
                "UPDATE runs SET progress = json_set(progress, '$.outcome.exit_code', NULL,
            '$.outcome.cause', 'interrupted', '$.outcome.detail', 'the command never ran')",
            )
        },
        |f| &f.invented,
    ),
    (
        "two_ends_in_the_history",
        |place, _, _| {
            sql(
                place,
                "INSERT INTO events (run_id, event, at) SELECT run_id, event, at FROM events
            WHERE event LIKE '%\"ended\"%'",
            )
        },
        |f| &f.invented,
    ),
    (
        "more_output_than_there_is",
        |place, _, _| {
            sql(place, "UPDATE runs SET progress = json_set(progress, '$.output.stored_bytes', 99)")
        },
        |f| &f.invented,
    ),
    (
        "a_run_without_an_end",
        |place, _, _| sql(place, "UPDATE runs SET progress = json_set(progress, '$.state', 'running')"),
        |f| &f.lost,
    ),
    (
        "an_acknowledged_run_that_is_gone",
        |place, _, _| {
            place.acknowledged.push(RunId::fresh());
            Planted::default()
        },
        |f| &f.lost,
    ),
    (
        "a_cgroup",
        |_, _, container| {
            let dir = pids_root().join(container.as_str());
            fs::create_dir(&dir).unwrap();
            Planted { dir: Some(dir), process: None, mount: None }
        },
        |f| &f.leftovers,
    ),
    (
        "a_process",
        |place, _, _| {
            let mut command = Command::new("sh");
            // It waits for its standard input, and its command line names the place.
            command.args(["-c", "read line"]).arg(&place.setup.state).stdin(Stdio::piped());
            let process = command.spawn().unwrap();
            // Its command line is empty for a moment after execve(2) has been told as done.
            while fs::read(format!("/proc/{}/cmdline", process.id())).unwrap().is_empty() {
                std::thread::yield_now();
            }
            Planted { process: Some(process), dir: None, mount: None }
        },
        |f| &f.leftovers,
    ),
    (
        "a_process_in_its_cgroup",
        |_, _, container| {
            let dir = pids_root().join(container.as_str());
            fs::create_dir(&dir).unwrap();
            let process = Command::new("sleep").arg("60").spawn().unwrap();
            fs::write(dir.join("cgroup.procs"), process.id().to_string()).unwrap();
            Planted { process: Some(process), dir: Some(dir), mount: None }
        },
        |f| &f.leftovers,
    ),
    (
        "a_mount",
        |place, _, _| {
            let dir = place.setup.state.join("mounted");
            fs::create_dir(&dir).unwrap();
            let flags = nix::mount::MsFlags::empty();
            nix::mount::mount(Some("tmpfs"), &dir, Some("tmpfs"), flags, None::<&str>).unwrap();
            Planted { mount: Some(dir), process: None, dir: None }
        },
        |f| &f.leftovers,
    ),
    (
        "the_source_of_a_proof",
        |place, _, _| {
            fs::create_dir(place.setup.state.join(format!("proof-{}", RunId::fresh()))).unwrap();
            Planted::default()
        },
        |f| &f.leftovers,
    ),
    (
        "an_engine_call_without_an_intent",
        |place, _, _| trace(place, &format!("passed cgroup.before {} 1", RunId::fresh())),
        |f| &f.invented,
    ),
    (
        "a_recorded_exit_that_is_not_told",
        |place, _, _| {
            sql(
                place,
                "UPDATE runs SET progress = json_set(progress, '$.outcome.exit_code', NULL,
                 '$.outcome.cause', 'interrupted', '$.outcome.detail', 'the exit status was not observed')",
            )
        },
        |f| &f.invented,
    ),
    (
        "an_end_that_changed",
        |place, _, _| {
            let mut told = place.ends[0].clone();
            told.outcome.as_mut().unwrap().exit_code = Some(9);
            place.ends = vec![told];
            Planted::default()
        },
        |f| &f.invented,
    ),
    (
        "a_cancel_that_was_answered_and_is_not_there",
        |place, run, _| {
            place.cancels.push(run.clone());
            Planted::default()
        },
        |f| &f.lost,
    ),
    (
        "a_run_directory",
        |place, run, _| {
            fs::create_dir(place.setup.state.join("runs").join(run.as_str())).unwrap();
            Planted::default()
        },
        |f| &f.leftovers,
    ),
    (
        "an_output_of_nobody",
        |place, _, _| append(&place.setup.state.join("outputs").join(RunId::fresh().as_str()), "x"),
        |f| &f.leftovers,
    ),
];

fn pids_root() -> &'static std::path::Path {
    let v1 = std::path::Path::new("/sys/fs/cgroup/pids");
    if v1.exists() { v1 } else { std::path::Path::new("/sys/fs/cgroup") }
}

fn sql(place: &Place, text: &str) -> Planted {
    let db = rusqlite::Connection::open(place.setup.state.join("ledger.db")).unwrap();
    db.pragma_update(None, "foreign_keys", false).unwrap();
    db.execute_batch(text).unwrap();
    Planted::default()
}

fn append(path: &std::path::Path, text: &str) -> Planted {
    let mut file = fs::File::options().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    Planted::default()
}

fn trace(place: &Place, line: &str) -> Planted {
    append(&place.trace(), &format!("{line}\n"))
}

pub fn trials() -> Vec<Trial> {
    PLANTS
        .iter()
        .map(|(name, plant, kind)| {
            trial(format!("planted_{name}_is_found"), move || {
                let mut place = Place::new();
                let mut service = place.healthy();
                let session = service.session(&place);
                let run = service.run(&start(&session, PLAIN)).unwrap().unwrap();
                let id = run.intent.run_id.clone();
                place.acknowledged.push(id.clone());
                let end = service.run(&Ask::Settled { session, run: id.clone() }).unwrap().unwrap();
                place.told(&end);
                service.stop();
                assert!(check(&place).is_clean(), "before: {:#?}", check(&place));
                let planted = plant(&mut place, &id, &run.intent.container_id);
                let findings = check(&place);
                assert!(!kind(&findings).is_empty(), "{findings:#?}");
                drop(planted);
            })
        })
        .collect()
}
