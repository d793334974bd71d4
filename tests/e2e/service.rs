//! The service's own life: start, readiness, lock, proof, stop (SVC.1–5, PRF.3).

use crate::host::{Host, Image, SAL, Seen, eventually, fixture, leftovers, summary};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

pub const CASES: &[(&str, fn())] = &[
    ("svc1_start_status_stop", start_status_stop),
    ("svc3_s1_one_of_twenty_wins_and_the_rest_write_nothing", one_winner),
    ("svc3_s1_a_stopped_service_keeps_its_socket_and_a_killed_one_is_replaced", stopped_and_killed),
    ("svc4_s3_socket_paths_of_107_108_and_150_bytes", socket_paths),
    ("svc3_a_killed_service_is_replaced_and_its_command_adopted", killed),
    ("svc3_a_service_killed_during_real_tests_answers_their_result", killed_during_tests),
    ("cmd4_a_command_costs_at_most_three_syncs_of_the_ledger", ledger_syncs),
    ("svc3_several_state_directories_side_by_side", side_by_side),
    ("svc5_stop_leaves_a_running_command_to_its_supervisor", stop_leaves),
    ("svc5_stop_cancel_leaves_nothing", stop_cancel),
    ("prf3_the_proof_is_stored_and_names_the_host", proof),
    ("prf3_a_failed_proof_denies_the_start", failed_proof),
];

fn start_status_stop() {
    let host = Host::prepare(Image::Musl);
    let down = host.sal(&["service", "status", "--json"]);
    assert_eq!((down.code, &down.error()["code"]), (125, &"not_running".into()), "{down:?}");
    let begin = Instant::now();
    host.service_start().ok();
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    let status = host.sal(&["service", "status", "--json"]).ok().json();
    assert_eq!(
        (&status["ready"], &status["executor"], &status["runs"]),
        (&true.into(), &"oci".into(), &0.into()),
        "{status}"
    );
    assert!(status["proof_digest"].as_str().unwrap().starts_with("sha256:"));
    let socket = fs::metadata(host.state().join("control.sock")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(host.state()).unwrap().permissions().mode() & 0o777, 0o700);
    host.sal(&["service", "stop"]).ok();
    assert_eq!(host.sal(&["service", "status"]).code, 125);
    host.service_start().ok();
}

/// Names, sizes and times of all that lies in a state directory, but for the shared memory of SQLite.
fn snapshot(state: &Path) -> Vec<String> {
    let mut seen = Vec::new();
    let mut todo = vec![state.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let (path, meta) = entry.map(|e| (e.path(), e.metadata().unwrap())).unwrap();
            seen.push(format!("{} {} {} {}", path.display(), meta.len(), meta.mtime(), meta.mtime_nsec()));
            if meta.is_dir() {
                todo.push(path);
            }
        }
    }
    seen.retain(|line| !line.contains("ledger.db-shm"));
    seen.sort();
    seen
}

/// A start that finds another service in place: one error, at once.
fn refused(seen: &Seen, took: Duration) {
    assert_eq!((seen.code, &seen.error()["code"]), (125, &"already_running".into()), "{seen:?}");
    let message = seen.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("serves the state directory"), "{seen:?}");
    assert_eq!(seen.stdout, "", "{seen:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

fn one_winner() {
    let host = Host::prepare(Image::Musl);
    let start = || {
        let begin = Instant::now();
        (host.service_start_with(&["--json"]), begin.elapsed())
    };
    let tries: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..20).map(|_| scope.spawn(start)).collect();
        starts.into_iter().map(|s| s.join().unwrap()).collect()
    });
    let (won, lost): (Vec<_>, Vec<_>) = tries.into_iter().partition(|(seen, _)| seen.code == 0);
    assert_eq!((won.len(), lost.len()), (1, 19), "{won:?} {lost:?}");
    for (seen, took) in &lost {
        refused(seen, *took);
    }
    let pid = host.pid();
    assert_eq!(won[0].0.json()["pid"], pid.as_raw());
    assert_eq!(fs::read_to_string(host.state().join("lock")).unwrap(), format!("{pid}\n"));
    // The winner's own last line of its start may come after its report.
    let log = host.state().join("service.log");
    assert!(eventually(|| fs::read_to_string(&log).unwrap().contains("accepts clients")));
    assert_eq!(fs::read_to_string(&log).unwrap().matches("accepts clients").count(), 1);
    let before = snapshot(&host.state());
    let (seen, took) = start();
    refused(&seen, took);
    assert!(seen.error()["message"].as_str().unwrap().contains(&format!("process {pid} ")), "{seen:?}");
    assert_eq!(snapshot(&host.state()), before, "a start that was refused wrote something");
}

