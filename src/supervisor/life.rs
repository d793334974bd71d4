//! A container's life, read straight down: lock → create → verify → launch → watch → evidence →
//! remove. Each step is recorded before the next one is taken; launch and end are synced.

use super::cgroup::{Groups, Host};
use super::container::{Container, CreateError, Stdio, attach, own_mounts};
use super::evidence::Mounts;
use super::init::{Init, gate};
use super::output::Drain;
use super::record::Recorder;
use super::{cgroup, rootfs, sweep, sys, verify};
use crate::domain::job::{FORMAT, JOB_FILE, Job};
use crate::domain::outcome::{Ending, Evidence, Forced};
use crate::domain::record::{self, Record};
use crate::exec::{lock, oci, seccomp};
use crate::fault::{self, Side};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, CpuSet, setns};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

/// Entry of `sal supervise RUN_DIR`, `sal supervise --sweep` (list on standard input),
/// `sal supervise --look RUN_DIR CONTAINER_ID` and `sal supervise --settle SERVICE_PID`.
pub fn main(args: &[OsString]) -> ExitCode {
    match args {
        [flag, pid] if flag == "--settle" => match settle(pid) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        },
        [flag] if flag == "--sweep" => sweep::main(),
        [flag, dir, id] if flag == "--look" => sweep::look(Path::new(dir), &id.to_string_lossy()),
        [dir] => match run(Path::new(dir)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("supervisor: {}: {e}", dir.to_string_lossy());
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("supervisor: this entry is for the service alone");
            ExitCode::from(2)
        }
    }
}

fn settle(pid: &OsString) -> Result<(), String> {
    let pid = pid.to_str().and_then(|text| text.parse().ok()).ok_or("the service's process id is missing")?;
    cgroup::settle(pid).map_err(|e| e.to_string())
}

fn run(dir: &Path) -> std::io::Result<()> {
    sys::new_session();
    // Synchronous, so that the cause of a failed creation is not lost with the process.
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::ERROR)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .try_init();
    let _lock = lock::take(dir)?;
    let job: Job = serde_json::from_slice(&std::fs::read(dir.join(JOB_FILE))?)?;
    if job.format != FORMAT {
        return Err(std::io::Error::other(format!("job format {} is not {FORMAT}", job.format)));
    }
    // Cancel is ordered by SIGTERM; blocked before anyone can learn our id, so that it waits to be read.
    let mut cancel = SigSet::empty();
    cancel.add(Signal::SIGTERM);
    cancel.thread_block()?;
    let cancel = SignalFd::with_flags(&cancel, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let deadline = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?;
    deadline.set(
        Expiration::OneShot(TimeSpec::nanoseconds(job.deadline_ns.max(1) as i64)),
        TimerSetTimeFlags::TFD_TIMER_ABSTIME,
    )?;
    let mut recorder = Recorder::create(dir)?;
    let pid = std::process::id() as i32;
    recorder.append(&Record::Supervising {
        pid,
        start_ticks: start_ticks(pid)?,
        container_id: job.container_id.clone(),
    })?;

    let host = match Host::detect() {
        Ok(host) => host,
        Err(e) => {
            recorder.append(&Failure::new("cgroup", e).into_record())?;
            return recorder.append(&Record::Removed { left: Vec::new() });
        }
    };
    let groups = Groups::of(host, job.container_id.as_str());
    let end = match Live::create(dir, &job, &groups, Triggers { cancel, deadline }) {
        Ok(mut live) => live.see_to_the_end(&job, &mut recorder),
        Err(failure) => failure.into_record(),
    };
    // The container goes whatever failed above, a record that cannot be written included.
    let recorded = recorder.append(&end);
    groups.kill_all();
    let left = groups.remove();
    recorded?;
    recorder.append(&Record::Removed { left })
}

fn start_ticks(pid: i32) -> std::io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    record::start_ticks(&stat)
        .ok_or_else(|| std::io::Error::other(format!("/proc/{pid}/stat has no start time")))
}

struct Triggers {
    cancel: SignalFd,
    deadline: TimerFd,
}

enum Failure {
    Start { stage: String, detail: String, mismatch: bool },
    Forced(Forced),
}

impl Failure {
    fn new(stage: &str, detail: impl std::fmt::Display) -> Self {
        Self::Start { stage: stage.to_owned(), detail: detail.to_string(), mismatch: false }
    }

