//! How long a service needs to settle a thousand runs that an earlier one left unfinished, with no
//! supervisor alive, by how far each had come.
//!
//! ```text
//! cargo bench --bench recovery -- [--rounds N] [--runs N] [--dir DIR] [--seed N] [--check]
//! ```
//!
//! The executor is the native one, with the real `sal` for its sweeps, so it needs root. The state is that
//! of a killed service: the ledger has its write-ahead log and is checked in full, and the boot is the
//! current one. Two times are taken from the opening of the state directory on: until the recovery has
//! returned, and until the last run is at its end. Afterwards every run must have its right end, and no
//! run directory may be left.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod rig;

use rig::{Dice, Figures, Ids, Options, Proof, SAL, Template, backend, bar, bundle, ms, pin};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use salaam::domain::ids::{ContainerId, ExecId, RunId, SessionId, StepKey, WorkspaceId};
use salaam::domain::job::{Entry, FORMAT, JOB_FILE, Job, LOCK_FILE, RECORDS_FILE};
use salaam::domain::manifest::TreeManifest;
use salaam::domain::outcome::{Cause, Ending, Evidence, SpaceLeft};
use salaam::domain::profile::Profile;
use salaam::domain::record::Record;
use salaam::domain::relpath::RelPath;
use salaam::domain::run::{Cleanup, Run, RunIntent, RunState};
use salaam::domain::session::SessionKind;
use salaam::exec::native::NativeExecutor;
use salaam::ledger::{Import, Ledger, Verdict};
use salaam::service::clock;
use salaam::service::startup::Opened;
use salaam::service::state_dir::StateDir;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rounds, unless told otherwise.
const ROUNDS: usize = 3;
/// Unfinished runs, unless told otherwise.
const RUNS: usize = 1_000;
/// Seconds that the recovery may take.
const BAR: f64 = 2.0;
/// Longest wait for the last run.
const PATIENCE: Duration = Duration::from_secs(300);
/// Exit status of the runs that came to an end.
const STATUS: u8 = 7;
/// Wall-clock time of a command, in nanoseconds.
const DEADLINE_NS: u64 = 30_000_000_000;

/// How far the runs had come when service and supervisors died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    /// The intent is committed, nothing else is there.
    Intent,
    /// The supervisor had let the command go.
    Launching,
    /// The end is recorded, removal is not.
    Exited,
    /// Everything is recorded.
    Removed,
}

impl Reached {
    const ALL: [Self; 4] = [Self::Intent, Self::Launching, Self::Exited, Self::Removed];

    fn name(self) -> &'static str {
        match self {
            Self::Intent => "intent committed, no directory",
            Self::Launching => "records up to launching",
            Self::Exited => "records up to exited",
            Self::Removed => "records up to removed",
        }
    }

    fn records(self, ids: &Ids) -> Vec<Record> {
        // The id is that of another process by now, as the start time says.
        let pid = i32::try_from(std::process::id()).unwrap();
        let space = Some(SpaceLeft { bytes: 1 << 20, inodes: 100 });
        let evidence = Evidence { work: space, scratch: space, ..Evidence::default() };
        let mut all = vec![
            Record::Supervising { pid, start_ticks: 1, container_id: ids.container.clone() },
            Record::Launching { exec_id: ids.exec.clone(), pid, start_ticks: 1 },
            Record::Exited { ending: Ending::Exited(STATUS), evidence },
            Record::Removed { left: vec![] },
        ];
        all.truncate(match self {
            Self::Intent => 0,
            Self::Launching => 2,
            Self::Exited => 3,
            Self::Removed => 4,
        });
        all
    }

    /// Whether a run has the end that its records allow.
    fn is_right(self, run: &Run) -> bool {
        let Some(outcome) = &run.outcome else { return false };
        let told = match self {
            Self::Intent | Self::Launching => (RunState::Interrupted, Cause::Interrupted, None),
            Self::Exited | Self::Removed => (RunState::Finished, Cause::Exited, Some(STATUS)),
        };
        (run.state, outcome.cause, outcome.exit_code) == told && run.cleanup == Cleanup::Confirmed
    }
}

/// The times of one recovery, and the runs that did not end as they must.
struct Taken {
    recovered: Duration,
    settled: Duration,
    tidy: Duration,
    wrong: usize,
}

