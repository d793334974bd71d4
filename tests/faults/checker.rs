//! The checker: believes the ledger's file, the kernel and the trace, never an answer of the service.

use crate::child::{OUTPUT, Place, STATUS};
use salaam::domain::ids::RunId;
use salaam::domain::outcome::Cause;
use salaam::domain::run::{Cleanup, RunEvent, RunIntent, RunState};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What is wrong, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Commands that ran more than once, or keys with more than one run.
    pub duplicates: Vec<String>,
    /// Statuses, outputs or histories that the evidence does not bear out.
    pub invented: Vec<String>,
    /// Acknowledged runs that the ledger does not have, or that have no end.
    pub lost: Vec<String>,
    /// Cgroups, processes, mounts, directories and files that are still there.
    pub leftovers: Vec<String>,
}

impl Findings {
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

/// A run as its rows say.
struct Row {
    intent: RunIntent,
    progress: Value,
    events: Vec<RunEvent>,
}

fn rows(ledger: &Path) -> Vec<Row> {
    let db =
        rusqlite::Connection::open_with_flags(ledger, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let mut runs = db.prepare("SELECT id, intent, progress FROM runs ORDER BY seq").unwrap();
    let mut events = db.prepare("SELECT seq, event FROM events WHERE run_id = ?1 ORDER BY seq").unwrap();
    let texts: Vec<(String, String, String)> =
        runs.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))).unwrap().map(Result::unwrap).collect();
    texts
        .into_iter()
        .map(|(id, intent, progress)| Row {
            intent: serde_json::from_str(&intent).unwrap(),
            progress: serde_json::from_str(&progress).unwrap(),
            events: events
                .query_map([id], |r| r.get::<_, String>(1))
                .unwrap()
                .map(|text| serde_json::from_str(&text.unwrap()).unwrap())
                .collect(),
        })
        .collect()
}

/// Checks a place whose services have stopped.
pub fn check(place: &Place) -> Findings {
    let mut found = Findings::default();
    let state = &place.setup.state;
    let rows = rows(&state.join("ledger.db"));
    let trace = place.traced();
    let passed = |point: &str, run: &RunId| {
        trace.iter().filter(|l| l[0] == "passed" && l[1] == point && l[2] == run.as_str()).count()
    };
    let struck = |point: &str, run: &RunId| {
        trace.iter().any(|l| l[0] == "struck" && l[1] == point && l[2] == run.as_str())
    };
    let mut keys = BTreeSet::new();
    for row in &rows {
        let run = &row.intent.run_id;
        let mut invented = |what: String| found.invented.push(format!("{run}: {what}"));
        let output = fs::read_to_string(state.join("outputs").join(run.as_str())).unwrap_or_default();
        // The gate is opened once at most, and the command writes its line once at most.
        let let_go = passed("go.before", run);
        if let_go > 1 || output.matches(OUTPUT).count() > 1 || !keys.insert(row.intent.step_key.clone()) {
            found.duplicates.push(format!("{run}: let go {let_go} times, output {output:?}"));
        }
        let state: RunState = serde_json::from_value(row.progress["state"].clone()).unwrap();
        let cleanup: Cleanup = serde_json::from_value(row.progress["cleanup"].clone()).unwrap();
        if !state.is_terminal() || cleanup != Cleanup::Confirmed {
            found.lost.push(format!("{run}: still {state:?}, cleanup {cleanup:?}"));
            continue;
        }
        let count = |f: fn(&RunEvent) -> bool| row.events.iter().filter(|e| f(e)).count();
        let ends = count(|e| matches!(e, RunEvent::Ended { .. } | RunEvent::Lost { .. }));
        let removals = count(|e| matches!(e, RunEvent::Removed | RunEvent::CleanedUp));
        let removed = removals == 1 || (removals == 0 && state == RunState::Interrupted);
        if ends != 1 || !removed || row.events.first() != Some(&RunEvent::Requested) {
            invented(format!("its history has {ends} ends and {removals} removals: {:?}", row.events));
        }
        let outcome = &row.progress["outcome"];
        let cause: Cause = serde_json::from_value(outcome["cause"].clone()).unwrap();
        let detail = outcome["detail"].as_str().unwrap_or_default();
        let ran = passed("go.after", run) > 0 || !output.is_empty();
        let exit_seen = passed("record.exited.before", run) > 0 && !struck("record.exited.before", run);
        if let Some(code) = outcome["exit_code"].as_u64() {
            let killed = place.cancelled && code == 137;
            if !exit_seen || (code != u64::from(STATUS) && !killed) {
                invented(format!("exit code {code}, seen: {exit_seen}"));
            }
        }
        match cause {
            Cause::Exited | Cause::Cancelled | Cause::StartFailed | Cause::Interrupted => {}
            Cause::Deadline if place.cancelled => {}
            other => invented(format!("the cause {other:?}")),
        }
        // A synced exit of a command that ran is told, whatever came after it.
        let recorded = passed("record.exited.after", run) > 0;
        if recorded && passed("go.after", run) > 0 && outcome["exit_code"].is_null() {
            invented(format!("{cause:?}, although its exit was recorded"));
        }
        if let Some(told) = place.ends.iter().find(|told| told.intent.run_id == *run)
            && serde_json::to_value(&told.outcome).unwrap() != *outcome
        {
            invented(format!("told was {:?}, the ledger has {outcome}", told.outcome));
        }
        if place.cancels.contains(run) && !row.events.contains(&RunEvent::CancelRequested) {
            found.lost.push(format!("{run}: its cancel was answered and is not in the ledger"));
        }
        if cause == Cause::Exited && (outcome["exit_code"].is_null() || output != OUTPUT) {
            invented(format!("exited with {} and output {output:?}", outcome["exit_code"]));
        }
        if ran
            && (cause == Cause::StartFailed
                || detail.contains("never ran")
                || detail.contains("before it started"))
        {
            invented(format!("{cause:?} ({detail}), although it was let go"));
        }
        if cause == Cause::Cancelled && !row.events.contains(&RunEvent::CancelRequested) {
            invented("cancelled without an order".into());
        }
        // A stored prefix is what the command wrote, as far as the ledger says it goes.
        let stored = row.progress["output"]["stored_bytes"].as_u64().unwrap_or(0);
        if !OUTPUT.starts_with(&output) || stored > output.len() as u64 {
            invented(format!("{stored} bytes stored, the file holds {output:?}"));
        }
        found.leftovers.extend(left_by(row.intent.container_id.as_str()));
    }
    for run in &place.acknowledged {
        if !rows.iter().any(|row| row.intent.run_id == *run) {
            found.lost.push(format!("{run} was acknowledged and is not in the ledger"));
        }
    }
    for line in &trace {
        // No engine call before its intent is committed.
        if line[2].starts_with("run-") && !rows.iter().any(|row| row.intent.run_id.as_str() == line[2]) {
            found.invented.push(format!("{} for {}, which the ledger does not have", line[1], line[2]));
        }
    }
    let known: BTreeSet<String> = rows.iter().map(|row| row.intent.run_id.to_string()).collect();
    found.leftovers.extend(files_left(state, &known));
    found.leftovers.extend(processes_of(place));
    found
}