    fn into_record(self) -> Record {
        match self {
            Self::Start { stage, detail, mismatch } => Record::StartFailed { stage, detail, mismatch },
            // The command never ran; what forced the end is the whole story.
            Self::Forced(forced) => Record::Exited {
                ending: Ending::Unknown,
                evidence: Evidence { forced: Some(forced), ..Evidence::default() },
            },
        }
    }
}

impl From<CreateError> for Failure {
    fn from(e: CreateError) -> Self {
        Self::new(e.step, e.detail)
    }
}

/// A created container whose command has not been let go.
struct Live<'a> {
    groups: &'a Groups,
    pid: i32,
    pidfd: OwnedFd,
    gate: OwnedFd,
    drain: Drain,
    mounts: Mounts,
    triggers: Triggers,
}

impl<'a> Live<'a> {
    fn create(dir: &Path, job: &Job, groups: &'a Groups, triggers: Triggers) -> Result<Self, Failure> {
        // libcontainer keeps the caller's groups when the spec has none.
        nix::unistd::setgroups(&[]).map_err(|e| Failure::new("setgroups", e))?;
        let cpu = choose_cpu(job).map_err(|e| Failure::new("affinity", e))?;
        let run = job.run_id.as_str();
        fault::reach("cgroup", Side::Before, run).map_err(|e| Failure::new("cgroup", e))?;
        groups.create(&job.profile, cpu).map_err(|e| Failure::new("cgroup", e))?;
        fault::reach("cgroup", Side::After, run).map_err(|e| Failure::new("cgroup", e))?;

        let filters = seccomp::compile(seccomp::PROFILE).map_err(|e| Failure::new("seccomp", e))?;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .map_err(|e| Failure::new("gate", e))?;
        let init = Init::new(job, filters, theirs.as_raw_fd(), ours.as_raw_fd())
            .map_err(|e| Failure::new("command", e))?;
        let (stdio, pipe) = streams(job.profile.uid).map_err(|e| Failure::new("streams", e))?;
        let drain = Drain::create(pipe, &job.output, job.profile.output_bytes)
            .map_err(|e| Failure::new("output", e))?;

        let own = Namespaces::of("self").map_err(|e| Failure::new("namespaces", e))?;
        let spec = oci::spec(job, &rootfs::path(dir)).map_err(|e| Failure::new("spec", e))?;
        // Each stage runs its own code; letting go in between keeps the sum of them from being resident.
        sys::release_code_pages();
        let created = groups
            .enter()
            .map_err(|e| Failure::new("cgroup", e))
            .and_then(|()| Ok(own_mounts(dir)?))
            .and_then(|()| Ok(rootfs::stack(dir, &job.bundle.lower, &job.profile)?))
            .and_then(|root| {
                let id = job.container_id.as_str();
                fault::reach("create", Side::Before, run).map_err(|e| Failure::new("create", e))?;
                let mut container = Container::create(id, dir, &spec, init, stdio)?;
                // Init goes on to the gate and waits there; the command does not run yet.
                container.start()?;
                fault::reach("create", Side::After, run).map_err(|e| Failure::new("create", e))?;
                Ok((container, root))
            });
        // Back out whatever happened: cleanup must see the cgroups, and must not find itself in them.
        setns(own.mounts.as_fd(), CloneFlags::CLONE_NEWNS).map_err(|e| Failure::new("namespaces", e))?;
        groups.leave().map_err(|e| Failure::new("cgroup", e))?;
        let (container, root) = created?;
        drop(theirs);
        sys::release_code_pages();

        let pid = container.pid().ok_or_else(|| Failure::new("create", "no process id"))?;
        let pidfd = rustix::process::Pid::from_raw(pid)
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()))
            .map_err(|e| Failure::new("create", e))?;
        let reached = Namespaces::of(&pid.to_string())
            .map_err(|e| Failure::new("namespaces", e))
            .and_then(|theirs| reach_into(job, groups, &own, &theirs));
        // An init that has failed by then is gone, and nothing of it can be reached; it has said why.
        wait_until_ready(&ours, &triggers)?;
        reached?;
        let mismatches =
            verify::effective(pid, &job.profile, groups, &root).map_err(|e| Failure::new("verify", e))?;
        if !mismatches.is_empty() {
            let all: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
            return Err(Failure::Start { stage: "verify".into(), detail: all.join("; "), mismatch: true });
        }
        let mounts = Mounts::open(pid).map_err(|e| Failure::new("mounts", e))?;
        Ok(Self { groups, pid, pidfd, gate: ours, drain, mounts, triggers })
    }

    /// Lets the command go and stays until it has ended; answers the record of its end.
    fn see_to_the_end(&mut self, job: &Job, recorder: &mut Recorder) -> Record {
        let launching = Record::Launching {
            exec_id: job.exec_id.clone(),
            pid: self.pid,
            start_ticks: start_ticks(self.pid).unwrap_or(0),
        };
        if let Err(e) = recorder.append(&launching) {
            return Failure::new("record", e).into_record();
        }
        let mut evidence = Evidence::default();
        // A gate that is closed already means that init is dead, which the watch will see.
        let run = job.run_id.as_str();
        if let Err(e) = fault::reach("go", Side::Before, run) {
            return Failure::new("gate", e).into_record();
        }
        let _ = send(self.gate.as_raw_fd(), &[gate::GO], MsgFlags::MSG_NOSIGNAL);
        let _ = fault::reach("go", Side::After, run);
        // From here on only this loop runs, for up to the whole deadline.
        sys::release_code_pages();
        let ending = self.watch(&mut evidence).unwrap_or_else(|e| {
            tracing::error!("the command could not be watched: {e}");
            Ending::Unknown
        });
        self.kill_and_reap();
        self.groups.evidence(&mut evidence);
        evidence.work = self.mounts.work();
        evidence.scratch = self.mounts.scratch();
        if ending != Ending::Exited(0) {
            evidence.file_at_limit = self.mounts.has_file_of(job.profile.file_size);
        }
        self.drain.finish(&mut evidence);
        Record::Exited { ending, evidence }
    }

    /// Drains output until the main process ends, is cancelled or is out of time.
    fn watch(&mut self, evidence: &mut Evidence) -> std::io::Result<Ending> {
        loop {
            let (message, output, cancel, deadline, dead) = {
                let mut fds = vec![
                    PollFd::new(self.gate.as_fd(), PollFlags::POLLIN),
                    PollFd::new(self.triggers.cancel.as_fd(), PollFlags::POLLIN),
                    PollFd::new(self.triggers.deadline.as_fd(), PollFlags::POLLIN),
                    PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN),
                ];
                fds.extend(self.drain.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
                match poll(&mut fds, PollTimeout::NONE) {
                    Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                    Err(e) => return Err(e.into()),
                }
                let any = |at: usize| fds.get(at).and_then(|fd| fd.revents()).is_some_and(|r| !r.is_empty());
                (any(0), any(4), any(1), any(2), any(3))
            };
            if output {
                self.drain.read(16);
            }
            if message {
                if let Some(ending) = self.take_message(evidence)? {
                    return Ok(ending);
                }
            } else if dead {
                // Init died without a word: the kernel killed it, or the whole namespace.
                return Ok(Ending::Signalled(9));
            }
            if cancel || deadline {
                // A natural end that is already told wins: exactly one terminal state.
                evidence.forced = Some(if cancel { Forced::Cancel } else { Forced::Deadline });
                return Ok(Ending::Signalled(9));
            }
        }
    }

    fn take_message(&self, evidence: &mut Evidence) -> std::io::Result<Option<Ending>> {
        let mut buffer = [0u8; 512];
        let n = match recv(self.gate.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(n) => n,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(None),
            // Closed with our GO unread: init was killed at the gate.
            Err(nix::errno::Errno::ECONNRESET) => 0,
            Err(e) => return Err(e.into()),
        };
        match buffer[..n] {
            [gate::EXITED, code] => Ok(Some(Ending::Exited(code))),
            [gate::SIGNALLED, signal] => Ok(Some(Ending::Signalled(signal))),
            [gate::EXEC_FAILED, a, b, c, d] => {
                evidence.exec_errno = Some(i32::from_le_bytes([a, b, c, d]));
                Ok(None)
            }
            // Closed: init is gone, or runs the command itself (a profile without our init).
            [] => self.wait_for_death(),
            _ => Err(std::io::Error::other("an unknown message came through the gate")),
        }
    }

    fn wait_for_death(&self) -> std::io::Result<Option<Ending>> {
        use nix::sys::wait::WaitStatus;
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        Ok(match waitid(Id::PIDFd(self.pidfd.as_fd()), flags)? {
            WaitStatus::Exited(_, code) => Some(Ending::Exited(code as u8)),
            WaitStatus::Signaled(_, signal, _) => Some(Ending::Signalled(signal as u8)),
            _ => {
                std::thread::sleep(std::time::Duration::from_millis(1));
                None
            }
        })
    }

    /// Ends the PID namespace, empties the cgroup and reads the last output.
    fn kill_and_reap(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
        // Init's end is reported once the kernel has killed and reaped everyone in its namespace.
        // Bounded: a process that cannot be killed must not keep the known end from being recorded.
        let mut ended = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut ended, PollTimeout::from(5_000u16));
        let _ = waitid(Id::PIDFd(self.pidfd.as_fd()), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
        self.groups.kill_all();
        while self.drain.fd().is_some() && self.drain.read(64) {}
    }
}

