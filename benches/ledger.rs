//! Whether a long history slows a service down: how long the start of a command takes, its durable
//! commit included, and how long the inspection of a run, on an almost empty ledger and on ledgers with
//! 100,000 finished runs, in the session at hand or in others.
//!
//! ```text
//! cargo bench --bench ledger -- [--rounds N] [--runs N] [--dir DIR] [--seed N] [--check]
//! ```
//!
//! The service runs in this process over the scripted executor, so that no container's start hides what is
//! looked for; the last rows are the real `sal commands inspect` over a real service. Each round visits the
//! ledgers in another order, so that a slow phase of the machine hits all alike. The old runs are copies of
//! a run that the service itself recorded, under fresh ids; they have no output files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod rig;

use rig::{Dice, Figures, Options, Proof, SAL, Template, backend, bar, ms, workspaces};
use rusqlite::Connection;
use salaam::domain::ids::{RunId, SessionId, WorkspaceId};
use salaam::domain::relpath::RelPath;
use salaam::domain::run::RunState;
use salaam::domain::session::{Session, SessionKind};
use salaam::exec::scripted::Scripted;
use salaam::service::startup::Opened;
use salaam::service::{CreateSession, Service, StartCommand, settled};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rounds, unless told otherwise; the bars ask for at least 200.
const ROUNDS: usize = 300;
/// Finished runs in a long ledger, unless told otherwise.
const RUNS: usize = 100_000;
/// Rounds before the first that counts.
const WARM_UP: usize = 20;
/// Sessions that share the old runs where they are not all in one.
const OTHERS: usize = 100;
/// Times as long as on the empty ledger, at most.
const BAR: f64 = 1.2;
/// Longest wait for a run to be over.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where the old runs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    /// There are none but the one that was copied elsewhere.
    Empty,
    /// In the session that commands are started in.
    Same,
    /// In other sessions.
    Others,
}

impl History {
    const ALL: [Self; 3] = [Self::Empty, Self::Same, Self::Others];

    fn name(self, runs: usize) -> String {
        match self {
            Self::Empty => "empty ledger".to_owned(),
            Self::Same => format!("{runs} runs in its session"),
            Self::Others => format!("{runs} runs in {OTHERS} others"),
        }
    }
}

/// What is timed.
const TIMED: [&str; 4] = ["start", "inspect the new run", "inspect an old run", "sal commands inspect"];
const START: usize = 0;
const NEW: usize = 1;
const OLD: usize = 2;
const CLI: usize = 3;

/// One ledger, its service, and the times taken there.
struct World {
    history: History,
    state: PathBuf,
    exec: Scripted,
    service: Service,
    session: SessionId,
    old: Vec<(SessionId, RunId)>,
    opened_in: Duration,
    times: [Vec<Duration>; TIMED.len()],
}

async fn open(state: &Path, exec: &Scripted) -> Service {
    let port = Arc::new(workspaces(state.with_extension("coding")));
    let opened = Opened::open(state).await.unwrap();
    let chosen = opened.choose(Some(backend(Arc::new(exec.clone()))), Some(port)).unwrap();
    chosen.recover().await.unwrap().prove(&Proof).await.unwrap().ready()
}

async fn session(service: &Service) -> Session {
    let req = CreateSession { kind: SessionKind::Coding, cwd: "/nonexistent/project".into() };
    service.create_session(req).await.unwrap()
}

fn workspace(session: &Session) -> WorkspaceId {
    session.workspace.as_ref().unwrap().id.clone()
}

/// Starts a command and follows it until nothing of it is live; answers it and how long the start took.
async fn command(service: &Service, exec: &Scripted, session: &SessionId) -> (RunId, Duration) {
    let cwd = RelPath::default();
    let req = StartCommand { step_key: None, command: "node --test".into(), cwd, revision: None };
    let begin = Instant::now();
    let run = service.start_command(session, req).await.unwrap();
    let took = begin.elapsed();
    let id = run.intent.run_id;
    let mut watch = service.follow(session, &id).await.unwrap();
    // The sender may be gone already, with the last state in the channel.
    let _ = tokio::time::timeout(PATIENCE, watch.wait_for(settled)).await.unwrap();
    // Forgotten after the driver has left, so that whoever asks now reads the ledger.
    let end = Instant::now() + PATIENCE;
    while !exec.was_forgotten(&id) {
        assert!(Instant::now() < end, "{id} is not forgotten");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    (id, took)
}

impl World {
    async fn make(history: History, dir: &Path, runs: usize) -> Self {
        let state = dir.join(format!("{history:?}").to_lowercase());
        let exec = Scripted::new();
        let service = open(&state, &exec).await;
        let own = session(&service).await;
        let mut homes = Vec::new();
        match history {
            History::Empty => {}
            History::Same => homes.push((own.id.clone(), workspace(&own))),
            History::Others => {
                for _ in 0..OTHERS {
                    let other = session(&service).await;
                    homes.push((other.id.clone(), workspace(&other)));
                }
            }
        }
        let (first, _) = command(&service, &exec, &own.id).await;
        service.shutdown(false).await.unwrap();
        let mut old = fill(&state, &first, &homes, runs);
        if old.is_empty() {
            old.push((own.id.clone(), first));
        }
        let begin = Instant::now();
        let service = open(&state, &exec).await;
        let opened_in = begin.elapsed();
        Self { history, state, exec, service, session: own.id, old, opened_in, times: Default::default() }
    }

    async fn round(&mut self, dice: &mut Dice, counts: bool) {
        let (run, start) = command(&self.service, &self.exec, &self.session).await;
        let (home, old) = self.any_old(dice);
        let begin = Instant::now();
        let found = self.service.run(&self.session, &run).await.unwrap();
        let new = begin.elapsed();
        assert_eq!(found.state, RunState::Finished);
        let begin = Instant::now();
        let found = self.service.run(&home, &old).await.unwrap();
        let past = begin.elapsed();
        assert_eq!(found.state, RunState::Finished);
        if counts {
            self.times[START].push(start);
            self.times[NEW].push(new);
            self.times[OLD].push(past);
        }
    }

    fn any_old(&self, dice: &mut Dice) -> (SessionId, RunId) {
        self.old[dice.below(self.old.len() as u64) as usize].clone()
    }

    fn inspect(&mut self, dice: &mut Dice, counts: bool) {
        let (session, run) = self.any_old(dice);
        let mut sal = sal(&self.state, &["commands", "inspect", session.as_str()]);
        sal.args(["--run-id", run.as_str(), "--json"]);
        let begin = Instant::now();
        let output = sal.output().unwrap();
        let took = begin.elapsed();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        if counts {
            self.times[CLI].push(took);
        }
    }
}

/// Copies a finished run until there are `runs` in all, in turn over `homes`; answers the copies.
fn fill(
    state: &Path,
    first: &RunId,
    homes: &[(SessionId, WorkspaceId)],
    runs: usize,
) -> Vec<(SessionId, RunId)> {
    let path = state.join("ledger.db");
    let mut conn = Connection::open(&path).unwrap();
    // One sync at the end is enough for what can be made again.
    conn.pragma_update(None, "synchronous", "OFF").unwrap();
    let template = Template::read(&conn, first);
    let tx = conn.transaction().unwrap();
    let mut made = Vec::new();
    if !homes.is_empty() {
        for n in 0..runs {
            let (session, workspace) = &homes[n % homes.len()];
            let ids = template.copy(&tx, session, workspace, &format!("old-{n}"));
            made.push((session.clone(), ids.run));
        }
    }
    tx.commit().unwrap();
    // The last connection to close leaves no write-ahead log, as a service that is stopped.
    conn.close().unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    made
}

/// A verb on the service of a state directory, without what the caller's environment says.
fn sal(state: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(SAL);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SAL_")) {
        command.env_remove(name);
    }
    command.args(args).arg("--state").arg(state).stdin(Stdio::null());
    command
}