/// Makes the state directory of a dead service; answers its session.
async fn leave(state: &Path, reached: Reached, runs: usize) -> SessionId {
    let dir = StateDir::lock(state).unwrap();
    let ledger = Ledger::open(&dir.ledger()).unwrap();
    let (session, workspace) = (SessionId::fresh(), WorkspaceId::fresh());
    let kind = SessionKind::Coding;
    let below = Some((workspace.clone(), "/nonexistent".to_owned()));
    ledger.begin_session(&session, kind, "/nonexistent".into(), below).await.unwrap();
    let root = "/nonexistent/root".to_owned();
    let import = Import { root, manifest: TreeManifest::default(), excluded: vec![] };
    ledger.publish_import(&session, import).await.unwrap();
    let intent = intent(&session);
    let first = Ids {
        run: intent.run_id.clone(),
        container: intent.container_id.clone(),
        exec: intent.exec_id.clone(),
    };
    let _ = ledger.request_run(intent.clone(), |_| Ok(Verdict::Admit)).await.unwrap();
    ledger.close();
    let mut all = copies(&dir.ledger(), &first, &session, &workspace, runs);
    all.push(first);
    for ids in &all {
        let records = reached.records(ids);
        if !records.is_empty() {
            run_directory(&dir, &intent, ids, &records);
        }
    }
    dir.release();
    session
}

fn intent(session: &SessionId) -> RunIntent {
    RunIntent {
        run_id: RunId::fresh(),
        session_id: session.clone(),
        container_id: ContainerId::fresh(),
        exec_id: ExecId::fresh(),
        step_key: StepKey::parse("first").unwrap(),
        command: "node --test".into(),
        cwd: RelPath::default(),
        revision: 1,
        digest: TreeManifest::default().digest(),
        image: pin(),
        profile: Profile::fixed().digest(),
        executor: "oci".into(),
        engine: "bench".into(),
        boot_id: clock::boot_id().unwrap(),
        deadline_ns: clock::boottime_ns().unwrap() + DEADLINE_NS,
    }
}

/// Copies the first run until there are `runs`; answers the copies.
fn copies(ledger: &Path, first: &Ids, session: &SessionId, workspace: &WorkspaceId, runs: usize) -> Vec<Ids> {
    let mut conn = Connection::open(ledger).unwrap();
    // A killed service leaves its write-ahead log.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    let template = Template::read(&conn, &first.run);
    let tx = conn.transaction().unwrap();
    let made = (1..runs).map(|n| template.copy(&tx, session, workspace, &format!("k{n}"))).collect();
    tx.commit().unwrap();
    conn.close().unwrap();
    made
}

/// Writes what a supervisor that was killed leaves.
fn run_directory(state: &StateDir, intent: &RunIntent, ids: &Ids, records: &[Record]) {
    let dir = state.runs().join(ids.run.as_str());
    fs::create_dir(&dir).unwrap();
    let job = Job {
        format: FORMAT,
        run_id: ids.run.clone(),
        container_id: ids.container.clone(),
        exec_id: ids.exec.clone(),
        boot_id: intent.boot_id.clone(),
        deadline_ns: intent.deadline_ns,
        entry: Entry::Command { text: intent.command.clone(), cwd: intent.cwd.clone() },
        profile: Profile::fixed(),
        bundle: bundle(),
        source: "/nonexistent/root".into(),
        manifest: TreeManifest::default(),
        output: state.output(&ids.run),
        probe: SAL.into(),
    };
    fs::write(dir.join(JOB_FILE), serde_json::to_vec(&job).unwrap()).unwrap();
    let lines: String = records.iter().map(|r| serde_json::to_string(r).unwrap() + "\n").collect();
    fs::write(dir.join(RECORDS_FILE), lines).unwrap();
    for name in ["log", LOCK_FILE] {
        fs::write(dir.join(name), "").unwrap();
    }
}

