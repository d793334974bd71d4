//! The effective configuration of a very container, read from the kernel at the gate (PRF.4).

use super::cgroup::Groups;
use super::rootfs::{self, Root};
use crate::domain::profile::{Control, Profile, SCRATCH, SOURCE, WORK};
use std::fs;
use std::path::Path;

/// One control that is not as the profile demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The control.
    pub control: Control,
    /// What the profile demands.
    pub expected: String,
    /// What the kernel shows.
    pub observed: String,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = serde_json::to_string(&self.control).unwrap_or_default();
        write!(f, "{}: expected {}, observed {}", name.trim_matches('"'), self.expected, self.observed)
    }
}

/// What `/proc/PID` shows of a container's first process.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// `status`.
    pub status: String,
    /// `limits`.
    pub limits: String,
    /// `mountinfo`.
    pub mountinfo: String,
    /// `cgroup`.
    pub cgroup: String,
    /// Namespace links of the process, as (name, link).
    pub namespaces: Vec<(String, String)>,
    /// The same of the supervisor.
    pub own_namespaces: Vec<(String, String)>,
    /// What its root directory is.
    pub root: Root,
}

const NAMESPACES: [&str; 6] = ["pid", "ipc", "uts", "net", "cgroup", "mnt"];

impl Shown {
    /// Reads it.
    ///
    /// # Errors
    /// The system's error for the first file that cannot be read.
    pub fn read(pid: i32) -> std::io::Result<Self> {
        let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
        let links = |pid: &str| -> std::io::Result<Vec<(String, String)>> {
            NAMESPACES
                .iter()
                .map(|n| {
                    let link = fs::read_link(format!("/proc/{pid}/ns/{n}"))?;
                    Ok(((*n).to_owned(), link.to_string_lossy().into_owned()))
                })
                .collect()
        };
        Ok(Self {
            status: file("status")?,
            limits: file("limits")?,
            mountinfo: file("mountinfo")?,
            cgroup: file("cgroup")?,
            namespaces: links(&pid.to_string())?,
            own_namespaces: links("self")?,
            root: Root::of(Path::new(&format!("/proc/{pid}/root")), 0)?,
        })
    }
}

