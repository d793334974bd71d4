//! Whether a workspace is slow: import and the publication of a one-file patch against `cp -a` and
//! `sync -f` of the same tree, each as a process; list, read and search through the socket; and how all of
//! it grows with files and with bytes.
//!
//! ```text
//! cargo bench --bench workspace -- [--rounds N] [--dir DIR] [--seed N] [--check]
//! ```
//!
//! The last of the sizes is the largest legal workspace; the bars are on it alone. Each round visits sizes,
//! and what is done to each, in another order, with the file system synced before anything that syncs. The
//! three searches look for a text that no file has, that one line of every file has (a full page), and the
//! first again right after a publication, when nothing is remembered of the revision.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod rig;

use rig::{Dice, Figures, Options, SAL, bar, ms};
use salaam::api::client::Client;
use salaam::domain::ids::SessionId;
use serde_json::{Value, json};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Rounds, unless told otherwise.
const ROUNDS: usize = 30;
/// Rounds before the first that counts.
const WARM_UP: usize = 2;
/// Requests of each kind in a round.
const REQUESTS: usize = 40;
/// Times as long as the copy, at most.
const COPY_BAR: f64 = 1.5;
/// Longest 99th percentile of list, read and search, in milliseconds.
const READ_BAR: f64 = 5.0;
/// Files and bytes of a workspace, all together; the last is the largest that is legal.
const SIZES: [(usize, usize); 5] =
    [(8, 64 << 10), (64, 512 << 10), (512, 512 << 10), (64, 4 << 20), (512, 4 << 20)];
/// Length of a line, about that of code.
const LINE: usize = 32;
/// After so long, what is read of a revision is remembered.
const SETTLED: Duration = Duration::from_millis(2_200);

/// What is timed; the first is the peer.
const TIMED: [&str; 8] = [
    "cp -a, sync -f",
    "import",
    "publish one file",
    "list",
    "read",
    "search, no match",
    "search, full page",
    "search, just published",
];
/// Those that are read through the socket again and again.
const ASKED: std::ops::Range<usize> = 3..7;

/// A project, a session of it that is only read, and the times taken there.
struct World {
    files: usize,
    bytes: usize,
    project: PathBuf,
    session: SessionId,
    times: [Vec<Duration>; TIMED.len()],
}

/// Where everything lies.
struct Place {
    dir: PathBuf,
    state: PathBuf,
    runtime: tokio::runtime::Runtime,
}

impl Place {
    fn sal(&self, args: &[&str]) -> Command {
        let mut command = Command::new(SAL);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SAL_")) {
            command.env_remove(name);
        }
        command.args(args).arg("--state").arg(&self.state);
        command
    }

    fn create(&self, project: &Path) -> SessionId {
        let created =
            self.sal(&["session", "create", "--coding", "--json", "--cwd", project.to_str().unwrap()]);
        SessionId::parse(answer(created, "")["session_id"].as_str().unwrap()).unwrap()
    }

    fn call(&self, session: &SessionId, request: &Value) -> Value {
        answer(self.sal(&["tool", "call", session.as_str(), "salaam_files"]), &request.to_string())
    }

    /// Leaves nothing to others' syncs.
    fn settle(&self) {
        assert!(Command::new("sync").arg("-f").arg(&self.dir).status().unwrap().success());
    }
}

fn answer(mut command: Command, input: &str) -> Value {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Words that hardly repeat, and in the middle a line that every file has.
fn content(dice: &mut Dice, bytes: usize) -> String {
    let line = |at: usize| match at == bytes / LINE / 2 {
        true => format!("{:<width$}\n", "// in every file", width = LINE - 1),
        false => format!("{:0width$}\n", dice.below(u64::MAX), width = LINE - 1),
    };
    (0..bytes / LINE).map(line).collect()
}

impl World {
    fn make((files, bytes): (usize, usize), place: &Place, dice: &mut Dice) -> Self {
        let project = place.dir.join(format!("project-{files}-{bytes}"));
        for at in 0..files {
            let path = project.join(name(at));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content(dice, bytes / files)).unwrap();
        }
        let session = place.create(&project);
        Self { files, bytes, project, session, times: Default::default() }
    }

    /// Does everything once, the reading parts [`REQUESTS`] times.
    fn round(&mut self, place: &Place, dice: &mut Dice, counts: bool) {
        let mut order = [0, 1, 2];
        dice.shuffle(&mut order);
        for part in order {
            let taken = match part {
                0 => self.copy(place),
                1 => self.import_and_publish(place, dice),
                _ => self.ask(place, dice),
            };
            for (timed, time) in taken.into_iter().filter(|_| counts) {
                self.times[timed].push(time);
            }
        }
    }

    fn copy(&self, place: &Place) -> Vec<(usize, Duration)> {
        let to = place.dir.join("copy");
        place.settle();
        let begin = Instant::now();
        let mut copy = Command::new("sh");
        copy.args(["-c", "cp -a \"$1\" \"$2\" && exec sync -f \"$2\"", "sh"]).arg(&self.project).arg(&to);
        assert!(copy.status().unwrap().success());
        let taken = begin.elapsed();
        std::fs::remove_dir_all(to).unwrap();
        vec![(0, taken)]
    }

    fn import_and_publish(&self, place: &Place, dice: &mut Dice) -> Vec<(usize, Duration)> {
        place.settle();
        let begin = Instant::now();
        let session = place.create(&self.project);
        let import = begin.elapsed();
        let path = name(dice.below(self.files as u64) as usize);
        let file = place.call(&session, &json!({"operation": "read", "path": path, "lines": 1}));
        let content = content(dice, self.bytes / self.files);
        let patch = json!({"operation": "patch", "revision": 1,
            "files": [{"path": path, "expected_hash": file["hash"], "content": content}]});
        place.settle();
        let begin = Instant::now();
        assert_eq!(place.call(&session, &patch)["revision"], 2);
        let publish = begin.elapsed();
        let search = place.runtime.block_on(async {
            let mut client = Client::connect(&place.state).await.unwrap();
            request(&mut client, &session, 5, "").await
        });
        let gone = place.sal(&["session", "rm", session.as_str()]).output().unwrap();
        assert!(gone.status.success(), "{}", String::from_utf8_lossy(&gone.stderr));
        vec![(1, import), (2, publish), (7, search)]
    }

    fn ask(&self, place: &Place, dice: &mut Dice) -> Vec<(usize, Duration)> {
        let mut order: Vec<usize> = (0..REQUESTS).flat_map(|_| ASKED).collect();
        dice.shuffle(&mut order);
        place.runtime.block_on(async {
            let mut client = Client::connect(&place.state).await.unwrap();
            let mut taken = Vec::new();
            for timed in order {
                let path = name(dice.below(self.files as u64) as usize);
                taken.push((timed, request(&mut client, &self.session, timed, &path).await));
            }
            taken
        })
    }
}

