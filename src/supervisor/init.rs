//! What runs as the container's first process, after libcontainer has pivoted, dropped identity and
//! capabilities: the copy into `/work`, limits, filters, the gate, and then the minimal init.
//!
//! The order matters: the copy before the file-size limit, the limits and descriptors before the
//! filters, the filters before the gate, so that what the supervisor checks at the gate is what the
//! command gets.

use super::sys;
use crate::domain::digest::Digest;
use crate::domain::job::{Entry, Job};
use crate::domain::manifest::{FileEntry, TreeManifest};
use crate::domain::profile::{HOME, Profile, SOURCE, WORK};
use crate::exec::oci;
use libcontainer::workload::{Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError};
use nix::errno::Errno;
use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};
use oci_spec::runtime::Spec;
use seccompiler::BpfProgram;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::ffi::CString;
use std::io::{Read, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Messages over the gate, a SOCK_SEQPACKET pair. First byte; the rest is the payload.
pub mod gate {
    /// Container → supervisor: everything is set, the command is not running yet.
    pub const READY: u8 = b'R';
    /// Container → supervisor: preparation failed; UTF-8 text.
    pub const FAILED: u8 = b'F';
    /// Container → supervisor: execve failed; errno as i32, little-endian.
    pub const EXEC_FAILED: u8 = b'X';
    /// Container → supervisor: the main process exited; its status byte.
    pub const EXITED: u8 = b'E';
    /// Container → supervisor: the main process was killed; the signal number.
    pub const SIGNALLED: u8 = b'S';
    /// Supervisor → container: run the command.
    pub const GO: u8 = b'G';
}

/// The workload handed to libcontainer.
#[derive(Clone)]
pub struct Init(Rc<Inner>);

struct Inner {
    argv: Vec<CString>,
    envp: Vec<CString>,
    cwd: PathBuf,
    profile: Profile,
    manifest: TreeManifest,
    filters: Vec<BpfProgram>,
    gate: RawFd,
    supervisor_end: RawFd,
}

impl Init {
    /// Prepares the workload of a job. `gate` is the container's end, `supervisor_end` the other,
    /// which the container must not keep open.
    ///
    /// # Errors
    /// A NUL byte in the command or environment.
    pub fn new(
        job: &Job,
        filters: Vec<BpfProgram>,
        gate: RawFd,
        supervisor_end: RawFd,
    ) -> Result<Self, std::ffi::NulError> {
        let cwd = match &job.entry {
            Entry::Command { cwd, .. } if !cwd.is_root() => Path::new(WORK).join(cwd.as_str()),
            _ => PathBuf::from(WORK),
        };
        let env = job.profile.environment.iter().map(|(k, v)| format!("{k}={v}"));
        Ok(Self(Rc::new(Inner {
            argv: oci::argv(&job.entry).into_iter().map(CString::new).collect::<Result<_, _>>()?,
            envp: env.map(CString::new).collect::<Result<_, _>>()?,
            cwd,
            profile: job.profile.clone(),
            manifest: job.manifest.clone(),
            filters,
            gate,
            supervisor_end,
        })))
    }
}

impl Executor for Init {
    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        // Without this, init waits for its start for ever once the supervisor is dead.
        sys::close_inherited(self.0.supervisor_end);
        let refused =
            |what: &str, e: Errno| ExecutorValidationError::ArgValidationError(format!("{what}: {e}"));
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| refused("prctl(PR_SET_PDEATHSIG)", e))?;
        // It may have died before the line above: then nobody holds the other end any more.
        let mut poll = [nix::poll::PollFd::new(sys::borrow(self.0.gate), nix::poll::PollFlags::POLLOUT)];
        nix::poll::poll(&mut poll, nix::poll::PollTimeout::ZERO).map_err(|e| refused("poll", e))?;
        let gone = nix::poll::PollFlags::POLLHUP | nix::poll::PollFlags::POLLERR;
        if poll[0].revents().is_some_and(|r| r.intersects(gone)) {
            return Err(ExecutorValidationError::ArgValidationError("the supervisor is gone".into()));
        }
        Ok(())
    }

    fn setup_envs(&self, _: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        // execve gets the exact list; this process's own environment is never the command's.
        Ok(())
    }

    fn exec(&self, _: &Spec) -> Result<(), ExecutorError> {
        let detail = match self.0.prepare().and_then(|()| self.0.wait_for_go()) {
            Ok(()) => self.0.run(),
            Err(detail) => detail,
        };
        let mut message = vec![gate::FAILED];
        message.extend(detail.as_bytes());
        let _ = send(self.0.gate, &message, MsgFlags::MSG_NOSIGNAL);
        Err(ExecutorError::Other(detail))
    }
}

