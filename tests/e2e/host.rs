//! A service of the test's own, driven through the `sal` executable as a user would.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use salaam::api::client::Client;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The executable under test.
pub const SAL: &str = env!("CARGO_BIN_EXE_sal");

/// The images that everything runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// glibc, bash and coreutils.
    Debian,
    /// The shape of the shipped one: musl and busybox.
    Musl,
}

impl Image {
    pub const ALL: [Self; 2] = [Self::Debian, Self::Musl];

    pub fn name(self) -> &'static str {
        match self {
            Self::Debian => "node-debian",
            Self::Musl => "node-musl",
        }
    }

    /// The pin of its lock; `bundles/setup --tests` has put it into the store.
    pub fn pin(self) -> String {
        let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/bundles");
        let text = fs::read_to_string(Path::new(lock).join(self.name()).join("lock")).unwrap();
        let digest = text.lines().find_map(|l| l.strip_prefix("manifest ")).unwrap();
        format!("localhost/salaam/{}@{digest}", self.name())
    }
}

/// Where images and fixtures lie, as the set-up scripts place them.
pub fn image_store() -> PathBuf {
    match std::env::var_os("XDG_DATA_HOME") {
        Some(dir) => PathBuf::from(dir).join("salaam/images"),
        None => PathBuf::from(std::env::var_os("HOME").unwrap()).join(".local/share/salaam/images"),
    }
}

/// A test project of `tests/fixtures/packages.lock`.
pub fn fixture(name: &str) -> PathBuf {
    let base = std::env::var_os("SAL_FIXTURES").map_or_else(
        || match std::env::var_os("XDG_CACHE_HOME") {
            Some(dir) => PathBuf::from(dir).join("salaam/fixtures"),
            None => PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/salaam/fixtures"),
        },
        PathBuf::from,
    );
    base.join(name)
}

/// A started service with its own state directory and coding root.
pub struct Host {
    dir: tempfile::TempDir,
    pub image: Image,
}

/// How a finished `sal` invocation looks.
pub struct Seen {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// The two ends of a long text: a failure must stay readable.
fn short(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() < 1_500 {
        return text.to_owned();
    }
    let ends = [&chars[..700], &chars[chars.len() - 700..]].map(|c| c.iter().collect::<String>());
    format!("{} … {}", ends[0], ends[1])
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit {}, stdout {:?}, stderr {:?}", self.code, short(&self.stdout), short(&self.stderr))
    }
}

impl std::fmt::Debug for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "exit {}, output {:?}, stderr {:?}, run {}",
            self.code,
            short(&self.output),
            short(&self.stderr),
            self.run
        )
    }
}

