//! Judges an observation against a profile: pure, one finding a control.

use super::observation::{Observation, Outside};
use crate::domain::profile::{Control, Profile, SOURCE};
use serde::{Deserialize, Serialize};

/// What was expected of a control and what was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The control.
    pub control: Control,
    /// What the profile demands.
    pub expected: String,
    /// What the probe saw.
    pub observed: String,
    /// Whether the control holds.
    pub passed: bool,
}

/// errno values that findings name.
const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EFBIG: i32 = 27;
const ENOSYS: i32 = 38;
const ENETUNREACH: i32 = 101;
/// Socket families that the filter lets through: UNIX, INET, INET6, NETLINK.
const FAMILIES: [i32; 4] = [1, 2, 10, 16];
/// CPU share seen over four periods may exceed the quota by the first period's burst.
const CPU_SLACK: u64 = 135;

/// Gives one finding for each control, in the order of [`Control::ALL`].
pub fn judge(profile: &Profile, seen: &Observation, outside: &Outside) -> Vec<Finding> {
    Control::ALL.iter().map(|control| finding(*control, profile, seen, outside)).collect()
}

fn finding(control: Control, p: &Profile, seen: &Observation, out: &Outside) -> Finding {
    let (expected, observed, passed) = match control {
        Control::Identity => identity(p, seen),
        Control::Capabilities => equal("five empty sets", capabilities(seen)),
        Control::NoNewPrivileges => equal("1", status(seen, "NoNewPrivs")),
        Control::Seccomp => equal("mode 2, every probed call refused", seccomp(seen)),
        Control::Environment => environment(p, seen),
        Control::InitIsolation => equal(&format!("errno {EACCES}"), format!("errno {}", seen.init_exe)),
        Control::Descriptors => equal("[0, 1, 2]", format!("{:?}", seen.descriptors)),
        Control::ReadonlyImage => equal("own mounts, read-only, nothing else writable", image(seen, out)),
        Control::ReadonlySource => equal("read-only, our own files", source(seen, out)),
        Control::MaskedPaths => equal("all masked, /proc/sys read-only", masked(seen)),
        Control::Devices => equal("full null random tty urandom zero; nodev mounts", devices(seen)),
        Control::WorkBytes => equal(
            &format!("{} bytes, writable copy", p.work.bytes),
            format!("{} bytes, {}", seen.work.0, copy(seen, out)),
        ),
        Control::WorkInodes => equal(&p.work.inodes.to_string(), seen.work.1.to_string()),
        Control::ScratchBytes => equal(&p.scratch.bytes.to_string(), seen.scratch.0.to_string()),
        Control::ScratchInodes => equal(&p.scratch.inodes.to_string(), seen.scratch.1.to_string()),
        Control::PidNamespace => namespace(seen, out, "pid"),
        Control::IpcNamespace => namespace(seen, out, "ipc"),
        Control::UtsNamespace => namespace(seen, out, "uts"),
        Control::CgroupNamespace => namespace(seen, out, "cgroup"),
        Control::Network => equal("own namespace, lo only and up, no way out", network(seen, out)),
        Control::Memory => memory(p, seen),
        Control::Cpu => cpu(p, seen),
        Control::Pids => equal(&p.pids.to_string(), seen.processes.to_string()),
        Control::OpenFiles => equal(&p.open_files.to_string(), seen.open_files.to_string()),
        Control::FileSize => equal(
            &format!("{} bytes, then errno {EFBIG}", p.file_size),
            format!("{} bytes, then errno {}", seen.file_size.0, seen.file_size.1),
        ),
        Control::CoreSize => equal(&p.core_size.to_string(), seen.core_size.to_string()),
        Control::OneCpu => equal("1 processor", format!("{} processor", seen.cpus)),
        Control::Init => equal("a child of process 1", init(seen)),
    };
    Finding { control, expected, observed, passed }
}

type Judged = (String, String, bool);

fn equal(expected: &str, observed: String) -> Judged {
    let passed = expected == observed;
    (expected.to_owned(), observed, passed)
}

fn status(seen: &Observation, key: &str) -> String {
    seen.status.get(key).cloned().unwrap_or_else(|| "absent".to_owned())
}

fn identity(p: &Profile, seen: &Observation) -> Judged {
    let four = [p.uid.to_string().as_str(); 4].join(" ");
    let groups = p.extra_groups.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    equal(
        &format!("uid {four}, gid {four}, groups [{groups}]"),
        format!(
            "uid {}, gid {}, groups [{}]",
            status(seen, "Uid"),
            status(seen, "Gid"),
            status(seen, "Groups")
        ),
    )
}

fn capabilities(seen: &Observation) -> String {
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let kept: Vec<String> = sets
        .iter()
        .map(|set| (set, status(seen, set)))
        .filter(|(_, value)| value != "0000000000000000")
        .map(|(set, value)| format!("{set} {value}"))
        .collect();
    if kept.is_empty() { "five empty sets".to_owned() } else { kept.join(", ") }
}

