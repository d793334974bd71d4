//! The driver: one task a run owns its life from launch (or re-adoption) to its last commit.
//!
//! ```text
//!  launch ─▶ watch ─▶ record ─▶ tracker ─▶ commit ─▶ publish ─▶ … ─▶ forget
//!                       ▲ cancel order: commit first, then executor.cancel
//!                       ▲ gone or overdue: sweep, then the tracker's last word
//! ```

use super::clock;
use super::core::{Backend, Core};
use super::output;
use super::tracker::{Alarm, Tracker};
use super::types::settled;
use crate::domain::ids::{ContainerId, RunId};
use crate::domain::job::Job;
use crate::domain::record::Record;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::run::{Cleanup, Run};
use crate::exec::Observed;
use crate::ledger::LedgerError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// How long records that were written before a sweep are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a sweep may take; longer counts as uncertain.
const SWEEP_LIMIT: Duration = Duration::from_secs(15);
/// Recovery phase shown while a run is observed again after a restart.
const ADOPTED: &str = "adopted";
/// The next step when something of a run may be left: every start sweeps it again.
pub(super) const LEFT_HINT: &str =
    "restart the service, which sweeps it again; if it stays, remove what is left by hand and restart";
/// Recovery phase shown when the outcome could not be recorded.
const UNRECORDED: &str = "unrecorded";

/// How a driver takes up its run.
#[derive(Debug)]
pub(super) enum Begin {
    /// A fresh intent: launch it.
    Launch(Box<Job>),
    /// Observed again after a restart of the service.
    Adopt,
    /// Observed after a restart of the host: nothing lives, only records are left.
    Postmortem,
}

/// Answers whether the cancel was taken (`false`: the end had been observed).
pub(super) type CancelOrder = oneshot::Sender<Result<bool, Refusal>>;

/// The service's hold on a driver.
pub(super) struct Live {
    pub watch: watch::Receiver<Run>,
    pub orders: mpsc::UnboundedSender<CancelOrder>,
    pub task: tokio::task::AbortHandle,
}

/// Starts the driver of `run` and enters it among the live ones.
pub(super) fn spawn(core: &Arc<Core>, backend: &Backend, run: Run, begin: Begin) -> watch::Receiver<Run> {
    let (publish, watch) = watch::channel(run.clone());
    let (orders, inbox) = mpsc::unbounded_channel();
    let id = run.intent.run_id.clone();
    let driver = Driver {
        tracker: Tracker::new(run, core.profile.file_size),
        core: Arc::clone(core),
        backend: backend.clone(),
        publish,
        due: Instant::now(),
    };
    // The lock keeps a quick driver from leaving before it was entered.
    let mut live = core.live();
    let task = tokio::spawn(driver.drive(begin, inbox)).abort_handle();
    live.insert(id, Live { watch: watch.clone(), orders, task });
    watch
}

/// Removes whatever bears the container's id without a supervisor, and answers what is left.
pub(super) async fn sweep(backend: &Backend, run: &RunId, container: &ContainerId) -> Vec<String> {
    match tokio::time::timeout(SWEEP_LIMIT, backend.executor.sweep(run, container)).await {
        Ok(Ok(left)) => left,
        Ok(Err(error)) => vec![format!("unknown ({error})")],
        Err(_) => vec![format!("unknown (the sweep took more than {} s)", SWEEP_LIMIT.as_secs())],
    }
}

struct Driver {
    core: Arc<Core>,
    backend: Backend,
    tracker: Tracker,
    publish: watch::Sender<Run>,
    due: Instant,
}

impl Driver {
    async fn drive(mut self, begin: Begin, mut orders: mpsc::UnboundedReceiver<CancelOrder>) {
        let id = self.tracker.run().intent.run_id.clone();
        if let Err(error) = self.live(begin, &mut orders).await {
            tracing::error!(run = %id, %error, "the run cannot be recorded");
            self.core.readiness.withdraw(
                format!("the outcome of run {id} could not be recorded: {error}"),
                "check the disk of the state directory, then restart the service",
            );
            let mut view = self.tracker.run().clone();
            view.recovery_phase = Some(UNRECORDED.to_owned());
            // The entry stays: the run keeps its place, and its records wait for the next start.
            self.publish.send_replace(view);
            return;
        }
        self.core.live().remove(&id);
        let run = self.tracker.run();
        if run.state.is_terminal()
            && run.cleanup == Cleanup::Confirmed
            && let Err(error) = self.backend.executor.forget(&id).await
        {
            tracing::warn!(run = %id, %error, "the run directory could not be deleted");
        }
    }