fn stopped_and_killed() {
    let host = Host::start(Image::Musl);
    let socket = host.state().join("control.sock");
    let inode = || fs::symlink_metadata(&socket).map_or(0, |meta| meta.ino());
    let (first, bound) = (host.pid(), inode());
    kill(first, Signal::SIGSTOP).unwrap();
    let begin = Instant::now();
    let seen = host.service_start_with(&["--json"]);
    let (took, kept) = (begin.elapsed(), inode());
    // Before anything is judged, or a failure would leave a service that cannot be told to stop.
    kill(first, Signal::SIGCONT).unwrap();
    refused(&seen, took);
    assert_eq!(kept, bound, "the socket of a stopped service was touched");
    assert_eq!(host.pid(), first);
    host.kill_service();
    assert!(socket.exists(), "a killed service leaves its socket");
    host.service_start().ok();
    assert_ne!(host.pid(), first);
    let session = host.session(&host.project("p", &[("a.txt", b"a")]));
    assert_eq!(host.run(&session, "exit 3").code, 3);
}

/// A service without an executor, which needs neither image nor proof.
struct Bare(PathBuf);

impl Bare {
    fn sal(&self, args: &[&str]) -> Seen {
        let mut command = Command::new(SAL);
        command.args(args).arg("--state").arg(&self.0).stdin(Stdio::null()).output().unwrap().into()
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.sal(&["service", "stop"]);
    }
}

fn socket_paths() {
    let base = tempfile::tempdir().unwrap();
    let of_length = |length: usize, last: char| {
        let rest = length - base.path().as_os_str().len() - "//control.sock".len();
        base.path().join(format!("{}{last}", "d".repeat(rest - 1)))
    };
    let lengths = [(107, 'a'), (108, 'a'), (150, 'a'), (150, 'b')];
    let all: Vec<Bare> = lengths.iter().map(|(length, last)| Bare(of_length(*length, *last))).collect();
    let cwd = base.path().to_str().unwrap();
    let mut made = Vec::new();
    for (service, (length, _)) in all.iter().zip(lengths) {
        assert_eq!(service.0.join("control.sock").as_os_str().len(), length);
        service.sal(&["service", "start", "--json"]).ok();
        let session = service.sal(&["session", "create", "--json", "--cwd", cwd]).ok().json();
        let pid = service.sal(&["service", "status", "--json"]).ok().json()["pid"].as_u64().unwrap();
        made.push((session["session_id"].as_str().unwrap().to_owned(), pid));
    }
    for (service, (session, pid)) in all.iter().zip(&made) {
        let listed = service.sal(&["session", "list", "--json"]).ok().json();
        let ids: Vec<_> = listed["sessions"].as_array().unwrap().iter().map(|s| &s["session_id"]).collect();
        assert_eq!(ids, [session], "a session of another service");
        assert_eq!(service.sal(&["service", "status", "--json"]).ok().json()["pid"], *pid);
    }
    let mut pids: Vec<u64> = made.iter().map(|(_, pid)| *pid).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 4, "two state directories share a service: {made:?}");
}

fn killed() {
    let host = Host::start(Image::Musl);
    let session = host.session(&host.project("p", &[("a.txt", b"a")]));
    let command = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done; exit 9";
    let args = ["commands", "start", &session, "--step-key", "s1", "--json", "--command", command];
    let run = host.sal(&args).ok().json();
    std::thread::sleep(Duration::from_millis(700));
    host.kill_service();
    host.service_start().ok();
    let mut args = args.to_vec();
    args.retain(|a| *a != "--json");
    args.push("--wait");
    let seen = host.sal(&args);
    assert_eq!((seen.code, seen.stdout.as_str()), (9, "1\n2\n3\n4\n5\n6\n"), "{seen:?}");
    let all = host.sal(&["commands", "list", &session, "--json"]).ok().stdout;
    assert_eq!(
        all.matches(run["run_id"].as_str().unwrap()).count(),
        all.matches("\"run_id\"").count(),
        "{all}"
    );
}

