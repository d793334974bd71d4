//! Looks at identity, filters, mounts, devices, namespaces and the network from inside.

use super::sys;
use crate::domain::profile::{MASKED, SCRATCH, SOURCE, WORK};
use crate::proof::NONCE_FILE;
use crate::proof::observation::Observation;
use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::sys::wait::WaitStatus;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

pub fn observe(seen: &mut Observation) {
    seen.descriptors = descriptors();
    identity(seen);
    calls(seen);
    mounts(seen);
    devices(seen);
    network(seen);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    seen.cgroup = if groups.contains(":memory:") { "v1" } else { "v2" }.to_owned();
    for name in ["pid", "ipc", "uts", "net", "cgroup", "mnt"] {
        if let Ok(link) = fs::read_link(format!("/proc/self/ns/{name}")) {
            seen.namespaces.insert(name.to_owned(), link.to_string_lossy().into_owned());
        }
    }
}

fn errno(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(-1)
}

fn descriptors() -> Vec<i32> {
    let listed = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let mut open: Vec<i32> = listed.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    // The one that lists them is closed by now.
    open.retain(|fd| Path::new(&format!("/proc/self/fd/{fd}")).symlink_metadata().is_ok());
    open.sort_unstable();
    open
}

fn identity(seen: &mut Observation) {
    for line in fs::read_to_string("/proc/self/status").unwrap_or_default().lines() {
        if let Some((key, value)) = line.split_once(':') {
            let folded = value.split_whitespace().collect::<Vec<_>>().join(" ");
            seen.status.insert(key.to_owned(), folded);
        }
    }
    let environment = fs::read("/proc/self/environ").unwrap_or_default();
    let entries = environment.split(|b| *b == 0).filter(|e| !e.is_empty());
    seen.environment = entries.map(|e| String::from_utf8_lossy(e).into_owned()).collect();
    seen.pid = std::process::id() as i32;
    seen.parent = nix::unistd::getppid().as_raw();
    seen.init_exe = File::open("/proc/1/exe").map_or_else(|e| errno(&e), |_| 0);
}

