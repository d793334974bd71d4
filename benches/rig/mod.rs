//! What the benchmarks of the service share: its neighbours in their plainest form, rows by the
//! thousand, options, and figures.

#[path = "../../tests/soak/dice.rs"]
mod dice;
#[path = "../../tests/fixtures/plain.rs"]
mod plain;

pub use dice::Dice;
use plain::Plain;
use rusqlite::{Connection, Transaction, params};
use salaam::domain::digest::Digest;
use salaam::domain::ids::{ContainerId, ExecId, RunId, SessionId, WorkspaceId};
use salaam::domain::job::{Bundle, ImagePin};
use salaam::domain::refusal::Refusal;
use salaam::exec::{Executor, Fut};
use salaam::service::Backend;
use salaam::service::ports::{ProofSummary, Prover};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The executable.
pub const SAL: &str = env!("CARGO_BIN_EXE_sal");
/// The one file of a workspace.
const FILE: &str = "main.js";

/// What the command line asks for.
pub struct Options {
    /// Measurements of each thing.
    pub rounds: usize,
    /// Runs in the ledger.
    pub runs: usize,
    /// Where state lies for the time being.
    pub dir: PathBuf,
    /// Of the order of measurements.
    pub seed: u64,
    /// Exit with 1 if a bar is missed.
    pub check: bool,
}

/// Reads the command line; an exit code instead of options when there is nothing to measure.
pub fn options(name: &str, rounds: usize, runs: usize) -> Result<Options, ExitCode> {
    let mut found = Options {
        rounds,
        runs,
        dir: PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
        seed: Dice::fresh_seed(),
        check: false,
    };
    let mut measured = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            // Cargo gives it to a benchmark, and does not to a test.
            "--bench" => measured = true,
            "--check" => found.check = true,
            "--rounds" => found.rounds = number(&arg, args.next()).max(1),
            "--runs" => found.runs = number(&arg, args.next()).max(1),
            "--seed" => found.seed = number(&arg, args.next()) as u64,
            "--dir" => found.dir = args.next().map(PathBuf::from).expect("--dir needs a directory"),
            _ => {
                println!(
                    "usage: cargo bench --bench {name} -- [--rounds N] [--runs N] [--dir DIR] [--seed N] [--check]\n\
                     defaults: {rounds} rounds, {runs} runs, cargo's directory for temporary files"
                );
                return Err(ExitCode::from(if arg == "--help" { 0 } else { 2 }));
            }
        }
    }
    if !measured {
        println!("{name} is a benchmark: cargo bench --bench {name}");
        return Err(ExitCode::SUCCESS);
    }
    std::fs::create_dir_all(&found.dir).unwrap();
    found.dir = found.dir.canonicalize().unwrap();
    Ok(found)
}

fn number(flag: &str, text: Option<String>) -> usize {
    text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{flag} needs a number"))
}

/// The host in one line.
pub fn host() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let load = load.split(' ').next().unwrap_or_default();
    format!("host: Linux {}, {cpus} CPUs, load {load} at the start", kernel.trim())
}

/// Middle, 95th and 99th in a hundred (nearest rank), least and most of some times.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub median: Duration,
    pub p95: Duration,
    pub p99: Duration,
    pub min: Duration,
    pub max: Duration,
}

impl Figures {
    /// Of at least one time.
    pub fn of(times: &[Duration]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let rank = |hundredths: usize| sorted[(sorted.len() * hundredths).div_ceil(100).max(1) - 1];
        Self { median: rank(50), p95: rank(95), p99: rank(99), min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

/// A time in milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Prints whether a bar is met, and answers it.
pub fn bar(met: bool, text: &str) -> bool {
    println!("{}: {text}", if met { "met" } else { "MISSED" });
    met
}

/// Workspaces of one file, below a directory.
pub fn workspaces(below: PathBuf) -> Plain {
    Plain::importing(below, |root, _| {
        std::fs::write(root.join(FILE), "1").unwrap();
        Ok(vec![])
    })
}

/// A proof that costs nothing.
pub struct Proof;

impl Prover for Proof {
    fn prove(&self) -> Fut<'_, Result<ProofSummary, Refusal>> {
        Box::pin(async { Ok(ProofSummary { digest: Digest::of(b"proof"), engine: "bench".into() }) })
    }
}

/// An image that nothing looks into.
pub fn pin() -> ImagePin {
    ImagePin {
        reference: format!("localhost/salaam/bench@{}", Digest::of(b"m")),
        index: None,
        manifest: Digest::of(b"m"),
        config: Digest::of(b"c"),
        diff_ids: vec![Digest::of(b"d")],
    }
}

/// The bundle of [`pin`].
pub fn bundle() -> Bundle {
    Bundle { pin: pin(), lower: vec!["/nonexistent/rootfs".into()], etc: "/nonexistent/etc".into() }
}

/// What commands run with.
pub fn backend(executor: Arc<dyn Executor>) -> Backend {
    Backend { executor, bundle: bundle(), probe: SAL.into() }
}

/// A run of the ledger, to be copied under other ids.
pub struct Template {
    intent: Value,
    progress: String,
    open: bool,
    events: Vec<String>,
}

/// The ids of a copy.
pub struct Ids {
    pub run: RunId,
    pub container: ContainerId,
    pub exec: ExecId,
}

impl Template {
    /// Reads a run and its events.
    pub fn read(conn: &Connection, run: &RunId) -> Self {
        let sql = "SELECT intent, progress, open FROM runs WHERE id = ?1";
        let row = conn.query_row(sql, [run.as_str()], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, bool>(2)?))
        });
        let (intent, progress, open) = row.unwrap();
        let mut events = conn.prepare("SELECT event FROM events WHERE run_id = ?1 ORDER BY seq").unwrap();
        let events = events.query_map([run.as_str()], |row| row.get::<_, String>(0)).unwrap();
        let events = events.map(Result::unwrap).collect();
        Self { intent: serde_json::from_str(&intent).unwrap(), progress, open, events }
    }

    /// Writes a copy with fresh ids into a session.
    pub fn copy(&self, tx: &Transaction<'_>, session: &SessionId, workspace: &WorkspaceId, key: &str) -> Ids {
        let ids = Ids { run: RunId::fresh(), container: ContainerId::fresh(), exec: ExecId::fresh() };
        let mut intent = self.intent.clone();
        for (field, value) in [
            ("run_id", ids.run.as_str()),
            ("session_id", session.as_str()),
            ("container_id", ids.container.as_str()),
            ("exec_id", ids.exec.as_str()),
            ("step_key", key),
        ] {
            intent[field] = value.into();
        }
        tx.prepare_cached(
            "INSERT INTO runs (id, session_id, workspace_id, step_key, intent, progress, open, uncertain)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0)",
        )
        .unwrap()
        .execute(params![
            ids.run.as_str(),
            session.as_str(),
            workspace.as_str(),
            key,
            intent.to_string(),
            self.progress,
            self.open
        ])
        .unwrap();
        for event in &self.events {
            tx.prepare_cached("INSERT INTO events (run_id, event, at) VALUES (?1, ?2, ?3)")
                .unwrap()
                .execute(params![ids.run.as_str(), event, "2026-11-30T00:00:00Z"])
                .unwrap();
        }
        ids
    }
}
