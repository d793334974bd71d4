//! Whether a diff is slow: `sal workspace diff` over a real service against `git diff --no-index`, each as
//! a process, on the largest legal workspace with every file changed, and how both grow with files and
//! with bytes.
//!
//! ```text
//! cargo bench --bench diff -- [--rounds N] [--dir DIR] [--seed N] [--check]
//! ```
//!
//! Git shows three lines of context, as it does unless told otherwise; ours shows whole files, and comes
//! from the service. "Comparing alone" is the library's part in this process: files read beneath their
//! roots and checked, then the patch. Each round visits sizes and programs in another order.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod rig;

use rig::{Dice, Figures, Options, SAL, bar, ms};
use salaam::domain::manifest::TreeManifest;
use salaam::workspace::diff::{Revision, revisions};
use salaam::workspace::observe::observe;
use salaam::workspace::policy::Limits;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Rounds, unless told otherwise.
const ROUNDS: usize = 40;
/// Rounds before the first that counts.
const WARM_UP: usize = 3;
/// Times as long as git, at most.
const BAR: f64 = 2.0;
/// Files and bytes of a workspace, all together; the last is the largest that is legal.
const SIZES: [(usize, usize); 5] =
    [(8, 64 << 10), (64, 512 << 10), (512, 512 << 10), (64, 4 << 20), (512, 4 << 20)];
/// Length of a line, about that of code.
const LINE: usize = 32;
/// One line in so many is changed.
const CHANGED: usize = 16;

/// What is timed.
const TIMED: [&str; 4] = ["sal workspace diff", "git diff --no-index", "git, whole files", "comparing alone"];

/// A session with two revisions, and the times taken there.
struct World {
    files: usize,
    bytes: usize,
    session: String,
    roots: [PathBuf; 2],
    manifests: [TreeManifest; 2],
    times: [Vec<Duration>; TIMED.len()],
}

/// A file of `bytes` bytes: words that hardly repeat, with some lines changed in the later revision.
fn content(dice: &mut Dice, bytes: usize) -> [String; 2] {
    let (mut old, mut new) = (String::new(), String::new());
    for at in 0..bytes / LINE {
        let line = |dice: &mut Dice| format!("{:0width$}\n", dice.below(u64::MAX), width = LINE - 1);
        let kept = line(dice);
        if at % CHANGED == 3 {
            new.push_str(&line(dice))
        } else {
            new.push_str(&kept)
        }
        old.push_str(&kept);
    }
    [old, new]
}

fn sal(state: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(SAL);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SAL_")) {
        command.env_remove(name);
    }
    command.args(args).arg("--state").arg(state).stdin(Stdio::null());
    command
}

fn answer(mut command: Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

impl World {
    /// Imports a project, and publishes a second revision.
    fn make((files, bytes): (usize, usize), dir: &Path, state: &Path, dice: &mut Dice) -> Self {
        let project = dir.join(format!("project-{files}-{bytes}"));
        let contents: Vec<_> = (0..files).map(|_| content(dice, bytes / files)).collect();
        let write = |root: &Path, which: usize| {
            for (at, content) in contents.iter().enumerate() {
                let path = root.join(format!("d{}/f{at}.js", at % 23));
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, &content[which]).unwrap();
            }
        };
        write(&project, 0);
        let made = answer(sal(
            state,
            &["session", "create", "--coding", "--json", "--cwd", project.to_str().unwrap()],
        ));
        let first = PathBuf::from(made["workspace"]["root"].as_str().unwrap());
        let session = made["session_id"].as_str().unwrap().to_owned();
        // By hand in the root of the import, adopted, and undone there.
        write(&first, 1);
        let view = answer(sal(state, &["workspace", "inspect", &session, "--json"]));
        let digest = view["observed_digest"].as_str().unwrap();
        let refresh = ["workspace", "refresh", &session, "--revision", "1", "--digest", digest, "--json"];
        let second = PathBuf::from(answer(sal(state, &refresh))["root"].as_str().unwrap());
        write(&first, 0);
        let roots = [first, second];
        let manifests = [0, 1].map(|at| observe(&roots[at], &Limits::fixed()).unwrap().manifest);
        Self { files, bytes, session, roots, manifests, times: Default::default() }
    }

    fn round(&mut self, state: &Path, dice: &mut Dice, counts: bool) {
        let mut order: Vec<usize> = (0..TIMED.len()).collect();
        dice.shuffle(&mut order);
        for timed in order {
            let begin = Instant::now();
            match timed {
                0 => assert!(quiet(sal(state, &["workspace", "diff", &self.session])).success()),
                1 => assert_eq!(quiet(self.git(&[])).code(), Some(1)),
                2 => assert_eq!(quiet(self.git(&["-U999999", "--full-index"])).code(), Some(1)),
                _ => {
                    let [old, new] = [0, 1].map(|at| Revision {
                        root: &self.roots[at],
                        elsewhere: &[],
                        manifest: &self.manifests[at],
                    });
                    assert_eq!(revisions(old, new).unwrap().files.len(), self.files);
                }
            }
            if counts {
                self.times[timed].push(begin.elapsed());
            }
        }
    }

    fn git(&self, more: &[&str]) -> Command {
        let mut git = Command::new("git");
        git.args(["diff", "--no-index", "--no-renames"]).args(more).args(&self.roots);
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").stdin(Stdio::null());
        git
    }
}