impl From<Output> for Seen {
    fn from(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        Self {
            code: output.status.code().unwrap_or_else(|| 1000 + output.status.signal().unwrap_or(0)),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Seen {
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The error object of a failed `--json` call.
    pub fn error(&self) -> Value {
        let value: Value =
            serde_json::from_str(self.stderr.trim()).unwrap_or_else(|e| panic!("{e}: {self:?}"));
        value["error"].clone()
    }
}

/// A command that has run to its end.
pub struct Ran {
    /// Exit code of `sal commands start --wait`.
    pub code: i32,
    /// The streamed log.
    pub output: String,
    /// What was told on standard error.
    pub stderr: String,
    /// `sal commands inspect --json` afterwards.
    pub run: Value,
}

impl Ran {
    pub fn cause(&self) -> &str {
        self.run["outcome"]["cause"].as_str().unwrap_or("none")
    }
}

impl Host {
    /// Starts a service on `image`.
    pub fn start(image: Image) -> Self {
        let host = Self::prepare(image);
        host.service_start().ok();
        host
    }

    /// Makes the directories only.
    pub fn prepare(image: Image) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::DirBuilder::new().mode(0o700).create(dir.path().join("coding")).unwrap();
        Self { dir, image }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn coding(&self) -> PathBuf {
        self.dir.path().join("coding")
    }

    pub fn service_start(&self) -> Seen {
        self.service_start_with(&[])
    }

    pub fn service_start_with(&self, more: &[&str]) -> Seen {
        let (coding, store, pin) = (self.coding(), image_store(), self.image.pin());
        let mut args = vec!["service", "start", "--coding-root", coding.to_str().unwrap()];
        args.extend(["--image-store", store.to_str().unwrap(), "--image", &pin]);
        args.extend(more);
        self.sal(&args)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(SAL);
        command.args(args).arg("--state").arg(self.state()).stdin(Stdio::null());
        command
    }

    pub fn sal(&self, args: &[&str]) -> Seen {
        self.command(args).output().unwrap().into()
    }

    /// A directory below this host's with these files; a name ending in `!` is executable.
    pub fn project(&self, name: &str, files: &[(&str, &[u8])]) -> PathBuf {
        let root = self.dir.path().join("projects").join(name);
        fs::create_dir_all(&root).unwrap();
        for (path, content) in files {
            let (path, mode) = path.strip_suffix('!').map_or((*path, 0o644), |p| (p, 0o755));
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        root
    }

    /// Creates a coding session on `project`; answers its id.
    pub fn session(&self, project: &Path) -> String {
        let made = self.sal(&["session", "create", "--coding", "--json", "--cwd", project.to_str().unwrap()]);
        made.ok().json()["session_id"].as_str().unwrap().to_owned()
    }

    /// Runs a command to its end.
    pub fn run(&self, session: &str, command: &str) -> Ran {
        let key = format!("k-{}", salaam::domain::ids::RunId::fresh());
        let args = ["commands", "start", session, "--step-key", &key, "--wait", "--command", command];
        let seen = self.sal(&args);
        let list = self.sal(&["commands", "list", session, "--json"]).ok();
        let runs = list.json()["runs"].as_array().cloned().unwrap_or_default();
        let run = runs.into_iter().find(|r| r["step_key"] == key.as_str());
        let run = run.unwrap_or_else(|| panic!("no run of {key}: {seen:?}"));
        Ran { code: seen.code, output: seen.stdout, stderr: seen.stderr, run }
    }

    /// Starts a command without waiting for it; answers the run's id.
    pub fn begin(&self, session: &str, key: &str, command: &str) -> String {
        let args = ["commands", "start", session, "--step-key", key, "--json", "--command", command];
        self.sal(&args).ok().json()["run_id"].as_str().unwrap().to_owned()
    }

    /// A run as it is now.
    pub fn inspect(&self, session: &str, run: &str) -> Value {
        self.sal(&["commands", "inspect", session, "--run-id", run, "--json"]).ok().json()
    }

    /// Every run of a session.
    pub fn runs(&self, session: &str) -> Vec<Value> {
        let listed = self.sal(&["commands", "list", session, "--json"]).ok().json();
        listed["runs"].as_array().unwrap().clone()
    }

    /// The bytes of a run's output from `offset`, as a pipe gets them.
    pub fn log(&self, session: &str, run: &str, offset: u64) -> Vec<u8> {
        let offset = offset.to_string();
        let args = ["commands", "logs", session, "--run-id", run, "--offset", &offset];
        let output = self.command(&args).output().unwrap();
        assert!(output.status.success(), "{:?}", Seen::from(output));
        output.stdout
    }

    /// A typed client of the service's socket.
    pub async fn client(&self) -> Client {
        Client::connect(&self.state()).await.unwrap()
    }

    /// Process id of the service.
    pub fn pid(&self) -> Pid {
        let status = self.sal(&["service", "status", "--json"]).ok().json();
        Pid::from_raw(status["pid"].as_i64().unwrap().try_into().unwrap())
    }

    /// Ends the service as a crash would, and waits until its lock is free.
    pub fn kill_service(&self) {
        kill(self.pid(), Signal::SIGKILL).unwrap();
        let lock = self.state().join("lock");
        let free = || fs::File::open(&lock).unwrap().try_lock().is_ok();
        assert!(eventually(free), "a killed service still holds its lock");
    }

    /// Resident memory of the service, in KiB.
    pub fn service_rss(&self) -> u64 {
        let pid = self.pid();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.sal(&["service", "stop", "--cancel"]);
    }
}

/// Runs what a typed client does.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(1).enable_all().build().unwrap().block_on(work)
}

/// Waits up to ten seconds until `holds` does; answers whether it did.
pub fn eventually(holds: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// How often the summary of `node --test` has this very line, such as `pass 36`.
pub fn summary(output: &str, line: &str) -> usize {
    output.lines().filter(|l| l.trim_start_matches(['#', 'ℹ', ' ']) == line).count()
}

/// Cgroups of ours on the host.
pub fn cgroups() -> Vec<String> {
    let mut left = Vec::new();
    let mut dirs = vec![PathBuf::from("/sys/fs/cgroup")];
    dirs.extend(fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|e| e.path()));
    for dir in dirs {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("sal-") {
                left.push(entry.path().display().to_string());
            }
        }
    }
    left
}

/// Ids and arguments of all processes.
fn processes() -> Vec<(i32, Vec<Vec<u8>>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() {
            let cmdline = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            all.push((pid, cmdline.split(|b| *b == 0).map(<[u8]>::to_vec).collect()));
        }
    }
    all
}

/// Processes, in containers too, with `word` among their arguments.
pub fn processes_with(word: &str) -> Vec<i32> {
    let has = |words: &Vec<Vec<u8>>| words.iter().any(|w| w == word.as_bytes());
    processes().into_iter().filter(|(_, words)| has(words)).map(|(pid, _)| pid).collect()
}

/// What of ours is on the host: cgroups, supervisors, mounts.
pub fn leftovers() -> Vec<String> {
    let mut left = cgroups();
    let supervises = |words: &Vec<Vec<u8>>| words.get(1).is_some_and(|w| w == b"supervise");
    let supervisors = processes().into_iter().filter(|(_, words)| supervises(words));
    left.extend(supervisors.map(|(pid, _)| format!("supervisor {pid}")));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    left.extend(mounts.lines().filter(|l| l.contains("/sal-")).map(str::to_owned));
    left
}