impl Inner {
    fn prepare(&self) -> Result<(), String> {
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
        std::fs::create_dir(HOME).map_err(|e| format!("{HOME}: {e}"))?;
        copy_tree(Path::new(SOURCE), Path::new(WORK), &self.manifest)?;
        std::env::set_current_dir(&self.cwd)
            .map_err(|e| format!("working directory {}: {e}", self.cwd.display()))?;
        sys::reset_signals();
        self.set_limits().map_err(|e| format!("setrlimit: {e}"))?;
        sys::cloexec_from_3().map_err(|e| format!("close_range: {e}"))?;
        if !self.profile.close_descriptors {
            // libcontainer marks them too, so the negative of this control has to leak one itself.
            let keep = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty());
            nix::fcntl::fcntl(self.gate, keep).map_err(|e| format!("fcntl: {e}"))?;
        }
        // Kept from the command: /proc/1/exe is a host executable (CVE-2019-5736), /proc/1/fd the gate.
        nix::sys::prctl::set_dumpable(!self.profile.non_dumpable_init)
            .map_err(|e| format!("prctl(PR_SET_DUMPABLE): {e}"))?;
        if self.profile.seccomp {
            for filter in &self.filters {
                seccompiler::apply_filter(filter).map_err(|e| format!("seccomp: {e}"))?;
            }
        }
        Ok(())
    }

    fn set_limits(&self) -> nix::Result<()> {
        let p = &self.profile;
        // The last four are dockerd's to choose there; set here so that no host default decides.
        let limits: [(Resource, rlim_t); 7] = [
            (Resource::RLIMIT_NOFILE, p.open_files),
            (Resource::RLIMIT_FSIZE, p.file_size),
            (Resource::RLIMIT_CORE, p.core_size),
            (Resource::RLIMIT_MEMLOCK, 65_536),
            (Resource::RLIMIT_MSGQUEUE, 819_200),
            (Resource::RLIMIT_NPROC, nix::libc::RLIM_INFINITY),
            (Resource::RLIMIT_SIGPENDING, 1_024),
        ];
        // Raising needs a capability that is gone: an inherited lower limit simply stays.
        for (resource, value) in limits {
            let (_, hard) = nix::sys::resource::getrlimit(resource)?;
            setrlimit(resource, value.min(hard), value.min(hard))?;
        }
        let (_, hard) = nix::sys::resource::getrlimit(Resource::RLIMIT_STACK)?;
        setrlimit(Resource::RLIMIT_STACK, hard.min(8 << 20), hard)
    }

    fn wait_for_go(&self) -> Result<(), String> {
        send(self.gate, &[gate::READY], MsgFlags::MSG_NOSIGNAL).map_err(|e| format!("gate: {e}"))?;
        let mut answer = [0u8; 8];
        match recv(self.gate, &mut answer, MsgFlags::empty()) {
            Ok(n) if n > 0 && answer[0] == gate::GO => Ok(()),
            Ok(_) => Err("the supervisor closed the gate".into()),
            Err(e) => Err(format!("gate: {e}")),
        }
    }

    /// Starts the main process; returns only if that fails before the fork.
    fn run(&self) -> String {
        if !self.profile.init {
            return self.execute();
        }
        // Blocked before the fork, so that no signal falls between it and the loop.
        let all = SigSet::all();
        if let Err(e) = all.thread_block() {
            return format!("sigprocmask: {e}");
        }
        match sys::fork() {
            Ok(ForkResult::Child) => {
                let _ = all.thread_unblock();
                sys::new_session();
                self.execute();
                std::process::exit(127);
            }
            Ok(ForkResult::Parent { child }) => self.reap_and_forward(child),
            Err(e) => format!("fork: {e}"),
        }
    }

    /// Replaces this process; on failure tells the errno and gives the text.
    fn execute(&self) -> String {
        let Err(errno) = nix::unistd::execve(&self.argv[0], &self.argv, &self.envp);
        let mut message = vec![gate::EXEC_FAILED];
        message.extend((errno as i32).to_le_bytes());
        let _ = send(self.gate, &message, MsgFlags::MSG_NOSIGNAL);
        if self.profile.init {
            // As a shell would say: 127 not found, 126 not executable.
            std::process::exit(if errno == Errno::ENOENT { 127 } else { 126 });
        }
        format!("execve: {errno}")
    }

    /// Process 1: reaps every orphan, passes other signals on, ends with the main process.
    fn reap_and_forward(&self, main: Pid) -> ! {
        let all = SigSet::all();
        loop {
            match all.wait() {
                Ok(Signal::SIGCHLD) => self.reap(main),
                Ok(signal) => {
                    let _ = nix::sys::signal::kill(main, signal);
                }
                Err(_) => {}
            }
        }
    }

    fn reap(&self, main: Pid) {
        loop {
            let (message, code) = match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == main => ([gate::EXITED, code as u8], code),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == main => {
                    ([gate::SIGNALLED, signal as u8], 128 + signal as i32)
                }
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(_) => continue,
            };
            let _ = send(self.gate, &message, MsgFlags::MSG_NOSIGNAL);
            // The kernel kills whatever is left in the PID namespace.
            std::process::exit(code);
        }
    }
}

