//! Commands of every kind, while the service is killed again and again: each runs once at most, ends
//! once, and says truly how; nothing is left and nothing grows.
//!
//! `SAL_SOAK` is the number of commands (200; the long soak has 2000). `SAL_SOAK_SEED` repeats the choices
//! of the soak that printed it; what a kill meets is a matter of time all the same.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod dice;
#[path = "../e2e/host.rs"]
#[allow(dead_code)]
mod host;
mod jobs;
mod keeper;
mod verdict;

use dice::Dice;
use host::{Host, Image, Seen, leftovers};
use jobs::{Job, Kind, terminal};
use keeper::{Keeper, error_code};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use verdict::{Done, Findings, lists};

/// Commands unless `SAL_SOAK` says otherwise.
const COMMANDS: u64 = 200;
/// Two places a service, one a workspace.
const WORKERS: usize = 2;
/// Longest that one command is asked after: its deadline, and several starts of the service.
const PATIENCE: Duration = Duration::from_secs(240);
/// Longest pause before a cancel, in milliseconds.
const CANCEL_AFTER: u64 = 400;

fn main() {
    let args = Arguments::from_args();
    let name = "cmd8_every_command_ends_once_and_truly_while_services_are_killed";
    libtest_mimic::run(&args, vec![Trial::test(name, soak)]).exit();
}

fn soak() -> Result<(), Failed> {
    let count = usize::try_from(variable("SAL_SOAK").unwrap_or(COMMANDS)).unwrap();
    let seed = variable("SAL_SOAK_SEED").unwrap_or_else(Dice::fresh_seed);
    println!("soak of {count} commands; repeat its choices with SAL_SOAK_SEED={seed}");
    let mut dice = Dice::new(seed);
    let (begin, before) = (Instant::now(), leftovers());

    let host = Host::prepare(Image::Musl);
    let keeper = Keeper::new(&host, Dice::new(dice.roll()));
    keeper.ensure();
    let sessions: Vec<String> =
        (0..WORKERS).map(|n| host.session(&host.project(&format!("p{n}"), &[("a.txt", b"a")]))).collect();
    let jobs = jobs::plan(count, &mut dice);
    keeper.ambush(true);
    let (done, cut) = work(&host, &keeper, &sessions, &jobs, &mut dice);
    keeper.ambush(false);
    keeper.ensure();
    // Listing a long session takes memory of its own, so the service is measured before.
    keeper.stop();
    keeper.ensure();
    let listed = lists(&host, &sessions);
    host.sal(&["service", "stop"]).ok();

    let counts = keeper.counts();
    let mut found = Findings::of(&host, &done, &listed);
    if done.len() != jobs.len() {
        found.faults.push(format!("{} of {} commands were settled", done.len(), jobs.len()));
    }
    found.search(&host, &before, &done);
    found.services(&counts);
    found.print(&counts, cut, begin.elapsed());
    match found.told() {
        None => Ok(()),
        Some(faults) => Err(Failed::from(faults)),
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Runs the jobs, one worker a session, while the killer kills; answers how they ended and how many
/// calls were cut off.
fn work(
    host: &Host,
    keeper: &Keeper<'_>,
    sessions: &[String],
    jobs: &[Job],
    dice: &mut Dice,
) -> (Vec<Done>, u32) {
    let (next, cut, stop) = (AtomicUsize::new(0), AtomicU32::new(0), AtomicBool::new(false));
    let begin = Instant::now();
    let done = std::thread::scope(|scope| {
        let killer = scope.spawn(|| keeper.kill_until(&stop));
        let mut workers = Vec::new();
        for session in sessions {
            let worker = Worker { host, keeper, session, cut: &cut, dice: Dice::new(dice.roll()) };
            let next = &next;
            workers.push(scope.spawn(move || worker.work(jobs, next, begin)));
        }
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Ordering::SeqCst);
        killer.join().unwrap();
        let mut done = Vec::new();
        for part in ended {
            done.extend(part.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    (done, cut.load(Ordering::SeqCst))
}

/// Starts one command after the other in one session.
struct Worker<'a> {
    host: &'a Host,
    keeper: &'a Keeper<'a>,
    session: &'a str,
    cut: &'a AtomicU32,
    dice: Dice,
}

impl Worker<'_> {
    fn work(mut self, jobs: &[Job], next: &AtomicUsize, begin: Instant) -> Vec<Done> {
        let mut done = Vec::new();
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::SeqCst)) {
            if job.number > 0 && job.number.is_multiple_of(100) {
                println!(
                    "{} of {} begun after {:.0} s",
                    job.number,
                    jobs.len(),
                    begin.elapsed().as_secs_f64()
                );
            }
            let run = self.settle(*job);
            done.push(Done { job: *job, session: self.session.to_owned(), run });
        }
        done
    }

    /// Asks by the job's key until its run is at its end.
    fn settle(&mut self, job: Job) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let unsettled = match self.ask(job) {
                Ok(run) if terminal(&run) => return run,
                Ok(run) => run.to_string(),
                Err(seen) => {
                    self.cut.fetch_add(1, Ordering::SeqCst);
                    // Anything but a lost service is a fault of its own.
                    assert_eq!(error_code(&seen), "not_running", "{}: {seen:?}", job.key());
                    self.keeper.ensure();
                    format!("{seen:?}")
                }
            };
            assert!(Instant::now() < end, "{} is not settled after {PATIENCE:?}: {unsettled}", job.key());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts the command, or finds it again, and waits for its end.
    fn ask(&mut self, job: Job) -> Result<Value, Seen> {
        let (key, command) = (job.key(), job.command());
        let mut args = vec!["commands", "start", self.session, "--step-key", &key, "--json"];
        args.extend(["--command", &command]);
        if job.kind != Kind::Cancel {
            args.push("--wait");
            return object(self.host.sal(&args));
        }
        let run = object(self.host.sal(&args))?;
        if terminal(&run) {
            return Ok(run);
        }
        std::thread::sleep(Duration::from_millis(self.dice.below(CANCEL_AFTER)));
        let id = run["run_id"].as_str().unwrap();
        object(self.host.sal(&["commands", "cancel", self.session, "--run-id", id, "--json"]))
    }
}

/// The object on standard output, or the failure that came instead.
fn object(seen: Seen) -> Result<Value, Seen> {
    serde_json::from_str(&seen.stdout).map_err(|_| seen)
}
