//! The life of the service: killed by chance, started again by whoever misses it.

use crate::dice::Dice;
use crate::host::{Host, Seen};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Shortest life of a service, in milliseconds, and how much longer it may get: four seconds on average.
const LIFE: (u64, u64) = (2_500, 3_000);
/// One start in so many is killed under way.
const AMBUSHED: u64 = 6;
/// When: 100 to 900 ms after its begin, in the middle of recovery or proof.
const AMBUSH: (u64, u64) = (100, 800);
/// Longest that starting takes, ambushes included.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How often the killer looks.
const LOOK: Duration = Duration::from_millis(50);

/// Keeps a service running on a host, and kills it.
pub struct Keeper<'a> {
    host: &'a Host,
    life: Mutex<Life>,
}

struct Life {
    dice: Dice,
    pid: i32,
    up: bool,
    since: Instant,
    due: Duration,
    ambushes: bool,
    seen: Counts,
}

/// What happened to services.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Services that came to accept clients.
    pub starts: u32,
    /// Services killed while they served.
    pub kills: u32,
    /// Services killed while they started.
    pub ambushes: u32,
    /// Services that ended when nobody had killed them.
    pub deaths: Vec<String>,
    /// Resident memory after each start, and before each end that we made, in KiB.
    pub memory: Vec<(u64, Option<u64>)>,
}

impl<'a> Keeper<'a> {
    pub fn new(host: &'a Host, dice: Dice) -> Self {
        let life = Life {
            dice,
            pid: 0,
            up: false,
            since: Instant::now(),
            due: Duration::ZERO,
            ambushes: false,
            seen: Counts::default(),
        };
        Self { host, life: Mutex::new(life) }
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills starts under way from now on, or no more.
    pub fn ambush(&self, on: bool) {
        self.life().ambushes = on;
    }

    pub fn counts(&self) -> Counts {
        self.life().seen.clone()
    }

    /// Returns with a service that accepts clients. One caller starts it, the others wait.
    pub fn ensure(&self) {
        let mut life = self.life();
        if life.up && is_service(life.pid) {
            return;
        }
        if life.up {
            let text = format!("service {} ended by itself", life.pid);
            life.seen.deaths.push(text);
            life.up = false;
        }
        self.start(&mut life);
    }

    fn start(&self, life: &mut Life) {
        let end = Instant::now() + START_LIMIT;
        loop {
            let ambush = life.ambushes && life.dice.below(AMBUSHED) == 0;
            let delay = Duration::from_millis(AMBUSH.0 + life.dice.below(AMBUSH.1));
            let last = life.pid;
            let (seen, slain) = std::thread::scope(|scope| {
                let thread = ambush.then(|| {
                    scope.spawn(move || {
                        std::thread::sleep(delay);
                        self.kill_starting(last)
                    })
                });
                let seen = self.host.service_start_with(&["--json"]);
                (seen, thread.and_then(|thread| thread.join().unwrap()))
            });
            if let Some(pid) = slain {
                life.seen.ambushes += 1;
                life.pid = pid;
            } else if seen.code == 0 {
                life.pid = i32::try_from(seen.json()["pid"].as_i64().unwrap()).unwrap();
                life.seen.starts += 1;
                life.seen.memory.push((resident(life.pid).unwrap_or(0), None));
                (life.up, life.since) = (true, Instant::now());
                life.due = Duration::from_millis(LIFE.0 + life.dice.below(LIFE.1));
                return;
            } else {
                // A killed process holds its locks until the kernel has taken it apart.
                assert_eq!(error_code(&seen), "already_running", "a start failed: {seen:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(Instant::now() < end, "no start within {START_LIMIT:?}: {seen:?}");
        }
    }

    /// Kills the service that holds the lock of the state directory, unless that is still `last`.
    fn kill_starting(&self, last: i32) -> Option<i32> {
        let text = fs::read_to_string(self.host.state().join("lock")).ok()?;
        let pid: i32 = text.trim().parse().ok()?;
        (pid != last && is_service(pid) && kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok()).then_some(pid)
    }

    /// Kills each service when its time has come, until told to stop.
    pub fn kill_until(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            std::thread::sleep(LOOK);
            let mut life = self.life();
            if !life.up || life.since.elapsed() < life.due || !is_service(life.pid) {
                continue;
            }
            life.note_memory();
            kill(Pid::from_raw(life.pid), Signal::SIGKILL).unwrap();
            life.up = false;
            life.seen.kills += 1;
        }
    }

    /// Stops the service as a person would.
    pub fn stop(&self) {
        let mut life = self.life();
        life.note_memory();
        life.up = false;
        self.host.sal(&["service", "stop"]).ok();
    }
}

impl Life {
    fn note_memory(&mut self) {
        let now = resident(self.pid);
        if let Some((_, before_end)) = self.seen.memory.last_mut() {
            *before_end = now;
        }
    }
}

/// The code of a failed `--json` call; empty if it told none.
pub fn error_code(seen: &Seen) -> String {
    let value: serde_json::Value = serde_json::from_str(seen.stderr.trim()).unwrap_or_default();
    value["error"]["code"].as_str().unwrap_or_default().to_owned()
}

/// Whether the process is a background service; one that has ended has no command line.
fn is_service(pid: i32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|b| *b == 0).any(|word| word == b"--detached")
}

fn resident(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