    /// Follows the run until it is settled.
    async fn live(
        &mut self,
        begin: Begin,
        orders: &mut mpsc::UnboundedReceiver<CancelOrder>,
    ) -> Result<(), LedgerError> {
        let id = self.tracker.run().intent.run_id.clone();
        let why = match begin {
            Begin::Postmortem => "the host was restarted while the run was live",
            _ => "the supervisor was lost",
        };
        self.due = self.first_due(&begin);
        match begin {
            Begin::Launch(job) => {
                if let Err(error) = self.backend.executor.launch(*job).await {
                    self.tracker.launch_failed(error.to_string());
                }
            }
            Begin::Adopt => {
                self.tracker.adopted(ADOPTED);
                self.publish.send_replace(self.tracker.run().clone());
                if self.tracker.run().cancel_requested && self.tracker.run().outcome.is_none() {
                    self.order_kill();
                }
            }
            Begin::Postmortem => self.tracker.adopted(ADOPTED),
        }
        let mut records = self.backend.executor.watch(&id);
        while !settled(self.tracker.run()) {
            tokio::select! {
                biased;
                Some(order) = orders.recv() => self.cancel(order).await?,
                seen = records.recv() => match seen {
                    Some(Observed::Record(record)) => self.observe(record, &mut records, why).await?,
                    Some(Observed::Gone) | None => self.sweep(&mut records, why).await?,
                },
                () = tokio::time::sleep_until(self.due) => {
                    self.sweep(&mut records, "the supervisor did not act in time and was swept").await?;
                }
            }
        }
        Ok(())
    }

    /// The instant at which the run is taken in hand if nothing is heard of it.
    fn first_due(&self, begin: &Begin) -> Instant {
        let left = match begin {
            Begin::Postmortem => self.core.graces.removal,
            _ => {
                let now = clock::boottime_ns().unwrap_or(0);
                let deadline = self.tracker.run().intent.deadline_ns;
                Duration::from_nanos(deadline.saturating_sub(now)) + self.core.graces.deadline
            }
        };
        Instant::now() + left
    }

    /// Takes a record and all that are there already, so that what came together costs one commit.
    async fn observe(
        &mut self,
        record: Record,
        records: &mut mpsc::Receiver<Observed>,
        why: &str,
    ) -> Result<(), LedgerError> {
        let had_outcome = self.tracker.run().outcome.is_some();
        self.tracker.observe(record);
        let mut gone = false;
        while let Ok(next) = records.try_recv() {
            match next {
                Observed::Record(record) => self.tracker.observe(record),
                Observed::Gone => gone = true,
            }
        }
        if !had_outcome && self.tracker.run().outcome.is_some() {
            self.due = Instant::now() + self.core.graces.removal;
        }
        self.flush().await?;
        if gone && !settled(self.tracker.run()) {
            self.sweep(records, why).await?;
        }
        Ok(())
    }

    async fn cancel(&mut self, order: CancelOrder) -> Result<(), LedgerError> {
        let taken = self.tracker.cancel();
        match self.flush().await {
            Ok(()) => {
                if taken {
                    self.order_kill();
                }
                let _ = order.send(Ok(taken));
                Ok(())
            }
            Err(error) => {
                let text = error.to_string();
                let _ = order.send(Err(Refusal::new(
                    Code::Internal,
                    format!("the cancel could not be recorded: {text}"),
                    "check the disk of the state directory, then restart the service",
                )));
                Err(error)
            }
        }
    }

    /// Orders the kill without waiting: the records that follow must be read meanwhile.
    fn order_kill(&mut self) {
        self.due = self.due.min(Instant::now() + self.core.graces.removal);
        let (executor, id) = (Arc::clone(&self.backend.executor), self.tracker.run().intent.run_id.clone());
        tokio::spawn(async move {
            if let Err(error) = executor.cancel(&id).await {
                // The due instant is the backstop.
                tracing::warn!(run = %id, %error, "the cancel did not reach the supervisor");
            }
        });
    }

    /// Removes what is left without a supervisor and settles the run on the evidence at hand.
    async fn sweep(&mut self, records: &mut mpsc::Receiver<Observed>, why: &str) -> Result<(), LedgerError> {
        let intent = &self.tracker.run().intent;
        let left = sweep(&self.backend, &intent.run_id, &intent.container_id).await;
        let (path, most) = (self.core.state.output(&intent.run_id), self.core.profile.output_bytes);
        // What the supervisor recorded before its end is the truth, however late it is read.
        let rest = async {
            while let Some(Observed::Record(record)) = records.recv().await {
                self.tracker.observe(record);
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS, rest).await;
        let stored = tokio::task::spawn_blocking(move || output::stored(&path, most)).await.unwrap_or(0);
        self.tracker.measured_output(stored, most);
        self.tracker.over(left, why);
        self.flush().await
    }

    /// Commits what must be, publishes what is known.
    async fn flush(&mut self) -> Result<(), LedgerError> {
        if self.tracker.must_commit() {
            let id = self.tracker.run().intent.run_id.clone();
            let (events, facts) = self.tracker.take_pending();
            let run = self.core.ledger.append_events(&id, events, facts).await?;
            self.tracker.committed(run);
        }
        for alarm in self.tracker.take_alarms() {
            match alarm {
                Alarm::Mismatch(reason) => self.core.readiness.withdraw(
                    reason,
                    "find what changed on the host, then restart the service for a new proof",
                ),
                Alarm::Left(reason) => self.core.readiness.withdraw(reason, LEFT_HINT),
            }
        }
        self.publish.send_replace(self.tracker.run().clone());
        Ok(())
    }
}