/// Killed while a real project is tested, then asked again under the same key: once when the tests have
/// ended meanwhile, once when they still run.
fn killed_during_tests() {
    let host = Host::start(Image::Debian);
    let before = leftovers();
    for (project, tests) in [("error-4.3.0", 36), ("busboy-3.2.6", 270)] {
        let session = host.session(&fixture(project));
        let run = host.begin(&session, "test-v1", "node --test");
        assert!(eventually(|| host.inspect(&session, &run)["state"] == "running"), "{project}");
        host.kill_service();
        let alive = leftovers().iter().any(|l| l.starts_with("supervisor") && !before.contains(l));
        assert!(alive, "{project}: the tests had ended before the kill");
        host.service_start().ok();
        let args = ["commands", "start", &session, "--step-key", "test-v1", "--command", "node --test"];
        let ask = || host.sal(&[&args[..], &["--wait"]].concat()).ok();
        let seen = ask();
        for (word, count) in [("tests", tests), ("pass", tests), ("fail", 0)] {
            let line = format!("{word} {count}");
            assert_eq!(summary(&seen.stdout, &line), 1, "{project}: {line}: {seen:?}");
        }
        assert!(ask().stdout == seen.stdout, "{project}: another output the second time");
        let runs = host.runs(&session);
        assert_eq!(runs.len(), 1, "{project}: {runs:?}");
        assert_eq!(runs[0]["run_id"], run);
        assert_eq!(runs[0]["cleanup"], "confirmed", "{:?}", runs[0]);
        let outcome = &runs[0]["outcome"];
        assert_eq!((&outcome["cause"], &outcome["exit_code"]), (&"exited".into(), &0.into()), "{outcome}");
    }
}

/// strace on a process and all its threads, those to come included; not on what it executes.
struct Syncs {
    strace: Child,
    /// Kept open, or strace would end by its next remark.
    _remarks: BufReader<ChildStderr>,
    path: PathBuf,
}

impl Syncs {
    /// Returns once every thread is traced.
    fn of(pid: Pid, path: PathBuf) -> Self {
        let mut command = Command::new("strace");
        command.args(["-f", "-b", "execve", "-y", "-e", "trace=fsync,fdatasync", "-o"]).arg(&path);
        command.args(["-p", &pid.to_string()]).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut strace = command.spawn().unwrap();
        let mut remarks = BufReader::new(strace.stderr.take().unwrap());
        let mut first = String::new();
        let read = remarks.read_line(&mut first);
        let syncs = Self { strace, _remarks: remarks, path };
        assert!(read.is_ok() && first.contains(&format!("{pid} attached with")), "{first}");
        syncs
    }

    /// Ends strace and answers what it wrote.
    fn end(mut self) -> String {
        self.stop();
        fs::read_to_string(&self.path).unwrap()
    }

    fn stop(&mut self) {
        if let Ok(None) = self.strace.try_wait() {
            let _ = kill(Pid::from_raw(self.strace.id().cast_signed()), Signal::SIGTERM);
            let _ = self.strace.wait();
        }
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        self.stop();
    }
}

fn ledger_syncs() {
    let host = Host::start(Image::Musl);
    let session = host.session(&host.project("p", &[("a.txt", b"a")]));
    assert_eq!(host.run(&session, "true").code, 0);
    let syncs = Syncs::of(host.pid(), host.path().join("syncs"));
    let seen = host.sal(&["commands", "start", &session, "--wait", "--command", "true"]);
    let told = syncs.end();
    seen.ok();
    let files = ["/state/ledger.db>", "/state/ledger.db-wal>"];
    let of_ledger = |line: &&str| line.contains("sync(") && files.iter().any(|file| line.contains(file));
    let count = told.lines().filter(of_ledger).count();
    // None at all would mean that strace did not see the ledger's thread.
    assert!((1..=3).contains(&count), "{count} syncs of the ledger: {told}");
}