/// A service without an executor in a process of its own.
struct Running(PathBuf);

impl Running {
    fn start(state: &Path) -> Self {
        let output = sal(state, &["service", "start"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(state.to_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = sal(&self.0, &["service", "stop"]).output();
    }
}

fn main() -> ExitCode {
    let options = match rig::options("ledger", ROUNDS, RUNS) {
        Ok(options) => options,
        Err(code) => return code,
    };
    println!("{}", rig::host());
    println!(
        "{} rounds, order shuffled by seed {}; state below {}",
        options.rounds,
        options.seed,
        options.dir.display()
    );
    let mut dice = Dice::new(options.seed);
    let tmp = tempfile::Builder::new().prefix("ledger-").tempdir_in(&options.dir).unwrap();
    // As the service's own runtime.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut worlds = runtime.block_on(in_process(&options, tmp.path(), &mut dice));
    drop(runtime);
    with_sal(&options, &mut worlds, &mut dice);
    let met = report(&options, &worlds);
    ExitCode::from(u8::from(options.check && !met))
}

async fn in_process(options: &Options, dir: &Path, dice: &mut Dice) -> Vec<World> {
    let mut worlds = Vec::new();
    for history in History::ALL {
        worlds.push(World::make(history, dir, options.runs).await);
    }
    for round in 0..WARM_UP + options.rounds {
        dice.shuffle(&mut worlds);
        for world in &mut worlds {
            world.round(dice, round >= WARM_UP).await;
        }
    }
    for world in &worlds {
        world.service.shutdown(false).await.unwrap();
    }
    worlds
}

fn with_sal(options: &Options, worlds: &mut [World], dice: &mut Dice) {
    let running: Vec<_> = worlds.iter().map(|world| Running::start(&world.state)).collect();
    for round in 0..WARM_UP + options.rounds {
        dice.shuffle(worlds);
        for world in worlds.iter_mut() {
            world.inspect(dice, round >= WARM_UP);
        }
    }
    drop(running);
}

fn report(options: &Options, worlds: &[World]) -> bool {
    let find = |history: History| worlds.iter().find(|world| world.history == history).unwrap();
    let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
    let mut verdicts = Vec::new();
    println!("\n{:<24}{:<30}{:>10}{:>10}{:>9}{:>9}", "ms", "", "median", "p95", "ratio", "of p95");
    for (timed, what) in TIMED.iter().enumerate() {
        let base = Figures::of(&find(History::Empty).times[timed]);
        for history in History::ALL {
            let (name, seen) = (history.name(options.runs), Figures::of(&find(history).times[timed]));
            let (median, p95) = (ratio(seen.median, base.median), ratio(seen.p95, base.p95));
            print!("{what:<24}{name:<30}{:>10.3}{:>10.3}", ms(seen.median), ms(seen.p95));
            println!("{median:>9.2}{p95:>9.2}");
            if history != History::Empty {
                let text =
                    format!("{what}, {name}: {median:.2} times as long, p95 {p95:.2} times, bar {BAR}");
                verdicts.push((median <= BAR && p95 <= BAR, text));
            }
        }
    }
    println!("ratio: times as long as on the empty ledger in the same invocation\n");
    for history in History::ALL {
        let (world, name) = (find(history), history.name(options.runs));
        let size = std::fs::metadata(world.state.join("ledger.db")).map_or(0, |meta| meta.len());
        println!("{name}: {} KiB, opened in {:.0} ms", size / 1024, ms(world.opened_in));
    }
    println!();
    let missed = verdicts.iter().filter(|(met, text)| !bar(*met, text)).count();
    missed == 0
}
