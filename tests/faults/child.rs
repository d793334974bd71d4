//! A place on disk for one cell, and the child processes that are started over it.

use crate::host::{Image, image_store};
use crate::service::{Ask, Setup};
use salaam::domain::ids::{RunId, SessionId};
use salaam::domain::job::Bundle;
use salaam::domain::run::Run;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longest that an answer is waited for.
pub const PATIENCE: Duration = Duration::from_secs(25);

/// The text that the plain command writes, whole.
pub const OUTPUT: &str = "out\n";
/// Its exit code: nothing else in a cell exits with it.
pub const STATUS: u8 = 7;
pub const PLAIN: &str = "echo out; exit 7";
pub const LONG: &str = "echo out; sleep 20; exit 7";

/// One cell's directories and what was acknowledged in them.
pub struct Place {
    dir: tempfile::TempDir,
    pub setup: Setup,
    pub acknowledged: Vec<RunId>,
    /// Runs whose cancel was answered as carried out.
    pub cancels: Vec<RunId>,
    /// Ends that were answered, before the last service.
    pub ends: Vec<Run>,
    /// Whether the command may be ended from outside.
    pub cancelled: bool,
}

fn bundle() -> Bundle {
    static BUNDLE: OnceLock<Bundle> = OnceLock::new();
    BUNDLE
        .get_or_init(|| {
            let store = salaam::image::Store::open(&image_store()).unwrap();
            store.bundle(&salaam::image::Reference::parse(&Image::Musl.pin()).unwrap()).unwrap()
        })
        .clone()
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("project");
        std::fs::create_dir(&project).unwrap();
        std::fs::write(project.join("main.js"), "1").unwrap();
        let setup = Setup {
            state: dir.path().join("state"),
            coding: dir.path().join("coding"),
            bundle: bundle(),
            boot: "boot-1".into(),
            deadline_ms: 1_000,
            removal_ms: 12_000,
            reopen_ms: 30,
            real: false,
        };
        Self { dir, setup, acknowledged: Vec::new(), cancels: Vec::new(), ends: Vec::new(), cancelled: false }
    }

    /// Remembers an end that was told.
    pub fn told(&mut self, run: &Run) {
        if run.state.is_terminal() {
            self.ends.push(run.clone());
        }
    }

    /// A place whose workspaces lie in the real store.
    pub fn real() -> Self {
        let mut place = Self::new();
        place.setup.real = true;
        std::fs::create_dir(&place.setup.coding).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&place.setup.coding, private).unwrap();
        std::fs::write(place.project().join("other.js"), "kept").unwrap();
        place
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    pub fn trace(&self) -> PathBuf {
        self.dir.path().join("trace")
    }

    /// The lines of the trace as words.
    pub fn traced(&self) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(self.trace()).unwrap_or_default();
        text.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
    }

    /// How often a fault struck at any point.
    pub fn strikes(&self) -> usize {
        self.traced().iter().filter(|line| line[0] == "struck").count()
    }

    /// Starts the service; answers it and what it said first: `ready`, `denied`, or nothing at all.
    pub fn serve(&self, faults: &str) -> (Child, Option<Value>) {
        let mut command = Command::new("/proc/self/exe");
        command.arg("serve").arg(serde_json::to_string(&self.setup).unwrap());
        command.env("FAILPOINTS", faults).env("SAL_FAULT_TRACE", self.trace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(
            std::fs::File::options().append(true).create(true).open(self.path().join("log")).unwrap(),
        );
        let mut process = command.spawn().unwrap();
        let (tell, lines) = channel();
        let stdout = process.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        let mut child = Child { process, lines };
        let first = child.answer(PATIENCE);
        (child, first)
    }

    /// Starts the service without a fault; it must open, with or without readiness.
    pub fn healthy(&self) -> Child {
        let (child, first) = self.serve("");
        assert!(first.as_ref().is_some_and(|said| said.get("ready").is_some()), "{first:?}");
        child
    }
}

/// A living or dead service.
pub struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
}

impl Child {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.process.id()).unwrap()
    }

    fn answer(&mut self, patience: Duration) -> Option<Value> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Some(serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no answer in {patience:?}"),
        }
    }

    /// Asks; `None` when the child died over it.
    pub fn ask(&mut self, ask: &Ask) -> Option<Value> {
        if self.tell(ask) { self.answer(PATIENCE) } else { None }
    }

    /// The answer to what was told without waiting.
    pub fn answered(&mut self) -> Value {
        self.answer(PATIENCE).expect("an answer")
    }

    /// Asks without waiting for the answer; false when the child is dead.
    pub fn tell(&mut self, ask: &Ask) -> bool {
        let line = serde_json::to_string(ask).unwrap() + "\n";
        let stdin = self.process.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).is_ok()
    }

    /// Asks for a run; `None` when the child died, `Err` when it refused.
    pub fn run(&mut self, ask: &Ask) -> Option<Result<Run, Value>> {
        let said = self.ask(ask)?;
        Some(match said.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(serde_json::from_value(said).unwrap()),
        })
    }

    pub fn session(&mut self, place: &Place) -> SessionId {
        let said = self.ask(&Ask::Session { project: place.project() }).expect("a session");
        serde_json::from_value(said["session"].clone()).unwrap_or_else(|e| panic!("{e}: {said}"))
    }

    pub fn ready(&mut self) -> bool {
        self.ask(&Ask::Status).is_some_and(|status| status["ready"] == true)
    }

    /// Waits until new runs are granted.
    pub fn until_ready(&mut self) {
        let end = Instant::now() + PATIENCE;
        while !self.ready() {
            assert!(Instant::now() < end, "not ready: {:?}", self.ask(&Ask::Status));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn is_alive(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Ends it by SIGTERM.
    pub fn terminate(mut self) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), nix::sys::signal::Signal::SIGTERM)
            .unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops it as an operator does.
    pub fn stop(mut self) {
        let said = self.ask(&Ask::Stop);
        assert!(said.as_ref().is_some_and(|said| said["stopped"] == true), "{said:?}");
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}
