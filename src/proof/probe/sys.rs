//! The probe's unsafe code: raw calls that a filter must stop, and a forked child.
#![allow(unsafe_code)]

use nix::libc::{self, c_long};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// Makes a raw system call with up to five arguments; answers 0 or the errno. A descriptor that it
/// may return is left to the end of the process.
pub fn call(number: c_long, args: [c_long; 5]) -> i32 {
    // SAFETY: every call made here passes null or invalid pointers only, which the kernel refuses.
    let result = unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4]) };
    if result < 0 { nix::errno::Errno::last_raw() } else { 0 }
}

/// Runs `work` in a child; answers how it ended. `None` when fork failed, with its errno.
///
/// # Errors
/// The errno of fork(2).
pub fn in_child(work: impl FnOnce()) -> nix::Result<WaitStatus> {
    // SAFETY: the probe is single-threaded.
    match unsafe { fork() }? {
        ForkResult::Child => {
            work();
            std::process::exit(0);
        }
        ForkResult::Parent { child } => waitpid(child, None),
    }
}

/// Forks a child that waits for a signal; answers its id.
///
/// # Errors
/// The errno of fork(2).
pub fn sleeper() -> nix::Result<nix::unistd::Pid> {
    // SAFETY: the probe is single-threaded.
    match unsafe { fork() }? {
        ForkResult::Child => {
            nix::unistd::pause();
            std::process::exit(0);
        }
        ForkResult::Parent { child } => Ok(child),
    }
}

/// Calls getpid through the i386 entry (int 0x80).
#[cfg(target_arch = "x86_64")]
pub fn i386_getpid() {
    // SAFETY: getpid touches no memory; rbx is not named because the compiler keeps it.
    unsafe { std::arch::asm!("int 0x80", inlateout("eax") 20 => _, options(nostack)) };
}

/// There is no such entry on other architectures.
#[cfg(not(target_arch = "x86_64"))]
pub fn i386_getpid() {
    let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSYS);
}

/// A word shared between the probe and its children.
pub struct SharedWord(std::ptr::NonNull<std::sync::atomic::AtomicU64>);

impl SharedWord {
    /// Maps one shared page.
    ///
    /// # Errors
    /// The errno of mmap(2).
    pub fn map() -> nix::Result<Self> {
        use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
        let size = std::num::NonZeroUsize::MIN;
        // SAFETY: a fresh anonymous mapping, never unmapped; the kernel zeroes and aligns it.
        let at = unsafe {
            mmap_anonymous(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED)?
        };
        Ok(Self(at.cast()))
    }

    /// The word.
    pub fn get(&self) -> &std::sync::atomic::AtomicU64 {
        // SAFETY: the mapping lives as long as the process and is only used as this atomic.
        unsafe { self.0.as_ref() }
    }
}

/// Ignores SIGXFSZ, so that a write past the limit answers EFBIG.
pub fn ignore_file_size_signal() {
    use nix::sys::signal::{SigHandler, Signal, signal};
    // SAFETY: ignoring a signal runs no code of ours.
    let _ = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
}
