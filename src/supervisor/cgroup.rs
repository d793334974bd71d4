//! The container's own cgroups: made, limited, read back, killed and removed by us.
//!
//! libcontainer's manager is not used: joining a fresh cgroup through `cgroup.procs` waits for an RCU
//! grace period (6–16 ms), while a single-threaded process that writes "0" to `tasks` (v1) does not;
//! and its removal can report success and skip the cgroup. One name, the container id, on every
//! hierarchy, so that recovery can find it.

use crate::domain::outcome::Evidence;
use crate::domain::profile::Profile;
use crate::fault::{self, Side};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest that removal is retried (faults B11).
const REMOVE_LIMIT: Duration = Duration::from_secs(5);
/// Name of the leaf that the service moves itself to in a delegated v2 subtree.
pub const SERVICE_LEAF: &str = "salaam-service";

/// null, zero, full, random, urandom, tty: the nodes that libcontainer makes in `/dev`.
const CORE_DEVICES: [&str; 6] =
    ["c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm", "c 1:8 rwm", "c 1:9 rwm", "c 5:0 rwm"];

/// A control that the host cannot enforce, or a cgroup file that failed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No hierarchy has the controller.
    #[error("no cgroup controller '{0}' on this host")]
    Missing(&'static str),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A limit did not take.
    #[error("{path} was set to {wanted} and reads {found}")]
    NotTaken {
        /// The file.
        path: PathBuf,
        /// What was written.
        wanted: String,
        /// What is read back.
        found: String,
    },
}

fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    fs::write(path, value).map_err(|source| CgroupError::Io { path: path.to_owned(), source })
}

fn read(path: &Path) -> Result<String, CgroupError> {
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .map_err(|source| CgroupError::Io { path: path.to_owned(), source })
}

/// Writes a limit and reads it back: a host that accepts and ignores one is refused.
fn limit(path: &Path, value: &str) -> Result<(), CgroupError> {
    write(path, value)?;
    let found = read(path)?;
    if found == value {
        Ok(())
    } else {
        Err(CgroupError::NotTaken { path: path.to_owned(), wanted: value.to_owned(), found })
    }
}

/// Where cgroups of containers are made on this host.
#[derive(Clone, Debug)]
pub enum Host {
    /// cgroup v2: the directory below which each container gets its own, and ours to go back to.
    V2 {
        /// Parent of the containers' groups.
        base: PathBuf,
        /// The supervisor's own group.
        own: PathBuf,
    },
    /// v1 controllers (hybrid hosts).
    V1(Vec<Controller>),
}

/// One v1 hierarchy.
#[derive(Clone, Debug)]
pub struct Controller {
    /// Its controllers, as `/proc/PID/cgroup` lists them, such as `cpu,cpuacct`.
    names: String,
    /// Mount point.
    mount: PathBuf,
    /// Which group of the hierarchy is mounted there; `/` unless a container sees a part of it.
    root: String,
    /// The supervisor's own group in it.
    own: PathBuf,
}

impl Controller {
    fn has(&self, name: &str) -> bool {
        self.names.split(',').any(|n| n == name)
    }
}

/// A line of `/proc/self/mountinfo` as far as it matters here.
struct Mounted<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mounted<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let mut back = back.split(' ');
        Some(Self {
            root: front.next()?,
            point: front.next()?,
            kind: back.next()?,
            options: back.nth(1).unwrap_or_default(),
        })
    }

    /// Where a group of the hierarchy lies below the mount point.
    fn below(&self, group: &str) -> PathBuf {
        let rest = group.strip_prefix(self.root.trim_end_matches('/')).unwrap_or("");
        Path::new(self.point).join(rest.trim_start_matches('/'))
    }
}