/// Compares what is shown with the profile and with the root that was mounted; empty means equal.
pub fn compare(shown: &Shown, profile: &Profile, groups: &[(String, String)], root: &Root) -> Vec<Mismatch> {
    let mut out = Vec::new();
    let mut expect = |control, expected: String, observed: String| {
        if expected != observed {
            out.push(Mismatch { control, expected, observed });
        }
    };
    let status = |key: &str| -> String {
        let line = shown.status.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap_or("absent").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let id = profile.uid;
    expect(Control::Identity, format!("{id} {id} {id} {id}"), status("Uid"));
    expect(Control::Identity, format!("{id} {id} {id} {id}"), status("Gid"));
    let extra = profile.extra_groups.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    expect(Control::Identity, extra, status("Groups"));
    if profile.capabilities.is_empty() {
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            expect(
                Control::Capabilities,
                format!("{set} 0000000000000000"),
                format!("{set} {}", status(set)),
            );
        }
    }
    expect(Control::NoNewPrivileges, u8::from(profile.no_new_privileges).to_string(), status("NoNewPrivs"));
    expect(Control::Seccomp, if profile.seccomp { "2" } else { "0" }.into(), status("Seccomp"));
    if profile.seccomp {
        // Ours are two; a host that filters the service itself adds its own. Linux 5.9 began to count.
        let filters = status("Seccomp_filters").parse().unwrap_or(2u32);
        expect(Control::Seccomp, "2 filters".into(), format!("{} filters", filters.min(2)));
    }
    if profile.one_cpu {
        let list = status("Cpus_allowed_list");
        expect(Control::OneCpu, "true".into(), list.parse::<u32>().is_ok().to_string());
    }
    for (control, name, value) in [
        (Control::OpenFiles, "Max open files", profile.open_files),
        (Control::FileSize, "Max file size", profile.file_size),
        (Control::CoreSize, "Max core file size", profile.core_size),
    ] {
        let line = shown.limits.lines().find_map(|l| l.strip_prefix(name)).unwrap_or("absent");
        let found = line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        expect(control, format!("{value} {value}"), found);
    }
    let n = profile.namespaces;
    let owned = [
        ("mnt", true, Control::ReadonlyImage),
        ("pid", n.pid, Control::PidNamespace),
        ("ipc", n.ipc, Control::IpcNamespace),
        ("uts", n.uts, Control::UtsNamespace),
        ("net", n.network, Control::Network),
        ("cgroup", n.cgroup, Control::CgroupNamespace),
    ];
    for (name, own, control) in owned {
        let link = |list: &[(String, String)]| list.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone());
        let same = link(&shown.namespaces) == link(&shown.own_namespaces);
        expect(control, own.to_string(), (!same).to_string());
    }
    for (controllers, path) in groups {
        let wanted = format!("{controllers}:{path}");
        let member = shown.cgroup.lines().any(|l| l.split_once(':').is_some_and(|(_, rest)| rest == wanted));
        let found = if member { wanted.clone() } else { shown.cgroup.trim().replace('\n', " ") };
        expect(limited_by(controllers), wanted, found);
    }
    for (point, read_only, control) in [
        ("/", profile.readonly_image, Control::ReadonlyImage),
        (SOURCE, profile.readonly_source, Control::ReadonlySource),
    ] {
        expect(control, read_only.to_string(), has_option(&shown.mountinfo, point, "ro").to_string());
    }
    // The very image: no other file system has this device number while this one is mounted.
    let id = |root: &Root| format!("root directory {} of device {:#x}", root.inode, root.device);
    expect(Control::ReadonlyImage, id(root), id(&shown.root));
    if root.layers > 1 {
        expect(Control::ReadonlyImage, rootfs::lower(root.layers), lower(&shown.mountinfo));
        let upper = super_options(&shown.mountinfo, "/").split(',').any(|o| o.starts_with("upperdir="));
        expect(Control::ReadonlyImage, rootfs::is_written(profile).to_string(), upper.to_string());
    }
    expect(Control::ReadonlyImage, "nosuid".into(), nosuid(&shown.mountinfo));
    for point in ["/", WORK, SCRATCH] {
        expect(
            Control::Devices,
            profile.deny_devices.to_string(),
            has_option(&shown.mountinfo, point, "nodev").to_string(),
        );
    }
    for (point, size, bytes, inodes) in [
        (WORK, profile.work, Control::WorkBytes, Control::WorkInodes),
        (SCRATCH, profile.scratch, Control::ScratchBytes, Control::ScratchInodes),
    ] {
        let found = super_options(&shown.mountinfo, point);
        let value = |key: &str| {
            found
                .split(',')
                .find_map(|o| o.strip_prefix(key)?.strip_prefix('='))
                .unwrap_or("absent")
                .to_owned()
        };
        expect(bytes, format!("{}k", size.bytes / 1024), value("size"));
        expect(inodes, size.inodes.to_string(), value("nr_inodes"));
    }
    out
}

/// The control that a process outside this hierarchy's group would escape.
fn limited_by(controllers: &str) -> Control {
    let has = |name: &str| controllers.split(',').any(|c| c == name);
    match () {
        () if has("pids") => Control::Pids,
        () if has("devices") => Control::Devices,
        () if has("cpuset") => Control::OneCpu,
        () if has("cpu") || has("cpuacct") => Control::Cpu,
        // v2 has one group for all.
        () => Control::Memory,
    }
}

/// The last mount on a mount point is the one in sight.
fn line_of<'a>(mountinfo: &'a str, point: &str) -> Option<&'a str> {
    mountinfo.lines().rev().find(|l| l.split(' ').nth(4) == Some(point))
}

fn has_option(mountinfo: &str, point: &str, option: &str) -> bool {
    line_of(mountinfo, point)
        .and_then(|l| l.split(' ').nth(5))
        .is_some_and(|options| options.split(',').any(|o| o == option))
}

fn nosuid(mountinfo: &str) -> String {
    if has_option(mountinfo, "/", "nosuid") { "nosuid" } else { "suid" }.to_owned()
}

/// The lower directories of the overlay on `/`. Kernels show each by itself or all together.
fn lower(mountinfo: &str) -> String {
    let is_overlay = line_of(mountinfo, "/")
        .and_then(|l| l.split(" - ").nth(1))
        .is_some_and(|l| l.starts_with("overlay "));
    let values = super_options(mountinfo, "/")
        .split(',')
        .filter_map(|o| o.strip_prefix("lowerdir=").or_else(|| o.strip_prefix("lowerdir+=")));
    if is_overlay { values.collect::<Vec<_>>().join(":") } else { "no overlay".to_owned() }
}

fn super_options<'a>(mountinfo: &'a str, point: &str) -> &'a str {
    line_of(mountinfo, point).and_then(|l| l.rsplit(' ').next()).unwrap_or("")
}

