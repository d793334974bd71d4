//! How a run ended and why: kernel evidence in, one cause out (CMD.10).

use super::digest::Digest;
use serde::{Deserialize, Serialize};

/// How the main process ended, as its parent saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// `_exit` with this status, 0–255.
    Exited(u8),
    /// Killed by this signal.
    Signalled(u8),
    /// Nobody saw it.
    Unknown,
}

/// Why the supervisor ended the container itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forced {
    /// The wall-clock deadline passed.
    Deadline,
    /// A cancel was ordered.
    Cancel,
}

/// Space left in a tmpfs when the main process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceLeft {
    /// Free bytes.
    pub bytes: u64,
    /// Free inodes.
    pub inodes: u64,
}

/// What the kernel tells about a container, read after the main process ended and before removal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Set when the supervisor killed the container.
    pub forced: Option<Forced>,
    /// Processes killed for want of memory (memory.events `oom_kill`, v1 memory.oom_control).
    pub oom_kills: u64,
    /// Forks refused by the process limit (pids.events `max`).
    pub pids_limit_hits: u64,
    /// Space left in `/work`; `None` when it could not be read.
    pub work: Option<SpaceLeft>,
    /// Space left in `/tmp`.
    pub scratch: Option<SpaceLeft>,
    /// A file in `/work` or `/tmp` has exactly the largest size.
    pub file_at_limit: bool,
    /// Peak memory, in bytes.
    pub memory_peak: Option<u64>,
    /// Peak number of processes and threads.
    pub pids_peak: Option<u64>,
    /// CPU time used, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Time spent throttled by the quota, in milliseconds.
    pub throttled_ms: Option<u64>,
    /// Output bytes kept.
    pub stored_bytes: u64,
    /// Output bytes written by the command.
    pub total_bytes: u64,
    /// Digest of the bytes kept, as they were written; `None` when nothing was watched.
    #[serde(default)]
    pub output: Option<Digest>,
    /// errno of a failed execve: the command shell could not be started.
    pub exec_errno: Option<i32>,
}

/// The named cause of an outcome; names are part of the JSON contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It ended by itself.
    Exited,
    /// A signal ended it.
    Signalled,
    /// The wall-clock deadline passed.
    Deadline,
    /// It was cancelled.
    Cancelled,
    /// The main process was killed for want of memory.
    Oom,
    /// A fork was refused by the process limit.
    PidsLimit,
    /// A file reached the largest size.
    FileSizeLimit,
    /// `/work` or `/tmp` was full.
    WorkFull,
    /// A stored output prefix changed.
    OutputChanged,
    /// The backend was lost.
    BackendLost,
    /// The container could not be started as the profile demands.
    StartFailed,
    /// The truth is unknowable.
    Interrupted,
}

/// The final word on a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The exit status, 128+n when signalled; `None` only if unknown.
    pub exit_code: Option<u8>,
    /// The signal that ended the main process.
    pub signal: Option<u8>,
    /// Why it ended.
    pub cause: Cause,
    /// One sentence for a person; empty when the cause says it all.
    pub detail: String,
    /// Processes killed for want of memory.
    pub oom_kills: u64,
    /// Forks refused by the process limit.
    pub pids_limit_hits: u64,
}

const SIGKILL: u8 = 9;
const SIGXFSZ: u8 = 25;
/// Less than a page left means that a write must have failed.
const FULL_BYTES: u64 = 4096;

/// Judges how a run ended.
///
/// Precedence (CMD.10): cancelled, deadline, then why the main process ended. `oom` only if the main
/// process itself was killed by SIGKILL while the kernel counted an OOM kill and the supervisor did not
/// kill it (a SIGKILL by one of its own processes cannot be told apart); the limits only with a
/// non-zero exit and evidence. Interrupted and start_failed are made by [`Outcome::interrupted`] and
/// [`Outcome::start_failed`], where there is no ending to judge.
pub fn judge(ending: Ending, evidence: &Evidence, file_size: u64) -> Outcome {
    let (exit_code, signal) = match ending {
        Ending::Exited(code) => (Some(code), None),
        Ending::Signalled(n) => (Some(128u8.saturating_add(n)), Some(n)),
        Ending::Unknown => (None, None),
    };
    let (cause, detail) = cause_of(ending, evidence, file_size);
    Outcome {
        exit_code,
        signal,
        cause,
        detail,
        oom_kills: evidence.oom_kills,
        pids_limit_hits: evidence.pids_limit_hits,
    }
}

