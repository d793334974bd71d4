//! Renders a job into the OCI runtime spec: pure, one place (design rule 5).
//!
//! What libcontainer would do too late, too early or not at all is left out here on purpose and done
//! by the supervisor: resource limits and the view of them (its own cgroups), rlimits (they would break
//! the copy into `/work`), seccomp (silently ignored without libseccomp), supplementary groups, `lo`.

use crate::domain::job::Entry;
use crate::domain::job::Job;
use crate::domain::profile::{MASKED, PROBE, Profile, READONLY, SCRATCH, SOURCE, Tmpfs, WORK};
use oci_spec::runtime::Spec;
use serde_json::{Value, json};
use std::path::Path;

/// The shell line's argument vector, or the probe's.
pub fn argv(entry: &Entry) -> Vec<String> {
    match entry {
        Entry::Command { text, .. } => vec!["/bin/sh".into(), "-c".into(), text.clone()],
        Entry::Probe { args } => {
            let mut argv = vec![PROBE.to_owned(), "probe".to_owned()];
            argv.extend(args.iter().cloned());
            argv
        }
    }
}

/// Builds the runtime spec of a job (OCI runtime specification 1.0.2, `config.md`). `rootfs` is where its
/// root file system is mounted.
///
/// # Errors
/// When the JSON form does not fit the `oci-spec` types: a defect of this function.
pub fn spec(job: &Job, rootfs: &Path) -> Result<Spec, serde_json::Error> {
    let p = &job.profile;
    let mut linux = json!({
        "namespaces": namespaces(p),
        "rootfsPropagation": "private",
    });
    if p.masked_paths {
        linux["maskedPaths"] = json!(MASKED);
        linux["readonlyPaths"] = json!(READONLY);
    }
    if p.namespaces.network {
        // As dockerd does: an unprivileged test server may listen on port 80.
        linux["sysctl"] = json!({ "net.ipv4.ip_unprivileged_port_start": "0" });
    }
    let caps = &p.capabilities;
    let mut spec = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": p.uid, "gid": p.uid, "umask": 0o022, "additionalGids": p.extra_groups },
            "args": argv(&job.entry),
            "env": p.environment.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>(),
            "cwd": WORK,
            // Inheritable and ambient sets are given outright: left out, they keep the caller's.
            "capabilities": {
                "bounding": caps, "effective": caps, "permitted": caps,
                "inheritable": caps, "ambient": caps,
            },
        },
        "root": { "path": rootfs, "readonly": p.readonly_image },
        "mounts": mounts(job),
        "linux": linux,
    });
    // Without no_new_privs libcontainer takes any value, even false, for "set it".
    if p.no_new_privileges {
        spec["process"]["noNewPrivileges"] = json!(true);
    }
    if p.namespaces.uts {
        spec["hostname"] = json!("salaam");
    }
    serde_json::from_value(spec)
}

fn namespaces(p: &Profile) -> Value {
    let n = p.namespaces;
    let wanted =
        [("pid", n.pid), ("ipc", n.ipc), ("uts", n.uts), ("network", n.network), ("cgroup", n.cgroup)];
    let mut list = vec![json!({ "type": "mount" })];
    list.extend(wanted.iter().filter(|(_, own)| *own).map(|(name, _)| json!({ "type": name })));
    Value::Array(list)
}

fn mounts(job: &Job) -> Vec<Value> {
    let p = &job.profile;
    let nodev = if p.deny_devices { "nodev" } else { "dev" };
    let mut out = vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        // The supervisor attaches the container's own cgroup below it, so that Node sees its limits.
        mount("/sys/fs/cgroup", "tmpfs", "tmpfs", &["nosuid", "nodev", "noexec", "mode=755", "size=4k"]),
    ];
    if p.deny_devices {
        out.push(mount(
            "/dev",
            "tmpfs",
            "tmpfs",
            &["nosuid", "noexec", "strictatime", "mode=755", "size=64k"],
        ));
    }
    for name in ["passwd", "group", "hosts", "hostname", "resolv.conf"] {
        out.push(bind(
            &job.bundle.etc.join(name),
            &format!("/etc/{name}"),
            &["ro", "nosuid", "nodev", "noexec"],
        ));
    }
    let source: &[&str] = if p.readonly_source { &["ro", "nosuid", nodev] } else { &["nosuid", nodev] };
    out.push(bind(&job.source, SOURCE, source));
    out.push(tmpfs(WORK, p.work, p.uid, nodev));
    out.push(tmpfs(SCRATCH, p.scratch, p.uid, nodev));
    if matches!(job.entry, Entry::Probe { .. }) {
        out.push(bind(&job.probe, PROBE, &["ro", "nosuid", "nodev"]));
    }
    out
}

fn mount(destination: &str, kind: &str, source: &str, options: &[&str]) -> Value {
    json!({ "destination": destination, "type": kind, "source": source, "options": options })
}

fn bind(source: &Path, destination: &str, options: &[&str]) -> Value {
    let mut all = vec!["bind"];
    all.extend(options);
    json!({ "destination": destination, "type": "bind", "source": source, "options": all })
}

fn tmpfs(destination: &str, size: Tmpfs, uid: u32, nodev: &str) -> Value {
    let options = [
        "nosuid".to_owned(),
        nodev.to_owned(),
        "mode=0755".to_owned(),
        format!("size={}", size.bytes),
        format!("nr_inodes={}", size.inodes),
        format!("uid={uid}"),
        format!("gid={uid}"),
    ];
    json!({ "destination": destination, "type": "tmpfs", "source": "tmpfs", "options": options })
}
