//! The only unsafe code of the supervisor: each function is one system call or a few, with the
//! reason why it is sound. Everything above it is safe Rust.
#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::ForkResult;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Forks a process that has one thread only, which is what makes the child free to do anything.
///
/// # Errors
/// The errno of fork(2).
pub fn fork() -> Result<ForkResult, Errno> {
    // SAFETY: the supervisor and the container's init never start a thread.
    unsafe { nix::unistd::fork() }
}

/// Sets every signal to its default action and unblocks all: Rust parents ignore SIGPIPE, and an
/// ignored signal stays ignored across execve(2).
pub fn reset_signals() {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in Signal::iterator() {
        // SAFETY: installing the default action runs no code of ours.
        // SIGKILL and SIGSTOP answer EINVAL, which is right.
        let _ = unsafe { sigaction(signal, &default) };
    }
    let _ = SigSet::all().thread_unblock();
}

/// Marks every descriptor from 3 up close-on-exec (close_range(2)).
///
/// # Errors
/// The errno.
pub fn cloexec_from_3() -> Result<(), Errno> {
    // SAFETY: integers only; marking descriptors touches no memory.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Errno::result(done).map(drop)
}

/// Closes a descriptor number that this process inherited and that no Rust value owns.
pub fn close_inherited(fd: RawFd) {
    // SAFETY: called in a forked child, on a number whose owner lives in the parent's copy only.
    unsafe { libc::close(fd) };
}

/// Borrows a descriptor that stays open for the rest of this process's life.
pub fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: callers pass descriptors that are leaked on purpose across fork.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Brings the loopback interface of the current network namespace up (netdevice(7), SIOCSIFFLAGS).
///
/// # Errors
/// The errno.
pub fn loopback_up() -> Result<(), Errno> {
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: `request` is a zeroed ifreq with a NUL-terminated name; the ioctls read and write it only.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        Errno::result(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request))?;
        request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
        Errno::result(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request)).map(drop)
    }
}

/// Takes ownership of a descriptor that a call has just returned as a number.
pub fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: callers pass a number that no other value owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Starts a session of its own, so that no terminal or group signal of the service arrives.
pub fn new_session() {
    let _ = nix::unistd::setsid();
}

/// Gives back the code pages of our own executable that are mapped so far; those that are still needed
/// come back from the page cache at their next use (madvise(2), MADV_DONTNEED).
pub fn release_code_pages() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for line in maps.lines().filter(|l| l.contains(" r-xp ") && l.contains('/')) {
        let Some((from, to)) = line.split_once(' ').and_then(|(range, _)| range.split_once('-')) else {
            continue;
        };
        let ends = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16));
        if let (Ok(from), Ok(to)) = ends {
            // SAFETY: the range is a private mapping of code, which is never written, so it holds nothing
            // but the file's content, and a file that is being executed cannot be changed (ETXTBSY).
            // Data, even read-only, may have been relocated and is left alone.
            unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_DONTNEED) };
        }
    }
}
