//! Pushes each resource limit until the kernel stops it, a little further than the profile allows.

use super::sys;
use crate::domain::profile::{Profile, SCRATCH};
use crate::proof::observation::Observation;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Wall time of the busy loop: four periods of the quota.
const BURN: Duration = Duration::from_millis(400);
const MIB: usize = 1 << 20;

pub fn observe(seen: &mut Observation, profile: &Profile) {
    seen.cpu = cpu();
    seen.open_files = open_files(profile.open_files * 2);
    seen.file_size = file_size(profile.file_size * 2);
    seen.processes = processes(profile.pids * 2);
    seen.core_size = getrlimit(Resource::RLIMIT_CORE).map_or(u64::MAX, |(_, hard)| hard);
    seen.memory = memory(profile.memory_bytes + profile.memory_bytes / 4);
    if let Ok(mask) = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)) {
        let set = |n: &usize| mask.is_set(*n).unwrap_or(false);
        seen.cpus = (0..nix::sched::CpuSet::count()).filter(set).count() as u32;
    }
}

fn cpu_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .map_or(Duration::ZERO, Duration::from)
}

fn cpu() -> (u64, u64) {
    let (wall, used) = (Instant::now(), cpu_time());
    while wall.elapsed() < BURN {
        std::hint::black_box((0..10_000u64).fold(0, u64::wrapping_add));
    }
    (wall.elapsed().as_millis() as u64, (cpu_time() - used).as_millis() as u64)
}

fn open_files(most: u64) -> u64 {
    // Less the one that lists them.
    let before = std::fs::read_dir("/proc/self/fd").map_or(1, Iterator::count).saturating_sub(1) as u64;
    let mut held = Vec::new();
    while (held.len() as u64) < most {
        match File::open("/dev/null") {
            Ok(file) => held.push(file),
            Err(_) => break,
        }
    }
    held.len() as u64 + before
}

fn file_size(most: u64) -> (u64, i32) {
    sys::ignore_file_size_signal();
    let path = format!("{SCRATCH}/.salaam-probe-size");
    let Ok(mut file) = File::create(&path) else { return (0, -1) };
    let chunk = [0u8; 65_536];
    let (mut size, mut errno) = (0, 0);
    while size < most {
        match file.write(&chunk) {
            Ok(n) => size += n as u64,
            Err(e) => {
                errno = e.raw_os_error().unwrap_or(-1);
                break;
            }
        }
    }
    let _ = std::fs::remove_file(path);
    (size, errno)
}

fn processes(most: u32) -> u32 {
    let mut children = Vec::new();
    while (children.len() as u32) < most {
        match sys::sleeper() {
            Ok(child) => children.push(child),
            Err(_) => break,
        }
    }
    // Process 1 and the probe.
    let total = children.len() as u32 + 2;
    for child in children {
        let _ = kill(child, Signal::SIGKILL);
        let _ = waitpid(child, None);
    }
    total
}

/// A child touches memory a mebibyte at a time and tells how far it came.
fn memory(most: u64) -> (u64, bool) {
    let Ok(reached) = sys::SharedWord::map() else { return (0, false) };
    let ended = sys::in_child(|| {
        let mut held: Vec<Vec<u8>> = Vec::new();
        while (held.len() * MIB) as u64 <= most {
            held.push(vec![1u8; MIB]);
            reached.get().store((held.len() * MIB) as u64, Ordering::SeqCst);
        }
    });
    let killed = matches!(ended, Ok(WaitStatus::Signaled(_, Signal::SIGKILL, _)));
    (reached.get().load(Ordering::SeqCst), killed)
}
