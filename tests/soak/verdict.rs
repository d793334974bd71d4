//! What is held of a soak at its end, and the table.

use crate::host::{Host, leftovers};
use crate::jobs::{Job, Kind, Verdict, label, terminal};
use crate::keeper::Counts;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

/// Time for supervisors that are just ending, and for what they clean up.
const LAST_STEPS: Duration = Duration::from_secs(10);
/// The last service may have twice the memory of the first, and this many KiB more.
const MEMORY_SLACK: u64 = 4_096;
/// Most faults that are told one by one.
const TOLD: usize = 20;

/// A job, and the run that the service answered for it in the end.
pub struct Done {
    pub job: Job,
    pub session: String,
    pub run: Value,
}

/// What was found.
#[derive(Default)]
pub struct Findings {
    rows: BTreeMap<(Kind, String), u32>,
    never_launched: u32,
    duplicates: u32,
    lost: u32,
    wrong: u32,
    leftovers: Vec<String>,
    /// A sentence for each thing that may not be.
    pub faults: Vec<String>,
}

/// The runs of each session, as `sal commands list` shows them.
pub fn lists(host: &Host, sessions: &[String]) -> Vec<(String, Value)> {
    let list = |id: &String| host.sal(&["commands", "list", id, "--json"]).ok().json()["runs"].clone();
    sessions.iter().map(|id| (id.clone(), list(id))).collect()
}

impl Findings {
    /// Compares what was asked for with what the ledger and the outputs hold.
    pub fn of(host: &Host, done: &[Done], lists: &[(String, Value)]) -> Self {
        let mut all = Self::default();
        let mut by_key: BTreeMap<(String, String), Vec<&Value>> = BTreeMap::new();
        for (session, runs) in lists {
            for run in runs.as_array().unwrap() {
                let key = run["step_key"].as_str().unwrap_or_default().to_owned();
                by_key.entry((session.clone(), key)).or_default().push(run);
            }
        }
        for done in done {
            let runs = by_key.remove(&(done.session.clone(), done.job.key())).unwrap_or_default();
            all.one(host, done, &runs);
        }
        for ((session, key), runs) in by_key {
            all.duplicates += u32::try_from(runs.len()).unwrap();
            all.faults.push(format!("{} runs of {key} in {session}, which nobody asked for", runs.len()));
        }
        all
    }

    fn one(&mut self, host: &Host, done: &Done, runs: &[&Value]) {
        let key = done.job.key();
        let Some(run) = runs.first() else {
            self.lost += 1;
            self.faults.push(format!("{key} has no run; answered was {}", done.run));
            return;
        };
        if runs.len() > 1 {
            self.duplicates += u32::try_from(runs.len() - 1).unwrap();
            self.faults.push(format!("{key} has {} runs", runs.len()));
        }
        if !terminal(run) {
            self.faults.push(format!("{key} is not at its end: {run}"));
        }
        // What was answered once is the last word.
        if ["run_id", "state", "outcome", "output"].iter().any(|field| run[*field] != done.run[*field]) {
            self.faults.push(format!("{key} was answered as {} and is {run}", done.run));
        }
        let id = run["run_id"].as_str().unwrap_or_default();
        let output = fs::read(host.state().join("outputs").join(id)).unwrap_or_default();
        let marks = output.windows(key.len()).filter(|part| *part == key.as_bytes()).count();
        if marks > 1 {
            self.duplicates += 1;
            self.faults.push(format!("{key} wrote {marks} first lines: it ran more than once"));
        }
        match done.job.judge(run, &output) {
            Verdict::Meant => {}
            Verdict::NeverLaunched => self.never_launched += 1,
            Verdict::Wrong => {
                self.wrong += 1;
                self.faults
                    .push(format!("{key} ended as it must not ({} bytes of output): {run}", output.len()));
            }
        }
        *self.rows.entry((done.job.kind, label(run))).or_default() += 1;
    }

    /// Searches the host and the state directory of the stopped service for what should be gone.
    pub fn search(&mut self, host: &Host, before: &[String], done: &[Done]) {
        let runs: BTreeSet<&str> = done.iter().filter_map(|d| d.run["run_id"].as_str()).collect();
        let end = Instant::now() + LAST_STEPS;
        loop {
            let mut left: Vec<String> = leftovers().into_iter().filter(|l| !before.contains(l)).collect();
            left.extend(names(host, "runs").into_iter().map(|name| format!("run directory {name}")));
            left.extend(
                names(host, "outputs")
                    .into_iter()
                    .filter(|name| !runs.contains(name.as_str()))
                    .map(|name| format!("output {name}")),
            );
            left.extend(names(host, ".").into_iter().filter(|name| name.starts_with("proof-")));
            if left.is_empty() || Instant::now() > end {
                self.faults.extend(left.iter().map(|what| format!("left behind: {what}")));
                self.leftovers = left;
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Holds what became of the services themselves.
    pub fn services(&mut self, counts: &Counts) {
        self.faults.extend(counts.deaths.iter().cloned());
        let first = counts.memory.first().map_or(0, |(start, _)| *start);
        let last = counts.memory.iter().rev().find_map(|(_, end)| *end).unwrap_or(0);
        if first == 0 || last > 2 * first + MEMORY_SLACK {
            self.faults.push(format!(
                "the service's memory grew from {first} KiB in the first to {last} KiB in the last"
            ));
        }
    }

    /// Prints the table.
    pub fn print(&self, counts: &Counts, cut: u32, took: Duration) {
        println!("\n{:<12}{:<30}{:>8}", "kind", "outcome", "runs");
        for ((kind, outcome), runs) in &self.rows {
            println!("{:<12}{outcome:<30}{runs:>8}", kind.name());
        }
        let row = |name: &str, value: &dyn std::fmt::Display| println!("{name:<42}{value:>8}");
        println!();
        row("runs", &self.rows.values().sum::<u32>());
        row("of them never launched, by a kill", &self.never_launched);
        row("kills of a serving service", &counts.kills);
        row("kills of a starting service", &counts.ambushes);
        row("starts", &counts.starts);
        row("calls cut off and asked again", &cut);
        row("duplicates", &self.duplicates);
        row("lost", &self.lost);
        row("ended as they must not", &self.wrong);
        row("leftovers", &self.leftovers.len());
        row("wall time, s", &format!("{:.1}", took.as_secs_f64()));
        let starts: Vec<u64> = counts.memory.iter().map(|(start, _)| *start).collect();
        let ends: Vec<u64> = counts.memory.iter().filter_map(|(_, end)| *end).collect();
        for (when, seen) in [("after a start", starts), ("before an end", ends)] {
            if let (Some(first), Some(last), Some(min), Some(max)) =
                (seen.first(), seen.last(), seen.iter().min(), seen.iter().max())
            {
                println!("service {when}, resident KiB: first {first}, last {last}, min {min}, max {max}");
            }
        }
    }

    /// The faults as one text; `None` if there are none.
    pub fn told(&self) -> Option<String> {
        let more = self.faults.len().saturating_sub(TOLD);
        let mut text = self.faults.iter().take(TOLD).cloned().collect::<Vec<_>>().join("\n");
        if more > 0 {
            text.push_str(&format!("\nand {more} more"));
        }
        (!text.is_empty()).then_some(text)
    }
}

fn names(host: &Host, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(host.state().join(dir)).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