impl Host {
    /// Finds the hierarchies that this process sees (cgroups(7)): v2 where it has the controllers,
    /// v1 otherwise.
    ///
    /// # Errors
    /// [`CgroupError::Missing`] names a controller that neither has.
    pub fn detect() -> Result<Self, CgroupError> {
        Self::of(&read(Path::new("/proc/self/mountinfo"))?, &read(Path::new("/proc/self/cgroup"))?)
    }

    fn of(mountinfo: &str, membership: &str) -> Result<Self, CgroupError> {
        let mounts: Vec<Mounted> = mountinfo.lines().filter_map(Mounted::parse).collect();
        // (controllers, group); the list is empty for v2.
        let own: Vec<(&str, &str)> =
            membership.lines().filter_map(|l| l.split_once(':')?.1.split_once(':')).collect();
        for mount in mounts.iter().filter(|m| m.kind == "cgroup2") {
            let available = read(&Path::new(mount.point).join("cgroup.controllers")).unwrap_or_default();
            let has = |name| available.split(' ').any(|c| c == name);
            if has("memory") && has("pids") && has("cpu") {
                let group = own.iter().find(|(names, _)| names.is_empty()).map_or("/", |(_, g)| g);
                let own = mount.below(group);
                let base = match own.file_name() {
                    Some(name) if name == SERVICE_LEAF => own.parent().unwrap_or(&own).to_owned(),
                    _ => PathBuf::from(mount.point),
                };
                return Ok(Self::V2 { base, own });
            }
        }
        let mut v1: Vec<Controller> = Vec::new();
        for mount in mounts.iter().filter(|m| m.kind == "cgroup") {
            let listed = |names: &str| {
                !names.is_empty() && names.split(',').all(|n| mount.options.split(',').any(|o| o == n))
            };
            let Some((names, group)) = own.iter().find(|(names, _)| listed(names)) else { continue };
            if v1.iter().all(|c| c.names != *names) {
                v1.push(Controller {
                    names: (*names).to_owned(),
                    mount: PathBuf::from(mount.point),
                    root: mount.root.to_owned(),
                    own: mount.below(group),
                });
            }
        }
        for needed in ["memory", "cpu", "pids", "devices"] {
            if !v1.iter().any(|c| c.has(needed)) {
                return Err(CgroupError::Missing(needed));
            }
        }
        v1.retain(|c| ["memory", "cpu", "cpuacct", "pids", "devices", "cpuset"].iter().any(|n| c.has(n)));
        Ok(Self::V1(v1))
    }