fn seccomp(seen: &Observation) -> String {
    let mut wrong: Vec<String> = Vec::new();
    for (name, errno) in &seen.calls {
        let family = name.strip_prefix("socket_").and_then(|f| f.parse::<i32>().ok());
        let right = match (name.as_str(), family) {
            (_, Some(f)) if FAMILIES.contains(&f) => continue,
            ("clone3" | "x32_getpid", _) => ENOSYS,
            _ => EPERM,
        };
        if *errno != right {
            wrong.push(format!("{name} answers {errno}"));
        }
    }
    if seen.calls.is_empty() {
        wrong.push("no call was probed".to_owned());
    }
    if seen.i386_abi != "killed" {
        wrong.push(format!("an i386 call is {}", seen.i386_abi));
    }
    let mode = status(seen, "Seccomp");
    if wrong.is_empty() {
        format!("mode {mode}, every probed call refused")
    } else {
        format!("mode {mode}, {}", wrong.join(", "))
    }
}

fn environment(p: &Profile, seen: &Observation) -> Judged {
    let expected: Vec<String> = p.environment.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let (a, b) = (expected.join(" "), seen.environment.join(" "));
    let passed = a == b;
    (a, b, passed)
}

fn image(seen: &Observation, out: &Outside) -> String {
    let mode = if seen.image_read_only { "read-only" } else { "writable" };
    let mode = format!("{} mounts, {mode}", namespace(seen, out, "mnt").1);
    let others: Vec<&str> = seen.writable.iter().map(String::as_str).filter(|w| *w != SOURCE).collect();
    if others.is_empty() {
        format!("{mode}, nothing else writable")
    } else {
        format!("{mode}, writable: {}", others.join(" "))
    }
}

fn source(seen: &Observation, out: &Outside) -> String {
    let locked = seen.source_read_only && !seen.writable.iter().any(|w| w == SOURCE);
    let mode = if locked { "read-only" } else { "writable" };
    let ours = !out.nonce.is_empty() && seen.source_nonce == out.nonce;
    format!("{mode}, {}", if ours { "our own files" } else { "other files" })
}

fn copy(seen: &Observation, out: &Outside) -> &'static str {
    match (seen.work_writable, !out.nonce.is_empty() && seen.work_nonce == out.nonce) {
        (true, true) => "writable copy",
        (false, true) => "read-only copy",
        (_, false) => "other content",
    }
}

fn masked(seen: &Observation) -> String {
    let open = if seen.unmasked.is_empty() {
        "all masked".to_owned()
    } else {
        format!("open: {}", seen.unmasked.join(" "))
    };
    format!("{open}, /proc/sys {}", if seen.proc_sys_read_only { "read-only" } else { "writable" })
}

fn devices(seen: &Observation) -> String {
    let mounts = if seen.dev_mounts.is_empty() {
        "nodev mounts".to_owned()
    } else {
        format!("mounts with devices: {}", seen.dev_mounts.join(" "))
    };
    format!("{}; {mounts}", seen.devices.join(" "))
}

fn namespace(seen: &Observation, out: &Outside, name: &str) -> Judged {
    let (inside, host) = (seen.namespaces.get(name), out.namespaces.get(name));
    let observed = match (inside, host) {
        (Some(a), Some(b)) if a != b => "own",
        (Some(_), Some(_)) => "the host's",
        _ => "unknown",
    };
    equal("own", observed.to_owned())
}

fn network(seen: &Observation, out: &Outside) -> String {
    let own = namespace(seen, out, "net").1;
    let interfaces = if seen.interfaces == ["lo"] { "lo only".to_owned() } else { seen.interfaces.join(" ") };
    let up = if seen.loopback { "up" } else { "down" };
    let way = match seen.outside {
        Some(ENETUNREACH) => "no way out".to_owned(),
        Some(errno) => format!("outside answers errno {errno}"),
        None => "a way out".to_owned(),
    };
    format!("{own} namespace, {interfaces} and {up}, {way}")
}

fn memory(p: &Profile, seen: &Observation) -> Judged {
    let (reached, killed) = seen.memory;
    let mib = |bytes: u64| bytes >> 20;
    let passed = killed && reached > 0 && reached <= p.memory_bytes;
    (
        format!("killed at or below {} MiB", mib(p.memory_bytes)),
        format!("{} at {} MiB", if killed { "killed" } else { "not killed" }, mib(reached)),
        passed,
    )
}

fn cpu(p: &Profile, seen: &Observation) -> Judged {
    let (wall, used) = seen.cpu;
    let share = (used * 1000).checked_div(wall).unwrap_or(u64::MAX);
    let most = u64::from(p.cpu_millis) * CPU_SLACK / 100;
    (
        format!("at most {most} thousandths of a processor"),
        format!("{share} thousandths ({used} ms in {wall} ms)"),
        share <= most,
    )
}

fn init(seen: &Observation) -> String {
    match (seen.pid, seen.parent) {
        (1, _) => "process 1 itself".to_owned(),
        (_, 1) => "a child of process 1".to_owned(),
        (_, parent) => format!("a child of process {parent}"),
    }
}
