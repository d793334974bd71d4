//! The only user of libcontainer: creates a container and lets its init go on to the gate.

use super::init::Init;
use libcontainer::container::Container as Inner;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns};
use oci_spec::runtime::Spec;
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where hosts have their cgroup file systems.
const CGROUPS: &str = "/sys/fs/cgroup";

/// A step of creation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {detail}")]
pub struct CreateError {
    /// Which step.
    pub step: &'static str,
    /// What it said.
    pub detail: String,
}

pub(super) fn failed<E: std::fmt::Display>(step: &'static str) -> impl Fn(E) -> CreateError {
    move |e| CreateError { step, detail: e.to_string() }
}

/// Descriptors that become the container's standard streams.
pub struct Stdio {
    /// Standard input.
    pub input: OwnedFd,
    /// Standard output.
    pub output: OwnedFd,
    /// Standard error.
    pub error: OwnedFd,
}

/// Enters a mount namespace of its own, in which no cgroup file system can be found and `dir` is an
/// empty tmpfs: libcontainer then manages no cgroup, and its state costs no disk and ends with the
/// namespace.
///
/// # Errors
/// [`CreateError`] naming the step.
pub fn own_mounts(dir: &Path) -> Result<(), CreateError> {
    nix::sched::unshare(CloneFlags::CLONE_NEWNS).map_err(failed("unshare the mount namespace"))?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(failed("make mounts private"))?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").map_err(failed("read mountinfo"))?;
    let mut detached: Vec<&Path> = Vec::new();
    // The directory that holds the hierarchies first: what lies below goes with it.
    let covers = std::iter::once(CGROUPS)
        .filter(|point| mounts.lines().any(|l| l.split(' ').nth(4) == Some(point)))
        .chain(mounts.lines().filter(|l| l.contains(" - cgroup")).filter_map(|l| l.split(' ').nth(4)));
    for point in covers.map(Path::new) {
        if !detached.iter().any(|above| point.starts_with(above)) {
            umount2(point, MntFlags::MNT_DETACH).map_err(failed("hide the cgroup file systems"))?;
            detached.push(point);
        }
    }
    let tmpfs = |to: &Path, options: &str| {
        mount(Some("tmpfs"), to, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some(options))
    };
    // libcontainer takes a plain directory for a host with v1 and no controller.
    tmpfs(Path::new(CGROUPS), "size=64k,mode=755").map_err(failed("cover /sys/fs/cgroup"))?;
    tmpfs(dir, "size=1m,mode=700").map_err(failed("mount a tmpfs on the run directory"))
}

/// Attaches host directories read-only inside another mount namespace.
///
/// `binds` are (host directory, mount point inside) pairs; a missing mount point is made. `own` and
/// `theirs` are the mount namespaces.
///
/// # Errors
/// [`CreateError`] naming the step; this process is back in `own` whenever that is possible.
pub fn attach(binds: &[(PathBuf, PathBuf)], own: &File, theirs: &File) -> Result<(), CreateError> {
    let trees: Vec<OwnedFd> = binds
        .iter()
        .map(|(from, _)| {
            open_tree(CWD, from, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
        })
        .collect::<Result<_, _>>()
        .map_err(failed("open_tree"))?;
    setns(theirs.as_fd(), CloneFlags::CLONE_NEWNS).map_err(failed("enter the container's mounts"))?;
    let done = trees.iter().zip(binds).try_for_each(|(tree, (_, to))| {
        std::fs::create_dir_all(to).map_err(failed("make a mount point"))?;
        move_mount(tree, "", CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(failed("move_mount"))?;
        let flags = MsFlags::MS_REMOUNT
            | MsFlags::MS_BIND
            | MsFlags::MS_RDONLY
            | MsFlags::MS_NOSUID
            | MsFlags::MS_NODEV
            | MsFlags::MS_NOEXEC;
        mount(None::<&str>, to, None::<&str>, flags, None::<&str>).map_err(failed("remount read-only"))
    });
    setns(own.as_fd(), CloneFlags::CLONE_NEWNS).map_err(failed("leave the container's mounts"))?;
    done
}

/// A created container whose init waits for its start.
pub struct Container(Inner);

impl Container {
    /// Creates the container in `dir`, which becomes its OCI bundle and libcontainer's state directory.
    ///
    /// # Errors
    /// [`CreateError`]; a spec with `linux.seccomp` is refused, because this build of libcontainer
    /// would silently ignore it.
    pub fn create(id: &str, dir: &Path, spec: &Spec, init: Init, stdio: Stdio) -> Result<Self, CreateError> {
        refuse_ignored(spec)?;
        spec.save(dir.join("config.json")).map_err(failed("write config.json"))?;
        let builder = ContainerBuilder::new(id.to_owned(), SyscallType::default())
            .with_executor(init)
            .with_root_path(dir)
            .map_err(failed("state directory"))?
            .with_stdin(stdio.input)
            .with_stdout(stdio.output)
            .with_stderr(stdio.error)
            .validate_id()
            .map_err(failed("container id"))?;
        let built = builder
            .as_init(dir)
            .with_systemd(false)
            .with_detach(true)
            .build()
            .map_err(|e| CreateError { step: "create", detail: chain(&e) })?;
        Ok(Self(built))
    }

    /// Process 1 of the container, as the host numbers it.
    pub fn pid(&self) -> Option<i32> {
        self.0.pid().map(nix::unistd::Pid::as_raw)
    }

    /// Lets init go on to the gate.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn start(&mut self) -> Result<(), CreateError> {
        self.0.start().map_err(|e| CreateError { step: "start", detail: chain(&e) })
    }
}

/// Refuses what this build of libcontainer would silently ignore.
fn refuse_ignored(spec: &Spec) -> Result<(), CreateError> {
    match spec.linux().as_ref().map(|linux| linux.seccomp().is_some()) {
        Some(true) => Err(CreateError { step: "spec", detail: "linux.seccomp would be ignored".into() }),
        _ => Ok(()),
    }
}

/// An error with all its causes: libcontainer's outermost text alone says little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::{LinuxBuilder, LinuxSeccompAction, LinuxSeccompBuilder, SpecBuilder};

    #[test]
    fn exe_a_filter_in_the_spec_is_refused_rather_than_ignored() {
        let spec = |linux| SpecBuilder::default().linux(linux).build().unwrap();
        let filter =
            LinuxSeccompBuilder::default().default_action(LinuxSeccompAction::ScmpActErrno).build().unwrap();
        let plain = LinuxBuilder::default().build().unwrap();
        refuse_ignored(&spec(plain)).unwrap();
        let filtered = LinuxBuilder::default().seccomp(filter).build().unwrap();
        let refused = refuse_ignored(&spec(filtered)).unwrap_err();
        assert!(refused.to_string().contains("linux.seccomp"), "{refused}");
    }
}