/// Calls whose errno differs with and without the filter: without it these arguments answer EFAULT,
/// EINVAL, EBADF, ESRCH or success.
fn calls(seen: &mut Observation) {
    let mut record = |name: &str, errno: i32| {
        seen.calls.insert(name.to_owned(), errno);
    };
    let raw = [
        ("keyctl", libc::SYS_keyctl, [-1, 0, 0, 0, 0]),
        ("add_key", libc::SYS_add_key, [0; 5]),
        ("userfaultfd", libc::SYS_userfaultfd, [-1, 0, 0, 0, 0]),
        ("perf_event_open", libc::SYS_perf_event_open, [0, 0, -1, -1, 0]),
        ("process_vm_readv", libc::SYS_process_vm_readv, [0x7fff_ffff, 0, 0, 0, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, [0; 5]),
        ("bpf", libc::SYS_bpf, [-1, 0, 0, 0, 0]),
        ("setns", libc::SYS_setns, [-1, 0, 0, 0, 0]),
        ("unshare", libc::SYS_unshare, [0; 5]),
        ("clone_newns", libc::SYS_clone, [0x0002_0000 | 0x0000_0200, 0, 0, 0, 0]),
        ("ioctl_tiocsti", libc::SYS_ioctl, [0, 0x5412, 0, 0, 0]),
        ("ioctl_tioclinux", libc::SYS_ioctl, [0, 0x541C, 0, 0, 0]),
        ("mount", libc::SYS_mount, [0; 5]),
        ("fsconfig", libc::SYS_fsconfig, [-1, 0, 0, 0, 0]),
        ("process_vm_writev", libc::SYS_process_vm_writev, [0x7fff_ffff, 0, 0, 0, 0]),
        ("x32_getpid", 0x4000_0000 + libc::SYS_getpid, [0; 5]),
        ("socketpair_vsock", libc::SYS_socketpair, [40, 1, 0, 0, 0]),
        ("personality", libc::SYS_personality, [0x0040_0000, 0, 0, 0, 0]),
        ("clone3", libc::SYS_clone3, [0; 5]),
    ];
    for (name, number, args) in raw {
        record(name, sys::call(number, args));
    }
    for family in 0..46 {
        record(&format!("socket_{family}"), sys::call(libc::SYS_socket, [family, 1, 0, 0, 0]));
    }
    seen.i386_abi = match sys::in_child(sys::i386_getpid) {
        Ok(WaitStatus::Signaled(_, Signal::SIGSYS, _)) => "killed".to_owned(),
        other => format!("{other:?}"),
    };
}

fn mounts(seen: &mut Observation) {
    let read_only = |path: &str| statvfs(path).is_ok_and(|s| s.flags().contains(FsFlags::ST_RDONLY));
    seen.image_read_only = read_only("/");
    seen.source_read_only = read_only(SOURCE);
    seen.proc_sys_read_only = read_only("/proc/sys");
    seen.source_nonce = fs::read_to_string(Path::new(SOURCE).join(NONCE_FILE)).unwrap_or_default();
    seen.work_nonce = fs::read_to_string(Path::new(WORK).join(NONCE_FILE)).unwrap_or_default();
    let trial = Path::new(WORK).join(".salaam-probe");
    seen.work_writable = File::create(&trial).is_ok() && fs::remove_file(&trial).is_ok();
    let size = |path: &str| statvfs(path).map_or((0, 0), |s| (s.blocks() * s.fragment_size(), s.files()));
    seen.work = size(WORK);
    seen.scratch = size(SCRATCH);
    for line in fs::read_to_string("/proc/self/mountinfo").unwrap_or_default().lines() {
        let Some(point) = line.split(' ').nth(4).filter(|p| *p != WORK && *p != SCRATCH) else { continue };
        if can_write(Path::new(point)) {
            seen.writable.push(point.to_owned());
        }
    }
    for path in MASKED {
        let open = match fs::metadata(path) {
            Err(_) => false,
            Ok(meta) if meta.is_dir() => fs::read_dir(path).is_ok_and(|mut d| d.next().is_some()),
            Ok(meta) => !meta.file_type().is_char_device(),
        };
        if open {
            seen.unmasked.push(path.to_owned());
        }
    }
}

fn can_write(point: &Path) -> bool {
    if point.is_dir() {
        let trial = point.join(".salaam-probe");
        let made = File::options().write(true).create_new(true).open(&trial).is_ok();
        if made {
            let _ = fs::remove_file(&trial);
        }
        made
    } else {
        // The null device over a masked file may be opened; it keeps nothing.
        let null = fs::metadata(point).is_ok_and(|m| m.file_type().is_char_device());
        !null && File::options().append(true).open(point).is_ok()
    }
}

fn devices(seen: &mut Observation) {
    for entry in fs::read_dir("/dev").into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_char_device() || t.is_block_device()) {
            seen.devices.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    seen.devices.sort();
    for path in [SOURCE, WORK, SCRATCH] {
        if !statvfs(path).is_ok_and(|s| s.flags().contains(FsFlags::ST_NODEV)) {
            seen.dev_mounts.push(path.to_owned());
        }
    }
}

fn network(seen: &mut Observation) {
    let table = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    seen.interfaces = table.lines().filter_map(|l| Some(l.split_once(':')?.0.trim().to_owned())).collect();
    let patience = Duration::from_secs(2);
    seen.loopback = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| TcpStream::connect_timeout(&listener.local_addr()?, patience))
        .is_ok();
    // Only where nothing can leave: an address reserved for documentation (RFC 5737).
    if seen.interfaces == ["lo"] {
        let address = SocketAddr::from(([192, 0, 2, 1], 9));
        seen.outside = Some(TcpStream::connect_timeout(&address, patience).map_or_else(|e| errno(&e), |_| 0));
    }
}