/// Runs a program whose output goes through a pipe to nobody who waits.
fn quiet(mut command: Command) -> std::process::ExitStatus {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    std::io::copy(&mut child.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
    child.wait().unwrap()
}

fn main() -> ExitCode {
    let options = match rig::options("diff", ROUNDS, 1) {
        Ok(options) => options,
        Err(code) => return code,
    };
    println!("{}", rig::host());
    println!("{} rounds, order shuffled by seed {}", options.rounds, options.seed);
    let mut dice = Dice::new(options.seed);
    let tmp = tempfile::Builder::new().prefix("diff-").tempdir_in(&options.dir).unwrap();
    let (state, coding) = (tmp.path().join("state"), tmp.path().join("coding"));
    std::fs::create_dir(&coding).unwrap();
    std::fs::set_permissions(&coding, std::fs::Permissions::from_mode(0o700)).unwrap();
    let start = [
        "service",
        "start",
        "--json",
        "--coding-executor",
        "none",
        "--coding-root",
        coding.to_str().unwrap(),
    ];
    answer(sal(&state, &start));
    let mut worlds: Vec<World> =
        SIZES.iter().map(|size| World::make(*size, tmp.path(), &state, &mut dice)).collect();
    for round in 0..WARM_UP + options.rounds {
        dice.shuffle(&mut worlds);
        for world in &mut worlds {
            world.round(&state, &mut dice, round >= WARM_UP);
        }
    }
    let _ = sal(&state, &["service", "stop"]).output();
    let met = report(&options, &mut worlds);
    ExitCode::from(u8::from(options.check && !met))
}

fn report(_options: &Options, worlds: &mut [World]) -> bool {
    worlds.sort_by_key(|world| (world.bytes, world.files));
    println!("\n{:<18}{:<24}{:>10}{:>10}{:>9}{:>9}", "ms", "", "median", "p95", "ratio", "of p95");
    let mut met = true;
    for world in worlds.iter() {
        let name = format!("{} × {} KiB", world.files, world.bytes / world.files / 1024);
        let base = Figures::of(&world.times[1]);
        for (timed, what) in TIMED.iter().enumerate() {
            let seen = Figures::of(&world.times[timed]);
            let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
            print!("{name:<18}{what:<24}{:>10.2}{:>10.2}", ms(seen.median), ms(seen.p95));
            println!("{:>9.2}{:>9.2}", ratio(seen.median, base.median), ratio(seen.p95, base.p95));
        }
    }
    println!("ratio: times as long as git diff --no-index on the same files in the same invocation\n");
    for world in worlds.iter().filter(|world| (world.files, world.bytes) == SIZES[SIZES.len() - 1]) {
        let [ours, git] = [0, 1].map(|timed| Figures::of(&world.times[timed]).median);
        let ratio = ours.as_secs_f64() / git.as_secs_f64();
        let text = format!(
            "{} changed files, {} MiB: {ratio:.2} times as long, bar {BAR}",
            world.files,
            world.bytes >> 20
        );
        met &= bar(ratio <= BAR, &text);
    }
    met
}
