//! How a run is shown to a person.

use super::output::{Text, name};
use crate::api::wire::{Cancelled, Outcome, Run};
use crate::domain::outcome::Cause;
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
    if run.output.truncated {
        remarks.push(format!("the output is cut: {}", output(run)));
    }
    if run.cleanup == Cleanup::Uncertain {
        remarks.push(format!(
            "whether the container is gone is uncertain; settle it: \
             sal commands reconcile {} --run-id {} --state {}",
            run.session_id,
            run.run_id,
            state.display()
        ));
    }
    remarks
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