/// Asks one thing and holds that the answer is one.
async fn request(client: &mut Client, session: &SessionId, timed: usize, path: &str) -> Duration {
    let (request, field, least) = match timed {
        3 => (json!({"operation": "list"}), "files", 8),
        4 => (json!({"operation": "read", "path": path}), "lines", 8),
        5 => (json!({"operation": "search", "text": "nowhere to be found"}), "matches", 0),
        _ => (json!({"operation": "search", "text": "in every file", "limit": 500}), "matches", 8),
    };
    let body = serde_json::to_vec(&request).unwrap();
    let begin = Instant::now();
    let answer = client.call_tool(session, "salaam_files", None, body).await.unwrap();
    let taken = begin.elapsed();
    let answer = serde_json::to_value(answer).unwrap();
    let found = answer[field].as_array().unwrap().len();
    assert!(found >= least && (least > 0 || found == 0), "{answer}");
    assert!(answer.get("skipped").is_none_or(|skipped| skipped.as_array().unwrap().is_empty()), "{answer}");
    taken
}

fn name(at: usize) -> String {
    format!("d{}/f{at}.js", at % 23)
}

fn main() -> ExitCode {
    let options = match rig::options("workspace", ROUNDS, 1) {
        Ok(options) => options,
        Err(code) => return code,
    };
    println!("{}", rig::host());
    println!("{} rounds, order shuffled by seed {}", options.rounds, options.seed);
    let mut dice = Dice::new(options.seed);
    let tmp = tempfile::Builder::new().prefix("workspace-").tempdir_in(&options.dir).unwrap();
    let (dir, coding) = (tmp.path().to_owned(), tmp.path().join("coding"));
    std::fs::create_dir(&coding).unwrap();
    std::fs::set_permissions(&coding, std::fs::Permissions::from_mode(0o700)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let place = Place { state: dir.join("state"), dir, runtime };
    let coding = coding.to_str().unwrap();
    let start = ["service", "start", "--json", "--coding-executor", "none", "--coding-root", coding];
    answer(place.sal(&start), "");
    let mut worlds: Vec<World> = SIZES.iter().map(|size| World::make(*size, &place, &mut dice)).collect();
    std::thread::sleep(SETTLED);
    for round in 0..WARM_UP + options.rounds {
        dice.shuffle(&mut worlds);
        for world in &mut worlds {
            world.round(&place, &mut dice, round >= WARM_UP);
        }
    }
    let _ = place.sal(&["service", "stop"]).output();
    let met = report(&mut worlds);
    verdict(&options, met)
}

fn verdict(options: &Options, met: bool) -> ExitCode {
    ExitCode::from(u8::from(options.check && !met))
}

fn report(worlds: &mut [World]) -> bool {
    worlds.sort_by_key(|world| (world.bytes, world.files));
    println!("\n{:<18}{:<24}{:>10}{:>10}{:>10}{:>9}", "ms", "", "median", "p95", "p99", "ratio");
    for world in worlds.iter() {
        let name = format!("{} × {} KiB", world.files, world.bytes / world.files / 1024);
        let copy = Figures::of(&world.times[0]);
        for (timed, what) in TIMED.iter().enumerate() {
            let seen = Figures::of(&world.times[timed]);
            print!(
                "{name:<18}{what:<24}{:>10.2}{:>10.2}{:>10.2}",
                ms(seen.median),
                ms(seen.p95),
                ms(seen.p99)
            );
            match timed {
                0..3 => println!("{:>9.2}", seen.median.as_secs_f64() / copy.median.as_secs_f64()),
                _ => println!(),
            }
        }
    }
    println!("ratio: times as long as cp -a and sync -f of the same tree in the same invocation\n");
    let mut met = true;
    for world in worlds.iter().filter(|world| (world.files, world.bytes) == SIZES[SIZES.len() - 1]) {
        let copy = Figures::of(&world.times[0]).median.as_secs_f64();
        for (what, times) in TIMED.iter().zip(&world.times).skip(1).take(2) {
            let ratio = Figures::of(times).median.as_secs_f64() / copy;
            let text = format!("{what}: {ratio:.2} times as long as the copy, bar {COPY_BAR}");
            met &= bar(ratio <= COPY_BAR, &text);
        }
        for timed in ASKED {
            let p99 = ms(Figures::of(&world.times[timed]).p99);
            met &= bar(
                p99 < READ_BAR,
                &format!("{}: {p99:.2} ms at the 99th percentile, bar {READ_BAR}", TIMED[timed]),
            );
        }
    }
    met
}
