//! The supervisor's own records: one JSON object a line, written before the next step; launch, failure and exit are synced.
//!
//! They are the authority for what happened to a container; libcontainer's `state.json` is not.

use super::ids::{ContainerId, ExecId};
use super::outcome::{Ending, Evidence};
use serde::{Deserialize, Serialize};

/// Reads field 22 of a `/proc/PID/stat` text (proc(5)): the start time that, with the id, names a
/// process for good.
pub fn start_ticks(stat: &str) -> Option<u64> {
    // The second field, in brackets, may itself hold spaces and brackets.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// One step of a container's life, in the order of the variants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Record {
    /// The supervisor runs and holds the lock; nothing exists yet.
    Supervising {
        /// The supervisor's process id on the host.
        pid: i32,
        /// Its start time, field 22 of `/proc/PID/stat`, in clock ticks.
        start_ticks: u64,
        /// The container's id.
        container_id: ContainerId,
    },
    /// The container exists, its effective configuration equals the profile, and the command is
    /// about to be let go. Absence of this record proves that the command never ran.
    Launching {
        /// The launch attempt.
        exec_id: ExecId,
        /// Process 1 of the container, as the host numbers it.
        pid: i32,
        /// Its start time in clock ticks.
        start_ticks: u64,
    },
    /// Creating or checking the container failed; the command never ran.
    StartFailed {
        /// Which step failed, such as `create` or `verify`.
        stage: String,
        /// Why.
        detail: String,
        /// True when the effective configuration did not match the profile (PRF.4).
        mismatch: bool,
    },
    /// The main process has ended.
    Exited {
        /// How.
        ending: Ending,
        /// What the kernel says about it.
        evidence: Evidence,
    },
    /// Removal was tried and checked.
    Removed {
        /// What is still there; empty when nothing is.
        left: Vec<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b15_the_start_time_is_found_behind_an_odd_name() {
        let fields: Vec<String> = (4..=30).map(|n| n.to_string()).collect();
        let stat = format!("17 (a) b (c)) S {}", fields.join(" "));
        assert_eq!(start_ticks(&stat), Some(22));
        assert_eq!(start_ticks("17 (a"), None);
    }
}