/// Pins this process, and so the container, to one processor; containers spread by their id.
fn choose_cpu(job: &Job) -> nix::Result<usize> {
    let allowed = nix::sched::sched_getaffinity(Pid::from_raw(0))?;
    let cpus: Vec<usize> = (0..CpuSet::count()).filter(|n| allowed.is_set(*n).unwrap_or(false)).collect();
    let spread =
        job.container_id.as_str().bytes().fold(0usize, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
    let cpu = cpus.get(spread % cpus.len().max(1)).copied().unwrap_or(0);
    if job.profile.one_cpu {
        let mut one = CpuSet::new();
        one.set(cpu)?;
        nix::sched::sched_setaffinity(Pid::from_raw(0), &one)?;
    }
    Ok(cpu)
}

/// `/dev/null`, and one pipe for both output streams, owned by the command's user so that
/// `/dev/stdout` can be opened again.
fn streams(uid: u32) -> std::io::Result<(Stdio, OwnedFd)> {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    nix::unistd::fchown(write.as_raw_fd(), Some(uid.into()), Some(uid.into()))?;
    let error = write.try_clone()?;
    Ok((Stdio { input: File::open("/dev/null")?.into(), output: write, error }, read))
}

struct Namespaces {
    mounts: File,
    network: File,
}

impl Namespaces {
    fn of(pid: &str) -> std::io::Result<Self> {
        let open = |name: &str| File::open(format!("/proc/{pid}/ns/{name}"));
        Ok(Self { mounts: open("mnt")?, network: open("net")? })
    }
}

fn bring_loopback_up(own: &File, theirs: &File) -> nix::Result<()> {
    setns(theirs.as_fd(), CloneFlags::CLONE_NEWNET)?;
    let up = sys::loopback_up();
    setns(own.as_fd(), CloneFlags::CLONE_NEWNET)?;
    up
}

/// Gives the container what only its supervisor can: the view of its cgroups, and the loopback interface.
fn reach_into(job: &Job, groups: &Groups, own: &Namespaces, theirs: &Namespaces) -> Result<(), Failure> {
    attach(&groups.view(), &own.mounts, &theirs.mounts)?;
    if job.profile.namespaces.network {
        bring_loopback_up(&own.network, &theirs.network).map_err(|e| Failure::new("network", e))?;
    }
    Ok(())
}

/// Waits for the gate; a cancel or the deadline ends the wait.
fn wait_until_ready(gate_end: &OwnedFd, triggers: &Triggers) -> Result<(), Failure> {
    let mut fds = [
        PollFd::new(gate_end.as_fd(), PollFlags::POLLIN),
        PollFd::new(triggers.cancel.as_fd(), PollFlags::POLLIN),
        PollFd::new(triggers.deadline.as_fd(), PollFlags::POLLIN),
    ];
    loop {
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => break,
            Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(Failure::new("prepare", e)),
        }
    }
    let any = |at: usize| fds[at].revents().is_some_and(|r| !r.is_empty());
    if any(1) {
        return Err(Failure::Forced(Forced::Cancel));
    }
    if any(2) {
        return Err(Failure::Forced(Forced::Deadline));
    }
    let mut buffer = [0u8; 4096];
    let n =
        recv(gate_end.as_raw_fd(), &mut buffer, MsgFlags::empty()).map_err(|e| Failure::new("prepare", e))?;
    match buffer[..n].split_first() {
        Some((&gate::READY, _)) => Ok(()),
        Some((&gate::FAILED, text)) => Err(Failure::new("prepare", String::from_utf8_lossy(text))),
        _ => Err(Failure::new("prepare", "the container's init ended without a word")),
    }
}
