//! Points at which a fault can be injected, one before and one after each boundary that a crash must
//! not blur (the crash matrix of `tests/faults`).
//!
//! Without the feature `failpoints`, which no shipped build has, a point is nothing.

use std::io;

/// On which side of its boundary a point lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Nothing has happened yet.
    Before,
    /// It has happened; nobody was told.
    After,
}

/// Passes a point; `subject` names what it is passed for, such as a run.
///
/// # Errors
/// The injected one; none without the feature.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn reach(_boundary: &str, _side: Side, _subject: &str) -> io::Result<()> {
    Ok(())
}

/// What a child process needs to have the same faults; nothing without the feature.
#[cfg(not(feature = "failpoints"))]
pub fn environment() -> [(&'static str, String); 0] {
    []
}

#[cfg(feature = "failpoints")]
pub use injected::{arm, environment, reach};

#[cfg(feature = "failpoints")]
mod injected {
    use crate::fault::{Side, io};
    use std::fs::File;
    use std::io::Write as _;

    /// Which points fail and how, in the syntax of the crate `fail`.
    const POINTS: &str = "FAILPOINTS";
    /// File that gets a line for each point that is passed, and one for each fault.
    const TRACE: &str = "SAL_FAULT_TRACE";

    /// Reads the faults of this process from its environment; called once, before anything else.
    pub fn arm() {
        // Kept for the whole life of the process: dropping it would disarm the points.
        std::mem::forget(fail::FailScenario::setup());
    }

    /// What a child process needs to have the same faults.
    pub fn environment() -> Vec<(&'static str, String)> {
        [POINTS, TRACE].into_iter().filter_map(|name| Some((name, std::env::var(name).ok()?))).collect()
    }

    /// Passes a point; `subject` names what it is passed for, such as a run.
    ///
    /// # Errors
    /// `return(EIO)`, `return(ENOSPC)`, `return(EBUSY)` and `return(EROFS)` answer that error;
    /// `return(kill)` ends the process as SIGKILL does, `return(kill_both)` its parent with it.
    pub fn reach(boundary: &str, side: Side, subject: &str) -> io::Result<()> {
        let point = format!("{boundary}.{}", if side == Side::Before { "before" } else { "after" });
        note("passed", &point, subject);
        fail::fail_point!(point.as_str(), |action| strike(&point, subject, action.as_deref()));
        Ok(())
    }

    fn strike(point: &str, subject: &str, action: Option<&str>) -> io::Result<()> {
        use nix::errno::Errno;
        use nix::unistd::{Pid, getppid};
        note("struck", point, subject);
        match action {
            Some(how @ ("kill" | "kill_both")) => {
                if how == "kill_both" && getppid() != Pid::from_raw(1) {
                    let _ = nix::sys::signal::kill(getppid(), nix::sys::signal::Signal::SIGKILL);
                }
                let _ = nix::sys::signal::kill(Pid::this(), nix::sys::signal::Signal::SIGKILL);
                // The signal is on its way; nothing more may happen here.
                loop {
                    std::thread::park();
                }
            }
            Some("ENOSPC") => Err(Errno::ENOSPC.into()),
            Some("EBUSY") => Err(Errno::EBUSY.into()),
            Some("EROFS") => Err(Errno::EROFS.into()),
            _ => Err(Errno::EIO.into()),
        }
    }

    fn note(what: &str, point: &str, subject: &str) {
        let Ok(path) = std::env::var(TRACE) else { return };
        let line = format!("{what} {point} {subject} {}\n", std::process::id());
        // One write(2) a line, so that lines of several processes do not mix.
        let written = File::options()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|mut f| f.write_all(line.as_bytes()));
        if let Err(error) = written {
            tracing::error!(%error, "the fault trace");
        }
    }
}
