//! The fixed command profile as data: one struct, one place (EXE).
//!
//! It is rendered purely into the OCI runtime spec (`exec::oci`), the supervisor's own controls and
//! the proof's expectations. A new control is added here once; [`Control::weaken`] then fails to
//! compile until the control has its negative.

use serde::{Deserialize, Serialize};

/// Everything that bounds a command. Sizes are in bytes, times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// User and group id inside the container.
    pub uid: u32,
    /// Supplementary groups; the fixed profile has none.
    pub extra_groups: Vec<u32>,
    /// Names of capabilities kept in all five sets; the fixed profile keeps none.
    pub capabilities: Vec<String>,
    /// `no_new_privs` (prctl(2)).
    pub no_new_privileges: bool,
    /// Whether the allow-list of `seccomp/` is installed.
    pub seccomp: bool,
    /// Whether the process is kept from being dumped or opened through `/proc` by others.
    pub non_dumpable_init: bool,
    /// Whether every descriptor but the standard streams is closed for the command.
    pub close_descriptors: bool,
    /// Whether the image is mounted read-only.
    pub readonly_image: bool,
    /// Whether the source revision is mounted read-only.
    pub readonly_source: bool,
    /// Whether procfs and sysfs paths are masked and read-only.
    pub masked_paths: bool,
    /// Whether `/dev` is a fresh file system with the core nodes alone, other devices are denied and
    /// mounts are `nodev`.
    pub deny_devices: bool,
    /// The writable copy at `/work`.
    pub work: Tmpfs,
    /// Scratch space at `/tmp`; HOME is `/tmp/home`.
    pub scratch: Tmpfs,
    /// The namespaces that are the container's own.
    pub namespaces: Namespaces,
    /// Memory limit; swap beyond it is none.
    pub memory_bytes: u64,
    /// CPU quota in thousandths of a processor.
    pub cpu_millis: u32,
    /// Most processes and threads, process 1 included.
    pub pids: u32,
    /// Most open descriptors of a process.
    pub open_files: u64,
    /// Largest file a process may write.
    pub file_size: u64,
    /// Largest core file.
    pub core_size: u64,
    /// Whether the processes see one processor.
    pub one_cpu: bool,
    /// Whether process 1 is our minimal init, which reaps and forwards signals.
    pub init: bool,
    /// The whole environment, in order.
    pub environment: Vec<(String, String)>,
    /// Wall-clock limit of a command, counted by CLOCK_BOOTTIME.
    pub deadline_ms: u64,
    /// Output kept, stdout and stderr together.
    pub output_bytes: u64,
}

/// Size of a tmpfs, which is always nosuid, nodev and exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tmpfs {
    /// Bytes.
    pub bytes: u64,
    /// Inodes, its root included.
    pub inodes: u64,
}

/// Which namespaces are private. The mount namespace always is: nothing works without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// Process ids.
    pub pid: bool,
    /// System V IPC and POSIX message queues.
    pub ipc: bool,
    /// Host name.
    pub uts: bool,
    /// Network; loopback only.
    pub network: bool,
    /// Cgroup root.
    pub cgroup: bool,
}

/// The mount point of the source revision.
pub const SOURCE: &str = "/source";
/// The mount point of the writable copy.
pub const WORK: &str = "/work";
/// The mount point of the scratch space.
pub const SCRATCH: &str = "/tmp";
/// The home directory, made inside the scratch space.
pub const HOME: &str = "/tmp/home";
/// Where the probe's executable is mounted in a proof container.
pub const PROBE: &str = "/.salaam/probe";

/// Kernel paths hidden from the command; moby's list, with the thermal and interrupt ones of its
/// newest version.
pub const MASKED: [&str; 14] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/devices/system/cpu/cpu0/thermal_throttle",
    "/sys/firmware",
    "/sys/kernel/debug",
];

/// Kernel paths that are read-only for the command; moby's list.
pub const READONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

const MIB: u64 = 1024 * 1024;

impl Profile {
    /// The one profile that commands run under; figures from the user's document, "Durable commands".
    pub fn fixed() -> Self {
        let env = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", HOME),
            ("TMPDIR", SCRATCH),
            ("LANG", "C.UTF-8"),
            ("CI", "1"),
            ("npm_config_offline", "true"),
            ("npm_config_audit", "false"),
            ("npm_config_fund", "false"),
            ("npm_config_update_notifier", "false"),
            ("npm_config_cache", "/tmp/home/.npm"),
            ("npm_config_fetch_retries", "0"),
        ];
        Self {
            uid: 65532,
            extra_groups: Vec::new(),
            capabilities: Vec::new(),
            no_new_privileges: true,
            seccomp: true,
            non_dumpable_init: true,
            close_descriptors: true,
            readonly_image: true,
            readonly_source: true,
            masked_paths: true,
            deny_devices: true,
            work: Tmpfs { bytes: 32 * MIB, inodes: 4096 },
            scratch: Tmpfs { bytes: 16 * MIB, inodes: 1024 },
            namespaces: Namespaces { pid: true, ipc: true, uts: true, network: true, cgroup: true },
            memory_bytes: 256 * MIB,
            cpu_millis: 500,
            pids: 32,
            open_files: 64,
            file_size: MIB,
            core_size: 0,
            one_cpu: true,
            init: true,
            environment: env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            deadline_ms: 30_000,
            output_bytes: 64 * 1024,
        }
    }

    /// SHA-256 of the profile's JSON, stored with each run and in the proof.
    pub fn digest(&self) -> super::digest::Digest {
        super::digest::Digest::of(serde_json::to_string(self).unwrap_or_default().as_bytes())
    }
}