/// Cgroups of a container, wherever they are, and processes in them.
fn left_by(container: &str) -> Vec<String> {
    let mut left = Vec::new();
    let mut dirs = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = dirs.pop() {
        let below = fs::read_dir(dir).into_iter().flatten().flatten();
        for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry.file_name().to_string_lossy() == container {
                left.push(entry.path().display().to_string());
            }
            dirs.push(entry.path());
        }
    }
    for (pid, dir) in processes() {
        if fs::read_to_string(dir.join("cgroup")).is_ok_and(|text| text.contains(container)) {
            left.push(format!("process {pid} of {container}"));
        }
    }
    left
}

fn files_left(state: &Path, known: &BTreeSet<String>) -> Vec<String> {
    let names = |dir: PathBuf| {
        fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
    };
    let runs = names(state.join("runs")).map(|name| format!("runs/{name}"));
    let outputs = names(state.join("outputs")).filter(|n| !known.contains(n)).map(|n| format!("outputs/{n}"));
    let proofs = names(state.to_owned()).filter(|name| name.starts_with("proof-"));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let place = state.to_string_lossy().into_owned();
    let mounts: Vec<String> = mounts.lines().filter(|l| l.contains(&place)).map(str::to_owned).collect();
    runs.chain(outputs).chain(proofs).chain(mounts).collect()
}

fn processes() -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path()))).collect()
}

/// Supervisors, sweeps and services of this place: their command line or their environment names it.
fn processes_of(place: &Place) -> Vec<String> {
    let (state, trace) = (place.setup.state.to_string_lossy(), place.trace());
    let mut left = Vec::new();
    for (pid, dir) in processes() {
        let read = |name| String::from_utf8_lossy(&fs::read(dir.join(name)).unwrap_or_default()).into_owned();
        let line = read("cmdline");
        let named = line.contains(&*state) || read("environ").contains(&*trace.to_string_lossy());
        if pid != std::process::id() && named && !line.is_empty() {
            left.push(format!("process {pid}: {}", line.replace('\0', " ")));
        }
    }
    left
}