    /// This host, and on v2 once more for every other place that has a group of this name: the service
    /// that made it may have been delegated another subtree.
    pub fn everywhere(self, name: &str) -> Vec<Self> {
        let Self::V2 { base, own } = &self else { return vec![self] };
        let (base, own) = (base.clone(), own.clone());
        let mut found = vec![self];
        let mut pending = vec![shared_root(&base, &base).to_owned()];
        while let Some(dir) = pending.pop() {
            if dir != base && dir.join(name).exists() {
                found.push(Self::V2 { base: dir.clone(), own: own.clone() });
            }
            let below = fs::read_dir(&dir).into_iter().flatten().flatten();
            pending.extend(below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        }
        found
    }

    /// The group directories that a container of this name has or would have.
    pub fn group_dirs(&self, name: &str) -> Vec<PathBuf> {
        match self {
            Self::V2 { base, .. } => vec![base.join(name)],
            Self::V1(list) => list.iter().map(|c| c.mount.join(name)).collect(),
        }
    }
}

/// Makes room for containers in a v2 subtree that is delegated to the service (systemd's `Delegate=yes`,
/// or the root of a private cgroup namespace): a group with processes of its own can hand out no
/// controllers, so those of `pid`'s group move to a leaf. Elsewhere nothing is done.
///
/// # Errors
/// [`CgroupError`] naming the file.
pub fn settle(pid: u32) -> Result<(), CgroupError> {
    let mountinfo = read(Path::new("/proc/self/mountinfo"))?;
    let membership = read(&PathBuf::from(format!("/proc/{pid}/cgroup")))?;
    let Ok(Host::V2 { base, own }) = Host::of(&mountinfo, &membership) else { return Ok(()) };
    let delegated = if own == base {
        // Only the real root has no type (cgroups(7)).
        own.join("cgroup.type").exists()
    } else {
        own.file_name().is_none_or(|name| name != SERVICE_LEAF) && is_delegated(&own)
    };
    if !delegated {
        return Ok(());
    }
    let leaf = own.join(SERVICE_LEAF);
    fs::create_dir_all(&leaf).map_err(|source| CgroupError::Io { path: leaf.clone(), source })?;
    // Processes may be born while we move them.
    for _ in 0..10 {
        let inside = read(&own.join("cgroup.procs"))?;
        if inside.is_empty() {
            break;
        }
        for pid in inside.lines() {
            // One that has ended meanwhile is no error; one that stays shows below.
            let _ = fs::write(leaf.join("cgroup.procs"), pid);
        }
    }
    ["memory", "pids", "cpu"]
        .iter()
        .try_for_each(|name| write(&own.join("cgroup.subtree_control"), &format!("+{name}")))
}

/// systemd marks the groups that it delegates (systemd.resource-control(5)).
fn is_delegated(dir: &Path) -> bool {
    ["trusted.delegate", "user.delegate"].iter().any(|name| {
        let mut value = [0u8; 8];
        rustix::fs::getxattr(dir, *name, &mut value).is_ok_and(|n| &value[..n] == b"1")
    })
}

/// The cgroups of one container.
pub struct Groups {
    host: Host,
    name: String,
}

impl Groups {
    /// Names the groups of a container; nothing is made yet.
    pub fn of(host: Host, name: &str) -> Self {
        Self { host, name: name.to_owned() }
    }

    /// Makes the groups and sets every limit of the profile, reading each back.
    ///
    /// # Errors
    /// [`CgroupError`] naming the file; what was made is left for [`Groups::remove`].
    pub fn create(&self, profile: &Profile, cpu: usize) -> Result<(), CgroupError> {
        match &self.host {
            Host::V2 { base, .. } => self.create_v2(base, profile, cpu),
            Host::V1(list) => list.iter().try_for_each(|c| self.create_v1(c, profile, cpu)),
        }
    }

    fn create_v2(&self, base: &Path, p: &Profile, cpu: usize) -> Result<(), CgroupError> {
        let control = base.join("cgroup.subtree_control");
        let enabled = read(&control)?;
        for name in ["memory", "pids", "cpu", "cpuset"] {
            if !enabled.split(' ').any(|c| c == name) {
                let done = write(&control, &format!("+{name}"));
                // The quota and affinity hold without cpuset; the others are needed.
                if name != "cpuset" {
                    done?;
                }
            }
        }
        let dir = base.join(&self.name);
        make(&dir)?;
        limit(&dir.join("memory.max"), &p.memory_bytes.to_string())?;
        if dir.join("memory.swap.max").exists() {
            limit(&dir.join("memory.swap.max"), "0")?;
        } else if has_swap() {
            return Err(CgroupError::Missing("memory (swap accounting)"));
        }
        limit(&dir.join("cpu.max"), &format!("{} 100000", u64::from(p.cpu_millis) * 100))?;
        limit(&dir.join("pids.max"), &p.pids.to_string())?;
        if p.one_cpu && dir.join("cpuset.cpus").exists() {
            limit(&dir.join("cpuset.cpus"), &cpu.to_string())?;
        }
        Ok(())
    }

