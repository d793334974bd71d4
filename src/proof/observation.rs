//! What the probe reports from inside a container: facts, no judgement.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that the probe saw. Sizes in bytes, times in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Lines of `/proc/self/status`, white space folded.
    pub status: BTreeMap<String, String>,
    /// Errno of calls that the filter must answer by itself; 0 when the call went through.
    pub calls: BTreeMap<String, i32>,
    /// How a call through the i386 ABI ended.
    pub i386_abi: String,
    /// The environment as `execve` gave it.
    pub environment: Vec<String>,
    /// Own process id.
    pub pid: i32,
    /// Parent's process id.
    pub parent: i32,
    /// Errno of opening `/proc/1/exe`; 0 when it could be opened.
    pub init_exe: i32,
    /// Open descriptors when the probe began.
    pub descriptors: Vec<i32>,
    /// Mount points outside `/work` and `/tmp` where something could be written.
    pub writable: Vec<String>,
    /// Whether the root mount is read-only.
    pub image_read_only: bool,
    /// Whether the source mount is read-only.
    pub source_read_only: bool,
    /// What the nonce file of the source holds, read from `/source`.
    pub source_nonce: String,
    /// The same from the copy in `/work`.
    pub work_nonce: String,
    /// Whether a file could be made and removed in `/work`.
    pub work_writable: bool,
    /// Kernel paths that should be masked and are open.
    pub unmasked: Vec<String>,
    /// Whether `/proc/sys` is read-only.
    pub proc_sys_read_only: bool,
    /// Device nodes in `/dev`.
    pub devices: Vec<String>,
    /// Mounts that honour device nodes, among source, work and scratch.
    pub dev_mounts: Vec<String>,
    /// Total size and inodes of `/work`.
    pub work: (u64, u64),
    /// Total size and inodes of `/tmp`.
    pub scratch: (u64, u64),
    /// Namespace links by name.
    pub namespaces: BTreeMap<String, String>,
    /// The cgroup version of its controllers, `v1` or `v2`.
    pub cgroup: String,
    /// Network interfaces.
    pub interfaces: Vec<String>,
    /// Whether a connection to a listener of its own on 127.0.0.1 worked.
    pub loopback: bool,
    /// Errno of connecting to an address outside; `None` when there was more than loopback, and it
    /// was not tried.
    pub outside: Option<i32>,
    /// Memory a child could touch before it was killed, and whether it was.
    pub memory: (u64, bool),
    /// Wall and CPU time of a busy loop.
    pub cpu: (u64, u64),
    /// Processes of the container when fork failed, process 1 and the probe included.
    pub processes: u32,
    /// Descriptors open when open failed.
    pub open_files: u64,
    /// Size that a file could reach, and the errno that stopped it.
    pub file_size: (u64, i32),
    /// Limit on core files.
    pub core_size: u64,
    /// Processors in the affinity mask.
    pub cpus: u32,
}

/// What is seen from outside, by the side that started the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outside {
    /// The host's namespace links by name.
    pub namespaces: BTreeMap<String, String>,
    /// What the nonce file must hold.
    pub nonce: String,
}