/// A control of the profile that the proof observes from inside or outside a real container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// uid, gid and groups.
    Identity,
    /// Five empty capability sets.
    Capabilities,
    /// no_new_privs.
    NoNewPrivileges,
    /// Seccomp mode and denied calls.
    Seccomp,
    /// Nothing of the service's environment.
    Environment,
    /// Process 1 cannot be opened by the command.
    InitIsolation,
    /// Only the standard streams are open.
    Descriptors,
    /// Read-only image.
    ReadonlyImage,
    /// Read-only source.
    ReadonlySource,
    /// Masked and read-only kernel paths.
    MaskedPaths,
    /// No device beyond the core nodes.
    Devices,
    /// Size of `/work`.
    WorkBytes,
    /// Inodes of `/work`.
    WorkInodes,
    /// Size of `/tmp`.
    ScratchBytes,
    /// Inodes of `/tmp`.
    ScratchInodes,
    /// Own PID namespace.
    PidNamespace,
    /// Own IPC namespace.
    IpcNamespace,
    /// Own UTS namespace.
    UtsNamespace,
    /// Own network namespace with loopback only.
    Network,
    /// Own cgroup namespace.
    CgroupNamespace,
    /// Memory limit.
    Memory,
    /// CPU quota.
    Cpu,
    /// Process limit.
    Pids,
    /// Descriptor limit.
    OpenFiles,
    /// File size limit.
    FileSize,
    /// No core files.
    CoreSize,
    /// One processor in view.
    OneCpu,
    /// Minimal init as process 1.
    Init,
}

impl Control {
    /// Every control, in the order in which the proof reports them.
    pub const ALL: [Self; 28] = [
        Self::Identity,
        Self::Capabilities,
        Self::NoNewPrivileges,
        Self::Seccomp,
        Self::Environment,
        Self::InitIsolation,
        Self::Descriptors,
        Self::ReadonlyImage,
        Self::ReadonlySource,
        Self::MaskedPaths,
        Self::Devices,
        Self::WorkBytes,
        Self::WorkInodes,
        Self::ScratchBytes,
        Self::ScratchInodes,
        Self::PidNamespace,
        Self::IpcNamespace,
        Self::UtsNamespace,
        Self::Network,
        Self::CgroupNamespace,
        Self::Memory,
        Self::Cpu,
        Self::Pids,
        Self::OpenFiles,
        Self::FileSize,
        Self::CoreSize,
        Self::OneCpu,
        Self::Init,
    ];

    /// The profile with this one control removed or loosened: the negative of PRF.2.
    pub fn weaken(self, profile: &Profile) -> Profile {
        let mut p = profile.clone();
        match self {
            Self::Identity => p.uid = 0,
            Self::Capabilities => p.capabilities = vec!["CAP_NET_RAW".to_owned()],
            Self::NoNewPrivileges => {
                // An unprivileged process can install a filter only with it (seccomp(2)).
                p.no_new_privileges = false;
                p.seccomp = false;
            }
            Self::Seccomp => p.seccomp = false,
            Self::Environment => p.environment.push(("SALAAM_LEAK".to_owned(), "1".to_owned())),
            Self::InitIsolation => p.non_dumpable_init = false,
            Self::Descriptors => p.close_descriptors = false,
            Self::ReadonlyImage => p.readonly_image = false,
            Self::ReadonlySource => p.readonly_source = false,
            Self::MaskedPaths => p.masked_paths = false,
            Self::Devices => p.deny_devices = false,
            Self::WorkBytes => p.work.bytes *= 2,
            Self::WorkInodes => p.work.inodes *= 2,
            Self::ScratchBytes => p.scratch.bytes *= 2,
            Self::ScratchInodes => p.scratch.inodes *= 2,
            Self::PidNamespace => p.namespaces.pid = false,
            Self::IpcNamespace => p.namespaces.ipc = false,
            Self::UtsNamespace => p.namespaces.uts = false,
            Self::Network => p.namespaces.network = false,
            Self::CgroupNamespace => p.namespaces.cgroup = false,
            Self::Memory => p.memory_bytes *= 4,
            Self::Cpu => p.cpu_millis *= 4,
            Self::Pids => p.pids *= 4,
            Self::OpenFiles => p.open_files *= 2,
            Self::FileSize => p.file_size *= 2,
            Self::CoreSize => p.core_size = MIB,
            Self::OneCpu => p.one_cpu = false,
            Self::Init => p.init = false,
        }
        p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prf2_every_control_has_a_negative_that_changes_the_profile() {
        let fixed = Profile::fixed();
        for control in Control::ALL {
            assert_ne!(control.weaken(&fixed), fixed, "{control:?}");
        }
        // Order and completeness, told by the source itself.
        for (n, control) in Control::ALL.into_iter().enumerate() {
            assert_eq!(control as usize, n, "{control:?} is listed twice, or one before it is missing");
        }
        let body = include_str!("profile.rs").split("pub enum Control {").nth(1).unwrap();
        let lines = body.split("\n}").next().unwrap().lines();
        let variants = lines.filter(|l| l.trim_end().ends_with(',') && !l.contains("///"));
        assert_eq!(variants.count(), Control::ALL.len());
    }

    #[test]
    fn exe_figures_are_those_of_the_document() {
        let p = Profile::fixed();
        assert_eq!((p.uid, p.pids, p.open_files, p.cpu_millis), (65532, 32, 64, 500));
        assert_eq!((p.memory_bytes, p.file_size), (268_435_456, 1_048_576));
        assert_eq!((p.work.bytes, p.work.inodes), (33_554_432, 4096));
        assert_eq!((p.scratch.bytes, p.scratch.inodes), (16_777_216, 1024));
        assert_eq!((p.deadline_ms, p.output_bytes), (30_000, 65_536));
    }
}