/// Starts a service over what was left, and waits until every run is at its end.
async fn recover(state: &Path, session: &SessionId, reached: Reached, runs: usize) -> Taken {
    let begin = Instant::now();
    let opened = Opened::open(state).await.unwrap();
    let dir = opened.state().runs();
    let executor = Arc::new(NativeExecutor::new(SAL.into(), dir.clone()));
    let chosen = opened.choose_in_boot(Some(backend(executor)), None, clock::boot_id().unwrap());
    let recovered = chosen.recover().await.unwrap();
    let recovered_in = begin.elapsed();
    let service = recovered.prove(&Proof).await.unwrap().ready();
    while service.status().runs > 0 && begin.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let settled = begin.elapsed();
    while fs::read_dir(&dir).unwrap().count() > 0 && begin.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let tidy = begin.elapsed();
    let found = service.runs(session).await.unwrap();
    assert_eq!(found.len(), runs);
    let wrong: Vec<&Run> = found.iter().filter(|run| !reached.is_right(run)).collect();
    if let Some(first) = wrong.first() {
        println!("WRONG, {}: {} of {runs}, such as {first:?}", reached.name(), wrong.len());
    }
    let left = fs::read_dir(&dir).unwrap().count();
    if left > 0 {
        println!("WRONG, {}: {left} run directories are left", reached.name());
    }
    let wrong = wrong.len() + left;
    service.shutdown(false).await.unwrap();
    Taken { recovered: recovered_in, settled, tidy, wrong }
}

async fn measure(options: &Options) -> Vec<(Reached, Taken)> {
    let mut dice = Dice::new(options.seed);
    let mut taken = Vec::new();
    for _ in 0..options.rounds {
        let mut order = Reached::ALL;
        dice.shuffle(&mut order);
        for reached in order {
            let tmp = tempfile::Builder::new().prefix("recovery-").tempdir_in(&options.dir).unwrap();
            let state = tmp.path().join("state");
            let session = leave(&state, reached, options.runs).await;
            taken.push((reached, recover(&state, &session, reached, options.runs).await));
        }
    }
    taken
}

fn main() -> ExitCode {
    let options = match rig::options("recovery", ROUNDS, RUNS) {
        Ok(options) => options,
        Err(code) => return code,
    };
    println!("{}", rig::host());
    println!(
        "{} unfinished runs, {} rounds, order shuffled by seed {}; state below {}; ledger format {}",
        options.runs,
        options.rounds,
        options.seed,
        options.dir.display(),
        salaam::ledger::schema::newest()
    );
    // As the service's own runtime.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let taken = runtime.block_on(measure(&options));
    let met = report(&options, &taken);
    ExitCode::from(u8::from(options.check && !met))
}

fn report(options: &Options, taken: &[(Reached, Taken)]) -> bool {
    println!("\n{:<34}{:<24}{:>10}{:>10}{:>10}", "ms", "", "median", "min", "max");
    let mut verdicts = Vec::new();
    for reached in Reached::ALL {
        let of = |time: fn(&Taken) -> Duration| {
            let times: Vec<_> = taken.iter().filter(|(r, _)| *r == reached).map(|(_, t)| time(t)).collect();
            Figures::of(&times)
        };
        let rows = [
            ("recovery returned", of(|t| t.recovered)),
            ("every run at its end", of(|t| t.settled)),
            ("every directory gone", of(|t| t.tidy)),
        ];
        for (what, seen) in rows {
            let (median, min, max) = (ms(seen.median), ms(seen.min), ms(seen.max));
            println!("{:<34}{what:<24}{median:>10.0}{min:>10.0}{max:>10.0}", reached.name());
        }
        let wrong: usize = taken.iter().filter(|(r, _)| *r == reached).map(|(_, t)| t.wrong).sum();
        let (returned, settled) = (rows[0].1.median.as_secs_f64(), rows[1].1.median.as_secs_f64());
        verdicts.push((
            returned <= BAR,
            format!("{}: recovery returned in {returned:.2} s, bar {BAR:.0}", reached.name()),
        ));
        verdicts.push((
            settled <= BAR,
            format!("{}: every run at its end in {settled:.2} s, bar {BAR:.0}", reached.name()),
        ));
        verdicts
            .push((wrong == 0, format!("{}: {wrong} runs or directories not as they must", reached.name())));
    }
    println!("times: from the opening of the state directory with {} unfinished runs\n", options.runs);
    let missed = verdicts.iter().filter(|(met, text)| !bar(*met, text)).count();
    missed == 0
}