fn cause_of(ending: Ending, e: &Evidence, file_size: u64) -> (Cause, String) {
    match e.forced {
        Some(Forced::Cancel) => return (Cause::Cancelled, String::new()),
        Some(Forced::Deadline) => return (Cause::Deadline, "the wall-clock deadline passed".into()),
        None => {}
    }
    if ending == Ending::Exited(0) {
        return (Cause::Exited, String::new());
    }
    if ending == Ending::Signalled(SIGKILL) && e.oom_kills > 0 {
        return (Cause::Oom, "the main process was killed for want of memory".into());
    }
    if let Some(errno) = e.exec_errno {
        return (Cause::Exited, format!("the image's /bin/sh could not be executed (errno {errno})"));
    }
    if e.pids_limit_hits > 0 {
        return (Cause::PidsLimit, format!("{} forks were refused by the process limit", e.pids_limit_hits));
    }
    for (place, space) in [("/work", e.work), ("/tmp", e.scratch)] {
        if let Some(space) = space {
            let full = if space.bytes < FULL_BYTES {
                "bytes"
            } else if space.inodes == 0 {
                "inodes"
            } else {
                continue;
            };
            return (Cause::WorkFull, format!("{place} has no {full} left"));
        }
    }
    // A shell reports a child's SIGXFSZ as 128+25.
    if matches!(ending, Ending::Signalled(SIGXFSZ) | Ending::Exited(153)) {
        return (Cause::FileSizeLimit, format!("a file reached {file_size} bytes, the largest allowed"));
    }
    if e.file_at_limit {
        return (
            Cause::FileSizeLimit,
            format!("inferred: a file has exactly {file_size} bytes, the largest allowed"),
        );
    }
    match ending {
        Ending::Exited(_) => (Cause::Exited, String::new()),
        Ending::Signalled(n) => (Cause::Signalled, format!("signal {n}")),
        Ending::Unknown => (Cause::Interrupted, "the exit status was not observed".into()),
    }
}

impl Outcome {
    /// The outcome of a container that never ran its command.
    pub fn start_failed(detail: impl Into<String>) -> Self {
        Self::without_exit(Cause::StartFailed, detail)
    }

    /// The outcome of a run whose truth is unknowable.
    pub fn interrupted(detail: impl Into<String>) -> Self {
        Self::without_exit(Cause::Interrupted, detail)
    }

    /// The outcome of a run that was cancelled before its command ran.
    pub fn cancelled_before_start() -> Self {
        Self::without_exit(Cause::Cancelled, "cancelled before the command started")
    }

    fn without_exit(cause: Cause, detail: impl Into<String>) -> Self {
        Self { exit_code: None, signal: None, cause, detail: detail.into(), oom_kills: 0, pids_limit_hits: 0 }
    }

