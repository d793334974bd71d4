//! The driver: one task a run owns its life from launch (or re-adoption) to its last commit.
//!
//! ```text
//!  launch ─▶ watch ─▶ record ─▶ tracker ─▶ commit ─▶ publish ─▶ … ─▶ forget
//!                       ▲ cancel order: commit first, then executor.cancel
//!                       ▲ gone or overdue: sweep, then the tracker's last word
//! ```

use super::clock;
use super::core::{Backend, Core};
use super::leftovers;
use super::output;
use super::plan::SUPERVISOR_LOST;
use super::readiness::Doubt;
use super::tracker::Tracker;
use super::types::settled;
use crate::domain::ids::{ContainerId, RunId};
use crate::domain::job::Job;
use crate::domain::record::Record;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::run::{Cleanup, Run, RunIntent};
use crate::exec::Observed;
use crate::fault::{self, Side};
use crate::ledger::LedgerError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedRwLockReadGuard, mpsc, oneshot, watch};
use tokio::time::Instant;

/// How long records that were written before a sweep are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a sweep may take; longer counts as uncertain.
const SWEEP_LIMIT: Duration = Duration::from_secs(15);
/// Recovery phase shown while a run is observed again after a restart.
const ADOPTED: &str = "adopted";
/// Pause before a run is taken up again whose record found the ledger locked by another program.
const LOCKED_PAUSE: Duration = Duration::from_secs(1);
/// Recovery phase shown when the outcome could not be recorded.
const UNRECORDED: &str = "unrecorded";

/// The next step when something of `run` may be left.
pub(super) fn left_hint(run: &RunIntent) -> String {
    format!(
        "`sal commands reconcile {} --run-id {}` looks again, as does a restart of the service; if it stays, \
         remove what is left by hand and repeat",
        run.session_id, run.run_id
    )
}

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

/// Removes whatever bears these ids, supervisors included, and answers what is left of each.
pub(super) async fn sweep(backend: &Backend, runs: Vec<(RunId, ContainerId)>) -> Vec<Vec<String>> {
    let count = runs.len();
    let limit = SWEEP_LIMIT * u32::try_from(count.clamp(1, 8)).unwrap_or(8);
    let unknown = |why: String| vec![vec![format!("unknown ({why})")]; count];
    match tokio::time::timeout(limit, backend.executor.sweep(runs)).await {
        Ok(Ok(left)) => left,
        Ok(Err(error)) => unknown(error.to_string()),
        Err(_) => unknown(format!("the sweep took more than {} s", limit.as_secs())),
    }
}

/// [`sweep`] for one run.
pub(super) async fn sweep_one(backend: &Backend, run: &RunId, container: &ContainerId) -> Vec<String> {
    sweep(backend, vec![(run.clone(), container.clone())]).await.pop().unwrap_or_default()
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
            let mut view = self.tracker.run().clone();
            view.recovery_phase = Some(UNRECORDED.to_owned());
            self.publish.send_replace(view);
            // The entry stays: the run keeps its place, and its records wait.
            let Some(run) = self.recordable_again(&id, error, &mut orders).await else { return };
            self.tracker = Tracker::new(run, self.core.profile.file_size);
            self.core.readiness.restore(&Doubt::Unrecorded(id.clone()));
        }
        self.core.live().remove(&id);
        let run = self.tracker.run();
        if run.state.is_terminal() && run.cleanup == Cleanup::Confirmed {
            leftovers::forget(&self.backend, &id).await;
        }
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
            self.core.ledger.run(id).await.ok()
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
        if matches!(record, Record::Exited { .. }) {
            self.find_output().await;
        }
        self.tracker.observe(record);
    }

    async fn find_output(&mut self) {
        let path = self.core.state.output(&self.tracker.run().intent.run_id);
        let most = self.core.profile.output_bytes;
        if let Ok(kept) = tokio::task::spawn_blocking(move || output::found(&path, most)).await {
            self.tracker.output_found(kept);
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
        let left = sweep_one(&self.backend, &intent.run_id, &intent.container_id).await;
        self.find_output().await;
        // What the supervisor recorded before its end is the truth, however late it is read.
        let rest = async {
            while let Some(Observed::Record(record)) = records.recv().await {
                self.tracker.observe(record);
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS, rest).await;
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