    fn create_v1(&self, c: &Controller, p: &Profile, cpu: usize) -> Result<(), CgroupError> {
        let dir = c.mount.join(&self.name);
        make(&dir)?;
        if c.has("memory") {
            limit(&dir.join("memory.limit_in_bytes"), &p.memory_bytes.to_string())?;
            let with_swap = dir.join("memory.memsw.limit_in_bytes");
            if with_swap.exists() {
                limit(&with_swap, &p.memory_bytes.to_string())?;
            } else if has_swap() {
                return Err(CgroupError::Missing("memory (swap accounting)"));
            }
        }
        if c.has("cpu") {
            limit(&dir.join("cpu.cfs_period_us"), "100000")?;
            limit(&dir.join("cpu.cfs_quota_us"), &(u64::from(p.cpu_millis) * 100).to_string())?;
        }
        if c.has("pids") {
            limit(&dir.join("pids.max"), &p.pids.to_string())?;
        }
        if c.has("devices") && p.deny_devices {
            write(&dir.join("devices.deny"), "a")?;
            for node in CORE_DEVICES {
                write(&dir.join("devices.allow"), node)?;
            }
            let found = read(&dir.join("devices.list"))?;
            if found.lines().ne(CORE_DEVICES) {
                let wanted = CORE_DEVICES.join(", ");
                return Err(CgroupError::NotTaken { path: dir.join("devices.list"), wanted, found });
            }
        }
        if c.has("cpuset") {
            // Before the processors are set: a group that balances its load has the scheduler's domains
            // built anew, which waits for every processor.
            write(&dir.join("cpuset.sched_load_balance"), "0")?;
            // A fresh v1 cpuset is empty and takes no process.
            limit(&dir.join("cpuset.mems"), &read(&c.mount.join("cpuset.mems"))?)?;
            let cpus = if p.one_cpu { cpu.to_string() } else { read(&c.mount.join("cpuset.cpus"))? };
            limit(&dir.join("cpuset.cpus"), &cpus)?;
        }
        Ok(())
    }

    /// Moves this single-threaded process in, so that what it forks is born inside.
    ///
    /// # Errors
    /// [`CgroupError`] naming the file.
    pub fn enter(&self) -> Result<(), CgroupError> {
        match &self.host {
            Host::V2 { base, .. } => write(&base.join(&self.name).join("cgroup.procs"), "0"),
            Host::V1(list) => {
                list.iter().try_for_each(|c| write(&c.mount.join(&self.name).join("tasks"), "0"))
            }
        }
    }

    /// Moves this process back to where it came from.
    ///
    /// # Errors
    /// [`CgroupError`] naming the file.
    pub fn leave(&self) -> Result<(), CgroupError> {
        match &self.host {
            Host::V2 { own, .. } => write(&own.join("cgroup.procs"), "0"),
            Host::V1(list) => list.iter().try_for_each(|c| write(&c.own.join("tasks"), "0")),
        }
    }

    /// The directories in which a command can read its own limits, each with the place where it looks
    /// for them.
    pub fn view(&self) -> Vec<(PathBuf, PathBuf)> {
        let at = Path::new("/sys/fs/cgroup");
        match &self.host {
            Host::V2 { base, .. } => vec![(base.join(&self.name), at.to_owned())],
            Host::V1(list) => list
                .iter()
                .filter(|c| c.has("memory") || c.has("cpu"))
                .map(|c| (c.mount.join(&self.name), at.join(&c.names)))
                .collect(),
        }
    }

    fn dir(&self, controller: &str) -> Option<PathBuf> {
        match &self.host {
            Host::V2 { base, .. } => Some(base.join(&self.name)),
            Host::V1(list) => list.iter().find(|c| c.has(controller)).map(|c| c.mount.join(&self.name)),
        }
    }

    /// The lines of `/proc/PID/cgroup` that a process inside must show: (controllers, path).
    pub fn membership(&self) -> Vec<(String, String)> {
        match &self.host {
            Host::V2 { base, own } => {
                let root = shared_root(base, own);
                let path = base.join(&self.name);
                let path = path.strip_prefix(root).unwrap_or(&path);
                vec![(String::new(), format!("/{}", path.display()))]
            }
            Host::V1(list) => list
                .iter()
                .map(|c| (c.names.clone(), format!("{}/{}", c.root.trim_end_matches('/'), self.name)))
                .collect(),
        }
    }