/// Reads and compares in one step.
///
/// # Errors
/// The system's error when the process cannot be read: it is gone.
pub fn effective(
    pid: i32,
    profile: &Profile,
    groups: &Groups,
    root: &Root,
) -> std::io::Result<Vec<Mismatch>> {
    Ok(compare(&Shown::read(pid)?, profile, &groups.membership(), root))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> Shown {
        let links = |n: u32| -> Vec<(String, String)> {
            NAMESPACES.iter().map(|name| ((*name).to_owned(), format!("{name}:[{n}]"))).collect()
        };
        let caps: String =
            ["Inh", "Prm", "Eff", "Bnd", "Amb"].map(|c| format!("Cap{c}:\t{:016x}\n", 0)).concat();
        Shown {
            status: format!(
                "Uid:\t65532\t65532\t65532\t65532\nGid:\t65532\t65532\t65532\t65532\nGroups:\t \n{caps}\
                 NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\nCpus_allowed_list:\t1\n"
            ),
            limits: "Max open files   64   64   files\nMax file size   1048576   1048576   bytes\n\
                     Max core file size   0   0   bytes\n"
                .into(),
            mountinfo: "1 0 0:1 / / ro,nosuid,nodev,relatime - overlay overlay ro,lowerdir=0:1:2,xino=off\n2 1 0:1 / /source ro,nosuid,nodev - ext4 a rw\n\
                        3 1 0:2 / /work rw,nosuid,nodev - tmpfs tmpfs rw,size=32768k,nr_inodes=4096,uid=65532\n\
                        4 1 0:3 / /tmp rw,nosuid,nodev - tmpfs tmpfs rw,size=16384k,nr_inodes=1024,uid=65532\n"
                .into(),
            cgroup: "4:memory:/sal-x\n3:pids:/sal-x\n".into(),
            namespaces: links(1),
            own_namespaces: links(2),
            root: Root { layers: 0, ..root() },
        }
    }

    fn root() -> Root {
        Root { device: 0x2a, inode: 2, layers: 3 }
    }

    fn groups() -> Vec<(String, String)> {
        ["memory", "pids"].map(|c| (c.to_owned(), "/sal-x".to_owned())).to_vec()
    }

    #[test]
    fn prf4_the_profile_itself_has_no_mismatch() {
        assert_eq!(compare(&shown(), &Profile::fixed(), &groups(), &root()), Vec::new());
    }

    #[test]
    fn prf4_each_deviation_is_named() {
        type Change = (Control, fn(&mut Shown));
        let changes: [Change; 18] = [
            (Control::Identity, |s| s.status = s.status.replace("Groups:\t ", "Groups:\t0")),
            (Control::Capabilities, |s| {
                s.status = s.status.replace("CapAmb:\t0000000000000000", "CapAmb:\t0000000000002000")
            }),
            (Control::NoNewPrivileges, |s| s.status = s.status.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0")),
            (Control::Seccomp, |s| s.status = s.status.replace("filters:\t2", "filters:\t1")),
            (Control::OneCpu, |s| s.status = s.status.replace("list:\t1", "list:\t0-1")),
            (Control::OpenFiles, |s| s.limits = s.limits.replace("64   64", "64   1024")),
            (Control::ReadonlySource, |s| s.mountinfo = s.mountinfo.replace("/source ro", "/source rw")),
            (Control::WorkInodes, |s| s.mountinfo = s.mountinfo.replace("nr_inodes=4096", "nr_inodes=4097")),
            (Control::ScratchBytes, |s| s.mountinfo = s.mountinfo.replace("16384k", "16388k")),
            (Control::Pids, |s| s.cgroup = s.cgroup.replace("pids:/sal-x", "pids:/")),
            (Control::ReadonlyImage, |s| s.root.device += 1),
            (Control::ReadonlyImage, |s| s.root.inode += 1),
            (Control::ReadonlyImage, |s| s.mountinfo = s.mountinfo.replace("=0:1:2", "=0:1")),
            (Control::ReadonlyImage, |s| s.mountinfo = s.mountinfo.replace("overlay overlay", "ext4 a")),
            (Control::ReadonlyImage, |s| {
                s.mountinfo = s.mountinfo.replace("ro,lower", "rw,upperdir=u,lower")
            }),
            (Control::ReadonlyImage, |s| s.mountinfo = s.mountinfo.replace("/ / ro,nosuid", "/ / ro")),
            (Control::Devices, |s| s.mountinfo = s.mountinfo.replace("nodev,relatime", "relatime")),
            (Control::Network, |s| s.own_namespaces = s.namespaces.clone()),
        ];
        for (control, change) in changes {
            let mut shown = shown();
            change(&mut shown);
            let found = compare(&shown, &Profile::fixed(), &groups(), &root());
            assert!(found.iter().any(|m| m.control == control), "{control:?}: {found:?}");
        }
    }
}
