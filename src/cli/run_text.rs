//! How a run is shown to a person.

use super::output::{Text, name};
use crate::api::wire::{Cancelled, Inspected, Outcome, Run};
use crate::domain::outcome::Cause;
use crate::domain::profile::Profile;
use crate::domain::run::Cleanup;

/// A run in full.
pub(crate) fn full(run: &Run) -> Text {
    let mut text = Text::default()
        .field("run", &run.run_id)
        .field("step key", &run.step_key)
        .field("command", &run.command)
        .field("cwd", &run.cwd)
        .field("revision", run.revision)
        .field("state", name(&run.state));
    if let Some(phase) = &run.recovery_phase {
        text = text.field("recovery", phase);
    }
    if let Some(outcome) = &run.outcome {
        text = text.field("outcome", ending(outcome));
    }
    text = text.field("output", output(run)).field("cleanup", name(&run.cleanup));
    if let Some(headroom) = headroom(run) {
        text = text.field("headroom", headroom);
    }
    text.field("image", &run.image.manifest).field("executor", &run.executor)
}

/// A run in full, and its history.
pub(crate) fn inspected(seen: &Inspected) -> Text {
    seen.history.iter().fold(full(&seen.run).line("history"), |text, entry| {
        let line = format!("  {:<6} {}  {}", entry.seq, entry.at, entry.event);
        text.line(if entry.detail.is_empty() { line } else { format!("{line} ({})", entry.detail) })
    })
}

/// A run on one line.
pub(crate) fn brief(run: &Run) -> String {
    let state = match &run.outcome {
        Some(outcome) => ending(outcome),
        None => name(&run.state),
    };
    format!("{}  {}  {}  {}", run.run_id, run.step_key, state, run.command)
}

/// What a person who waited must be told beside the exit code: anything but a plain exit.
pub(crate) fn remark(run: &Run, state: &std::path::Path) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(outcome) = &run.outcome
        && (outcome.cause != Cause::Exited || !outcome.detail.is_empty())
    {
        let cause = name(&outcome.cause);
        remarks.push(if outcome.detail.is_empty() { cause } else { format!("{cause}: {}", outcome.detail) });
    }
    if let Some(outcome) = &run.outcome {
        remarks.extend(kills(outcome));
    }
    if run.output.truncated {
        remarks.push(format!("the output is cut: {}", output(run)));
    }
    if run.cleanup == Cleanup::Uncertain {
        remarks.push(format!(
            "whether the container of {} is gone is uncertain; look again with: \
             sal commands reconcile {} --run-id {} --state {}",
            run.run_id,
            run.session_id,
            run.run_id,
            state.display()
        ));
    }
    remarks
}

/// What the limits did to the command's processes, where the cause does not say so: a child that is
/// killed for want of memory may end with nothing but a strange result.
fn kills(outcome: &Outcome) -> Vec<String> {
    let limits = Profile::fixed();
    let mut said = Vec::new();
    if outcome.oom_kills > 0 && outcome.cause != Cause::Oom {
        said.push(format!(
            "OOM kills of the command's processes: {}; the memory limit is {} bytes, let it use less",
            outcome.oom_kills, limits.memory_bytes
        ));
    }
    if outcome.pids_limit_hits > 0 && outcome.cause != Cause::PidsLimit {
        said.push(format!(
            "forks refused by the process limit: {}; the limit is {}, let it start fewer at a time",
            outcome.pids_limit_hits, limits.pids
        ));
    }
    said
}

fn ending(outcome: &Outcome) -> String {
    let mut text = name(&outcome.cause);
    if let Some(code) = outcome.exit_code {
        text.push_str(&format!(", exit code {code}"));
    }
    if !outcome.detail.is_empty() {
        text.push_str(&format!(" ({})", outcome.detail));
    }
    for (count, what) in [(outcome.oom_kills, "OOM kills"), (outcome.pids_limit_hits, "refused forks")] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text
}

fn output(run: &Run) -> String {
    let size = &run.output;
    if size.truncated {
        format!("the first {} of {} bytes are kept", size.stored_bytes, size.total_bytes)
    } else {
        format!("{} bytes", size.stored_bytes)
    }
}

fn headroom(run: &Run) -> Option<String> {
    let known = &run.headroom;
    let parts: Vec<String> = [
        (known.memory_peak, "bytes of memory at the peak"),
        (known.pids_peak, "processes at the peak"),
        (known.cpu_ms, "ms CPU"),
        (known.throttled_ms, "ms throttled"),
    ]
    .into_iter()
    .filter_map(|(value, what)| value.map(|value| format!("{value} {what}")))
    .collect();
    if parts.is_empty() { None } else { Some(parts.join(", ")) }
}

/// The answer to a cancel.
pub(crate) fn cancelled(reply: &Cancelled) -> Text {
    let text = full(&reply.run);
    if reply.already_finished { text.line("already finished: it had ended before the cancel") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cmd10_limits_that_struck_children_are_told_unless_the_cause_says_so() {
        let outcome = |cause, oom_kills, pids_limit_hits| Outcome {
            exit_code: Some(0),
            signal: None,
            cause,
            detail: String::new(),
            oom_kills,
            pids_limit_hits,
        };
        assert!(kills(&outcome(Cause::Exited, 0, 0)).is_empty());
        assert!(kills(&outcome(Cause::Oom, 1, 0)).is_empty());
        assert!(kills(&outcome(Cause::PidsLimit, 0, 3)).is_empty());
        let oom = kills(&outcome(Cause::Exited, 2, 0));
        assert!(oom[0].contains("OOM kills") && oom[0].contains(": 2;"), "{oom:?}");
        let both = kills(&outcome(Cause::Deadline, 1, 5));
        assert!(both.len() == 2 && both[1].contains(": 5;"), "{both:?}");
    }
}