/// Copies the files of the manifest and checks each against it while copying (CMD.3).
fn copy_tree(from: &Path, to: &Path, manifest: &TreeManifest) -> Result<(), String> {
    let mut made = std::collections::HashSet::new();
    let mut buffer = Vec::new();
    for dir in manifest.empty_dirs() {
        make_dirs(to, dir.as_str(), &mut made)?;
    }
    for file in manifest.files() {
        if let Some((parent, _)) = file.path.as_str().rsplit_once('/') {
            make_dirs(to, parent, &mut made)?;
        }
        copy_file(from, to, file, &mut buffer).map_err(|e| format!("workspace file '{}': {e}", file.path))?;
    }
    Ok(())
}

fn make_dirs<'a>(
    to: &Path,
    path: &'a str,
    made: &mut std::collections::HashSet<&'a str>,
) -> Result<(), String> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for dir in ends.map(|end| &path[..end]) {
        if made.insert(dir) {
            std::fs::create_dir(to.join(dir)).map_err(|e| format!("workspace directory '{dir}': {e}"))?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path, file: &FileEntry, buffer: &mut Vec<u8>) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let source = std::fs::File::options()
        .read(true)
        .custom_flags(flags)
        .open(from.join(file.path.as_str()))
        .map_err(text)?;
    buffer.clear();
    source.take(file.length + 1).read_to_end(buffer).map_err(text)?;
    let content = Digest::from_sha256(&Sha256::digest(&*buffer));
    if buffer.len() as u64 != file.length || content != file.content {
        return Err("it changed after the revision was captured".into());
    }
    let mode = if file.executable { 0o755 } else { 0o644 };
    let mut target = std::fs::File::options()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(to.join(file.path.as_str()))
        .map_err(text)?;
    target.write_all(buffer).map_err(text)
}