    /// The exit code of `sal commands start --wait`: the command's own, 137 for deadline, cancelled
    /// and oom, 125 where there is none or the run failed as such (docker and podman use the same).
    pub fn process_exit_code(&self) -> u8 {
        match (self.cause, self.exit_code) {
            (Cause::Deadline | Cause::Cancelled | Cause::Oom, _) => 137,
            (Cause::Interrupted | Cause::StartFailed | Cause::OutputChanged | Cause::BackendLost, _)
            | (_, None) => 125,
            (_, Some(code)) => code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(ending: Ending, change: impl FnOnce(&mut Evidence)) -> Cause {
        let mut e = Evidence {
            work: Some(SpaceLeft { bytes: 1 << 20, inodes: 100 }),
            scratch: Some(SpaceLeft { bytes: 1 << 20, inodes: 100 }),
            ..Evidence::default()
        };
        change(&mut e);
        judge(ending, &e, 1 << 20).cause
    }

    #[test]
    fn cmd10_a_bare_137_is_never_an_oom() {
        assert_eq!(cause(Ending::Exited(137), |e| e.oom_kills = 1), Cause::Exited);
        assert_eq!(cause(Ending::Signalled(9), |_| {}), Cause::Signalled);
        assert_eq!(cause(Ending::Signalled(9), |e| e.oom_kills = 1), Cause::Oom);
    }

    #[test]
    fn cmd10_limits_need_a_failure_and_evidence() {
        assert_eq!(cause(Ending::Exited(0), |e| e.pids_limit_hits = 9), Cause::Exited);
        assert_eq!(cause(Ending::Exited(1), |e| e.pids_limit_hits = 9), Cause::PidsLimit);
        assert_eq!(
            cause(Ending::Exited(1), |e| e.work = Some(SpaceLeft { bytes: 0, inodes: 5 })),
            Cause::WorkFull
        );
        assert_eq!(
            cause(Ending::Exited(1), |e| e.scratch = Some(SpaceLeft { bytes: 9999, inodes: 0 })),
            Cause::WorkFull
        );
        assert_eq!(cause(Ending::Exited(153), |_| {}), Cause::FileSizeLimit);
        assert_eq!(cause(Ending::Exited(1), |e| e.file_at_limit = true), Cause::FileSizeLimit);
        assert_eq!(cause(Ending::Exited(0), |e| e.file_at_limit = true), Cause::Exited);
        assert_eq!(cause(Ending::Exited(1), |_| {}), Cause::Exited);
    }

    #[test]
    fn cmd10_force_goes_before_the_ending() {
        for (forced, want) in [(Forced::Cancel, Cause::Cancelled), (Forced::Deadline, Cause::Deadline)] {
            assert_eq!(
                cause(Ending::Signalled(9), |e| {
                    e.forced = Some(forced);
                    e.oom_kills = 1;
                }),
                want
            );
        }
    }

    #[test]
    fn cmd10_space_is_gone_when_less_than_a_page_or_no_inode_is_left() {
        let ended = |bytes, inodes| cause(Ending::Exited(1), |e| e.work = Some(SpaceLeft { bytes, inodes }));
        assert_eq!((ended(4095, 9), ended(4096, 9)), (Cause::WorkFull, Cause::Exited));
        assert_eq!((ended(4096, 0), ended(4096, 1)), (Cause::WorkFull, Cause::Exited));
    }

    #[test]
    fn cmd10_the_exit_code_of_who_waited() {
        let outcome = |cause, exit_code| Outcome { exit_code, ..Outcome::without_exit(cause, "") };
        for cause in
            [Cause::Exited, Cause::Signalled, Cause::PidsLimit, Cause::FileSizeLimit, Cause::WorkFull]
        {
            for code in [0, 1, 139, 255] {
                assert_eq!(outcome(cause, Some(code)).process_exit_code(), code);
            }
            assert_eq!(outcome(cause, None).process_exit_code(), 125);
        }
        for cause in [Cause::Deadline, Cause::Cancelled, Cause::Oom] {
            assert_eq!(outcome(cause, Some(0)).process_exit_code(), 137);
            assert_eq!(outcome(cause, None).process_exit_code(), 137);
        }
        for cause in [Cause::Interrupted, Cause::StartFailed, Cause::OutputChanged, Cause::BackendLost] {
            assert_eq!(outcome(cause, Some(0)).process_exit_code(), 125);
        }
    }

    #[test]
    fn cmd10_an_ending_gives_code_and_signal() {
        let told = |ending| {
            let outcome = judge(ending, &Evidence::default(), 1);
            (outcome.exit_code, outcome.signal)
        };
        assert_eq!(told(Ending::Exited(3)), (Some(3), None));
        assert_eq!(told(Ending::Signalled(6)), (Some(134), Some(6)));
        assert_eq!(told(Ending::Unknown), (None, None));
    }
}