    /// Adds what the kernel counted to the evidence. What cannot be read stays as it is.
    pub fn evidence(&self, e: &mut Evidence) {
        let number = |controller: &str, file: &str| -> Option<u64> {
            read(&self.dir(controller)?.join(file)).ok()?.parse().ok()
        };
        let field = |controller: &str, file: &str, key: &str| -> Option<u64> {
            let text = read(&self.dir(controller)?.join(file)).ok()?;
            text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
        };
        let v2 = matches!(self.host, Host::V2 { .. });
        e.pids_limit_hits = field("pids", "pids.events", "max").unwrap_or(0);
        e.pids_peak = number("pids", "pids.peak");
        if v2 {
            e.oom_kills = field("memory", "memory.events", "oom_kill").unwrap_or(0);
            e.memory_peak = number("memory", "memory.peak");
            e.cpu_ms = field("cpu", "cpu.stat", "usage_usec").map(|us| us / 1000);
            e.throttled_ms = field("cpu", "cpu.stat", "throttled_usec").map(|us| us / 1000);
        } else {
            e.oom_kills = field("memory", "memory.oom_control", "oom_kill").unwrap_or(0);
            e.memory_peak = number("memory", "memory.max_usage_in_bytes");
            e.cpu_ms = number("cpuacct", "cpuacct.usage").map(|ns| ns / 1_000_000);
            e.throttled_ms = field("cpu", "cpu.stat", "throttled_time").map(|ns| ns / 1_000_000);
        }
    }

    /// Process ids inside, over all hierarchies.
    pub fn processes(&self) -> Vec<i32> {
        let mut pids: Vec<i32> = self
            .host
            .group_dirs(&self.name)
            .iter()
            .filter_map(|dir| fs::read_to_string(dir.join("cgroup.procs")).ok())
            .flat_map(|text| text.lines().filter_map(|l| l.trim().parse().ok()).collect::<Vec<i32>>())
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|pid| *pid != std::process::id() as i32);
        pids
    }

