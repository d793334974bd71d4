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
use super::plan::SUPERVISOR_LOST;
use super::readiness::Doubt;
use super::sweep::{forget, sweep_one};
use super::tracker::Tracker;
use super::types::settled;
use crate::domain::ids::RunId;
use crate::domain::job::Job;
use crate::domain::record::Record;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::run::{Cleanup, Run, RunEvent};
use crate::exec::Observed;
use crate::fault::{self, Side};
use crate::ledger::LedgerError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedRwLockReadGuard, mpsc, oneshot, watch};
use tokio::time::Instant;

/// Recovery phase shown while a run is observed again after a restart.
const ADOPTED: &str = "adopted";
/// Pause before a run is taken up again whose record found the ledger locked by another program.
const LOCKED_PAUSE: Duration = Duration::from_secs(1);
/// Recovery phase shown when the outcome could not be recorded.
const UNRECORDED: &str = "unrecorded";

/// How a driver takes up its run.
#[derive(Debug)]
pub(super) enum Begin {
    /// A fresh intent: launch it. The guard keeps a stop waiting until then.
    Launch(Box<Job>, OwnedRwLockReadGuard<()>),
    /// Observed again after a restart of the service or a failure of the ledger.
    Adopt,
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
    let id = run.intent.run_id.clone();
    let mut tracker = Tracker::new(run, core.profile.file_size);
    if matches!(begin, Begin::Adopt) {
        // Before anybody can ask: no moment may show it as an ordinary run.
        tracker.adopted(ADOPTED);
    }
    let (publish, watch) = watch::channel(tracker.run().clone());
    let (orders, inbox) = mpsc::unbounded_channel();
    let driver =
        Driver { tracker, core: Arc::clone(core), backend: backend.clone(), publish, due: Instant::now() };
    // The lock keeps a quick driver from leaving before it was entered.
    let mut live = core.live();
    let task = tokio::spawn(driver.drive(begin, inbox)).abort_handle();
    live.insert(id, Live { watch: watch.clone(), orders, task });
    watch
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
        let mut begin = Some(begin);
        while let Err(error) = self.live(begin.take().unwrap_or(Begin::Adopt), &mut orders).await {
            tracing::error!(run = %id, %error, "the run cannot be recorded");
            self.core.readiness.withdraw(
                Doubt::Unrecorded(id.clone()),
                format!("the outcome of run {id} could not be recorded: {error}"),
                "check the disk of the state directory; the ledger is opened again by itself",
            );
            // What was told last is committed; what the tracker knows beyond it is not, and may end otherwise.
            self.publish.send_modify(|view| view.recovery_phase = Some(UNRECORDED.to_owned()));
            let Some(run) = self.recordable_again(&id, error, &mut orders).await else {
                // The ledger keeps the run's place; without an entry, a person can have it looked at.
                self.core.live().remove(&id);
                return;
            };
            self.resume(run).await;
        }
        self.core.live().remove(&id);
        let run = self.tracker.run();
        if run.state.is_terminal() && run.cleanup == Cleanup::Confirmed {
            forget(&self.backend, &id).await;
        }
    }

    /// Goes on with the run as the ledger has it.
    async fn resume(&mut self, run: Run) {
        let id = run.intent.run_id.clone();
        if run.cleanup == Cleanup::Uncertain {
            // The commit that failed is there, and its alarm was not raised.
            let events = self.core.ledger.events(&id).await.unwrap_or_default();
            let left = events.into_iter().rev().find_map(|event| match event {
                RunEvent::RemovalUncertain { left } => Some(left),
                _ => None,
            });
            self.core.doubt_left(&run.intent, &left.unwrap_or_else(|| vec!["unknown".into()]));
        }
        self.tracker = Tracker::new(run, self.core.profile.file_size);
        self.core.readiness.restore(&Doubt::Unrecorded(id));
    }

    /// Waits until the run can be recorded again, and answers it as the ledger has it: whether a failed
    /// commit is there is read, never assumed. `None`: a fault that waiting does not mend.
    async fn recordable_again(
        &self,
        id: &RunId,
        error: LedgerError,
        orders: &mut mpsc::UnboundedReceiver<CancelOrder>,
    ) -> Option<Run> {
        let text = error.to_string();
        let open = async {
            match error {
                LedgerError::Sql(_) | LedgerError::Latched(_) => self.core.ledger.until_open().await,
                LedgerError::Locked => tokio::time::sleep(LOCKED_PAUSE).await,
                _ => return None,
            }
            loop {
                match self.core.ledger.run(id).await {
                    Ok(run) => return Some(run),
                    Err(LedgerError::Absent { .. } | LedgerError::Row { .. } | LedgerError::Closed) => {
                        return None;
                    }
                    // A disk that has just failed may do so once more.
                    Err(error) => tracing::warn!(run = %id, %error, "the run cannot be read"),
                }
                tokio::time::sleep(LOCKED_PAUSE).await;
            }
        };
        tokio::pin!(open);
        loop {
            tokio::select! {
                run = &mut open => return run,
                Some(order) = orders.recv() => {
                    let _ = order.send(Err(unrecorded_cancel(&text)));
                }
            }
        }
    }

    /// Follows the run until it is settled.
    async fn live(
        &mut self,
        begin: Begin,
        orders: &mut mpsc::UnboundedReceiver<CancelOrder>,
    ) -> Result<(), LedgerError> {
        let id = self.tracker.run().intent.run_id.clone();
        self.due = self.first_due();
        match begin {
            Begin::Launch(job, _starting) => {
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
        }
        let mut records = self.backend.executor.watch(&id);
        while !settled(self.tracker.run()) {
            tokio::select! {
                biased;
                Some(order) = orders.recv() => self.cancel(order).await?,
                seen = records.recv() => match seen {
                    Some(Observed::Record(record)) => self.observe(record, &mut records).await?,
                    Some(Observed::Gone) | None => self.sweep(&mut records, SUPERVISOR_LOST).await?,
                },
                () = tokio::time::sleep_until(self.due) => {
                    self.sweep(&mut records, "the supervisor did not act in time and was swept").await?;
                }
            }
        }
        Ok(())
    }

    /// The instant at which the run is taken in hand if nothing is heard of it.
    fn first_due(&self) -> Instant {
        let now = clock::boottime_ns().unwrap_or(0);
        let deadline = self.tracker.run().intent.deadline_ns;
        Instant::now() + Duration::from_nanos(deadline.saturating_sub(now)) + self.core.graces.deadline
    }

    /// Takes a record and all that are there already, so that what came together costs one commit.
    async fn observe(
        &mut self,
        record: Record,
        records: &mut mpsc::Receiver<Observed>,
    ) -> Result<(), LedgerError> {
        let had_outcome = self.tracker.run().outcome.is_some();
        self.take(record).await;
        let mut gone = false;
        while let Ok(next) = records.try_recv() {
            match next {
                Observed::Record(record) => self.take(record).await,
                Observed::Gone => gone = true,
            }
        }
        if !had_outcome && self.tracker.run().outcome.is_some() {
            self.due = Instant::now() + self.core.graces.removal;
        }
        self.flush().await?;
        if gone && !settled(self.tracker.run()) {
            self.sweep(records, SUPERVISOR_LOST).await?;
        }
        Ok(())
    }

    /// Takes one record; an exit is held against the output that is kept.
    async fn take(&mut self, record: Record) {
        if let Record::Exited { evidence, .. } = &record {
            self.find_output(evidence.stored_bytes).await;
        }
        self.tracker.observe(record);
    }

    /// Looks at the kept output, of which at least `told` bytes are recorded. What cannot be read is no
    /// evidence of anything.
    async fn find_output(&mut self, told: u64) {
        let path = self.core.state.output(&self.tracker.run().intent.run_id);
        let most = self.core.profile.output_bytes.max(told);
        match tokio::task::spawn_blocking(move || output::found(&path, most)).await {
            Ok(Ok(kept)) => self.tracker.output_found(kept),
            Ok(Err(error)) => tracing::warn!(%error, "the kept output cannot be read"),
            Err(_) => {}
        }
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
                let _ = order.send(Err(unrecorded_cancel(&error.to_string())));
                Err(error)
            }
        }
    }

    /// Orders the kill without waiting: the records that follow must be read meanwhile.
    fn order_kill(&mut self) {
        self.due = self.due.min(Instant::now() + self.core.graces.removal);
        let (executor, id) = (Arc::clone(&self.backend.executor), self.tracker.run().intent.run_id.clone());
        tokio::spawn(async move {
            let _ = fault::reach("cancel", Side::Before, id.as_str());
            if let Err(error) = executor.cancel(&id).await {
                // The due instant is the backstop.
                tracing::warn!(run = %id, %error, "the cancel did not reach the supervisor");
            }
            let _ = fault::reach("cancel", Side::After, id.as_str());
        });
    }

    /// Removes what is left without a supervisor and settles the run on the evidence at hand.
    async fn sweep(&mut self, records: &mut mpsc::Receiver<Observed>, why: &str) -> Result<(), LedgerError> {
        let intent = &self.tracker.run().intent;
        let id = intent.run_id.clone();
        let left = sweep_one(&self.backend, &id, &intent.container_id).await;
        self.find_output(0).await;
        // What the supervisor recorded before its end is the truth, however late it is read; what was
        // observed before changes nothing.
        records.close();
        for record in self.backend.executor.survey(&id).records {
            self.take(record).await;
        }
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
        self.core.raise(&mut self.tracker);
        self.publish.send_replace(self.tracker.run().clone());
        Ok(())
    }
}

fn unrecorded_cancel(error: &str) -> Refusal {
    Refusal::new(
        Code::Internal,
        format!("the cancel could not be recorded: {error}"),
        "check the disk of the state directory, then repeat; the deadline ends the command in any case",
    )
}