fn side_by_side() {
    let (a, b) = (Host::start(Image::Musl), Host::start(Image::Debian));
    let session = a.session(&a.project("p", &[("a.txt", b"a")]));
    let foreign = b.sal(&["session", "inspect", &session, "--json"]);
    assert_eq!((foreign.code, &foreign.error()["code"]), (125, &"not_found".into()), "{foreign:?}");
    drop(b);
    assert_eq!(a.run(&session, "exit 3").code, 3);
}

fn long_run(host: &Host, seconds: u32) -> (String, String) {
    let session = host.session(&host.project("p", &[("a.txt", b"a")]));
    let command = format!("echo begin; sleep {seconds}; echo end");
    let run = host.sal(&["commands", "start", &session, "--json", "--command", &command]).ok().json();
    std::thread::sleep(Duration::from_millis(300));
    (session, run["run_id"].as_str().unwrap().to_owned())
}

fn stop_leaves() {
    let host = Host::start(Image::Musl);
    let before = leftovers();
    let (session, run) = long_run(&host, 3);
    host.sal(&["service", "stop"]).ok();
    assert!(leftovers().len() > before.len(), "the command did not go on");
    let end = Instant::now() + Duration::from_secs(10);
    while leftovers().iter().any(|l| !before.contains(l)) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(leftovers().iter().all(|l| before.contains(l)), "{:?}", leftovers());
    host.service_start().ok();
    let seen = host.sal(&["commands", "inspect", &session, "--run-id", &run, "--json"]).ok().json();
    assert_eq!((&seen["state"], &seen["outcome"]["exit_code"]), (&"finished".into(), &0.into()), "{seen}");
    let log = host.sal(&["commands", "logs", &session, "--run-id", &run]).ok();
    assert_eq!(log.stdout, "begin\nend\n");
}

fn stop_cancel() {
    let host = Host::start(Image::Musl);
    let before = leftovers();
    let (session, run) = long_run(&host, 20);
    host.sal(&["service", "stop", "--cancel"]).ok();
    assert!(leftovers().iter().all(|l| before.contains(l)), "{:?}", leftovers());
    host.service_start().ok();
    let seen = host.sal(&["commands", "inspect", &session, "--run-id", &run, "--json"]).ok().json();
    assert_eq!(seen["outcome"]["cause"], "cancelled", "{seen}");
    let runs = host.state().join("runs");
    assert_eq!(fs::read_dir(runs).unwrap().count(), 0, "run directories are left");
}

fn proof() {
    let host = Host::start(Image::Debian);
    let path = host.state().join("executor-proof.json");
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.permissions().mode() & 0o777, meta.uid()), (0o600, nix::unistd::getuid().as_raw()));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), salaam::domain::profile::Control::ALL.len());
    assert!(findings.iter().all(|f| f["passed"] == true && f["expected"] != "" && f["observed"] != ""));
    assert!(report["engine"].as_str().unwrap().contains("Linux"), "{}", report["engine"]);
    assert!(host.image.pin().ends_with(report["image"]["manifest"].as_str().unwrap()), "{}", report["image"]);
    let shown = host.sal(&["proof", "show", "--json"]).ok().json();
    assert_eq!(shown["profile_digest"], report["profile_digest"]);
}

/// A host that cannot hold a control: the service itself runs under a lower limit than the profile
/// demands, so that the container's limit cannot be what the profile says.
fn failed_proof() {
    use std::os::unix::process::CommandExt;
    let host = Host::prepare(Image::Musl);
    let (coding, store) = (host.coding(), crate::host::image_store());
    let mut command = host.command(&["service", "start", "--json", "--image", &host.image.pin()]);
    command.arg("--coding-root").arg(coding).arg("--image-store").arg(store);
    // SAFETY: setrlimit is async-signal-safe and touches only the child.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(|| {
            nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0)?;
            nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_FSIZE, 1 << 19, 1 << 19)?;
            Ok(())
        });
    }
    let seen: crate::host::Seen = command.output().unwrap().into();
    assert_eq!(seen.code, 125, "{seen:?}");
    assert!(format!("{}{}", seen.stdout, seen.stderr).contains("file_size"), "{seen:?}");
    assert_eq!(host.sal(&["service", "status"]).code, 125, "a client was accepted");
}