    /// Kills everything inside until nothing is left, for at most [`REMOVE_LIMIT`]. This process is
    /// spared: it may still be inside when a creation has failed.
    pub fn kill_all(&self) {
        if self.processes().is_empty() {
            return;
        }
        // Nothing may be born while we kill.
        if let Some(dir) = self.dir("pids") {
            let _ = fs::write(dir.join("pids.max"), "0");
        }
        let end = Instant::now() + REMOVE_LIMIT;
        loop {
            if let Host::V2 { base, .. } = &self.host {
                let _ = fs::write(base.join(&self.name).join("cgroup.kill"), "1");
            }
            let pids = self.processes();
            if pids.is_empty() || Instant::now() > end {
                return;
            }
            for pid in pids {
                kill_member(pid, &self.name);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn remove_one(&self, dir: &Path) -> io::Result<()> {
        fault::reach("rmdir", Side::Before, &self.name)?;
        fs::remove_dir(dir)?;
        fault::reach("rmdir", Side::After, &self.name)
    }

    /// Removes the groups, retrying while the kernel says busy; answers the directories left.
    pub fn remove(&self) -> Vec<String> {
        let end = Instant::now() + REMOVE_LIMIT;
        let mut pause = Duration::from_micros(200);
        loop {
            let left: Vec<PathBuf> = self
                .host
                .group_dirs(&self.name)
                .into_iter()
                .filter(|dir| match self.remove_one(dir) {
                    Ok(()) => false,
                    // Gone only if its hierarchy can be seen at all.
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {
                        !dir.parent().is_some_and(|p| p.join("cgroup.procs").exists())
                    }
                    Err(_) => true,
                })
                .collect();
            if left.is_empty() || Instant::now() > end {
                return left.iter().map(|d| d.display().to_string()).collect();
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

/// Whether the host has swap that a group without a swap limit could use.
fn has_swap() -> bool {
    fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}

/// The mount point that both paths lie below.
fn shared_root<'a>(base: &'a Path, own: &'a Path) -> &'a Path {
    base.ancestors().find(|a| own.starts_with(a) && a.join("cgroup.procs").exists()).map_or(
        base,
        |mut root| {
            while let Some(up) = root.parent().filter(|up| up.join("cgroup.procs").exists()) {
                root = up;
            }
            root
        },
    )
}

fn make(dir: &Path) -> Result<(), CgroupError> {
    fs::create_dir(dir).map_err(|source| CgroupError::Io { path: dir.to_owned(), source })
}

/// Kills one process if it is still in the group once its pidfd is open: a reused id is spared.
fn kill_member(pid: i32, group: &str) {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let Some(Ok(pidfd)) = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return };
    let member = fs::read_to_string(format!("/proc/{pid}/cgroup"))
        .is_ok_and(|text| text.lines().any(|l| l.ends_with(&format!("/{group}"))));
    if member {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Our own group of each hierarchy, and what a container's processes must be members of.
    fn v1(mounts: &str, membership: &str) -> (Vec<PathBuf>, Vec<(String, String)>) {
        let host = Host::of(mounts, membership).unwrap();
        let groups = Groups::of(host.clone(), "sal-x");
        let Host::V1(list) = host else { panic!("{host:?}") };
        (list.into_iter().map(|c| c.own).collect(), groups.membership())
    }

    #[test]
    fn exe_hybrid_hierarchies_are_found_with_our_own_groups() {
        let mounts = "30 1 0:1 / /cg/memory rw - cgroup cgroup rw,memory\n\
                      31 1 0:2 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 1 0:3 / /cg/pids rw - cgroup cgroup rw,pids\n\
                      33 1 0:4 / /cg/devices rw - cgroup cgroup rw,devices\n\
                      34 1 0:5 / /cg/systemd rw - cgroup cgroup rw,name=systemd\n\
                      35 1 0:1 / /other/memory rw - cgroup cgroup rw,memory\n";
        let membership = "4:memory:/api/1\n3:cpu,cpuacct:/\n2:pids:/\n1:devices:/\n5:name=systemd:/\n0::/\n";
        let (own, members) = v1(mounts, membership);
        assert_eq!((own.len(), own[0].as_path()), (4, Path::new("/cg/memory/api/1")));
        assert_eq!(members[1], ("cpu,cpuacct".to_owned(), "/sal-x".to_owned()));
    }

    #[test]
    fn exe_a_part_of_a_hierarchy_keeps_its_place_in_the_whole() {
        let mounts = "30 1 0:1 /docker/7 /cg/memory ro - cgroup cgroup rw,memory,hugetlb\n\
                      31 1 0:2 /docker/7 /cg/cpu rw - cgroup cgroup rw,cpu\n\
                      32 1 0:3 /docker/7 /cg/pids rw - cgroup cgroup rw,pids\n\
                      33 1 0:4 /docker/7 /cg/devices rw - cgroup cgroup rw,devices\n";
        let membership =
            "4:memory,hugetlb:/docker/7/x\n3:cpu:/docker/7\n2:pids:/docker/7\n1:devices:/docker/7\n";
        let (own, members) = v1(mounts, membership);
        assert_eq!(own[0], PathBuf::from("/cg/memory/x"));
        assert_eq!(members[0], ("memory,hugetlb".to_owned(), "/docker/7/sal-x".to_owned()));
    }

    #[test]
    fn exe_a_missing_controller_is_named() {
        let mounts = "30 1 0:1 / /cg/memory rw - cgroup cgroup rw,memory\n";
        let error = Host::of(mounts, "4:memory:/\n").err().unwrap().to_string();
        assert!(error.contains("'cpu'"), "{error}");
    }
}
