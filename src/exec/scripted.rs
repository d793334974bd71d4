//! A scripted executor, for tests of the service alone: it plays lists of records with delays, takes
//! cancels and sweeps, and runs nothing. Its players outlive a service as supervisors do, so that a
//! second service over a clone of it finds the same runs.

use super::{ExecError, Executor, Fut, Observed, Survey};
use crate::domain::ids::{ContainerId, ExecId, RunId};
use crate::domain::job::Job;
use crate::domain::outcome::{Ending, Evidence, Forced};
use crate::domain::record::Record;
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// One step of a script.
#[derive(Clone, Debug)]
pub enum Play {
    /// Tells that the supervisor runs.
    Supervising,
    /// Tells that the command was let go.
    Launching,
    /// Tells this record as it is.
    Tell(Record),
    /// Appends to the output file.
    Write(Vec<u8>),
    /// Waits; a cancel ends the wait and the script.
    Wait(Duration),
    /// Waits for a cancel without end.
    Hold,
    /// Waits without end and hears no cancel, like a stopped supervisor.
    Deaf,
    /// Tells an exit with this status and the size of the output, by [`Play::Write`] so far.
    Exit(u8),
    /// Tells what removal left.
    Removed(Vec<String>),
}

impl Play {
    /// A command that exits with `status` at once and is removed.
    pub fn plain(status: u8) -> Vec<Self> {
        vec![Self::Supervising, Self::Launching, Self::Exit(status), Self::Removed(vec![])]
    }

    /// A command that runs until it is cancelled.
    pub fn endless() -> Vec<Self> {
        vec![Self::Supervising, Self::Launching, Self::Hold]
    }
}

/// The executor; a clone shares everything.
#[derive(Clone, Default)]
pub struct Scripted {
    stage: Arc<Mutex<Stage>>,
}

#[derive(Default)]
struct Stage {
    scripts: VecDeque<Result<Vec<Play>, String>>,
    runs: HashMap<RunId, Arc<Actor>>,
    launches: HashMap<RunId, u32>,
    left: Vec<String>,
    alive: Vec<String>,
    identity: Option<String>,
    swept: Vec<RunId>,
    forgotten: Vec<RunId>,
}

/// One run on the stage: what was told so far, and whether it is cancelled or swept.
struct Actor {
    exec_id: ExecId,
    container_id: ContainerId,
    output: PathBuf,
    told: watch::Sender<Vec<Observed>>,
    cancelled: watch::Sender<bool>,
}

impl Scripted {
    /// An executor that plays [`Play::plain`] with status 0 unless told otherwise.
    pub fn new() -> Self {
        Self::default()
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the script of the next launch that has none.
    pub fn next(&self, script: Vec<Play>) {
        self.stage().scripts.push_back(Ok(script));
    }

    /// Lets the next launch fail.
    pub fn fail_next(&self, error: &str) {
        self.stage().scripts.push_back(Err(error.to_owned()));
    }

    /// Sets what every later sweep leaves.
    pub fn sweeps_leave(&self, left: &[&str]) {
        self.stage().left = left.iter().map(|item| (*item).to_owned()).collect();
    }

    /// Sets what every later look finds alive.
    pub fn lives(&self, alive: &[&str]) {
        self.stage().alive = alive.iter().map(|item| (*item).to_owned()).collect();
    }

    /// Changes the engine's identity, as an upgrade of the host does.
    pub fn becomes(&self, identity: &str) {
        self.stage().identity = Some(identity.to_owned());
    }

    /// How often the run was launched.
    pub fn launches(&self, run: &RunId) -> u32 {
        self.stage().launches.get(run).copied().unwrap_or(0)
    }

    /// How many runs were launched in all.
    pub fn launched(&self) -> usize {
        self.stage().launches.len()
    }

    /// Whether the run was swept.
    pub fn was_swept(&self, run: &RunId) -> bool {
        self.stage().swept.contains(run)
    }

    /// How many sweeps were ordered in all.
    pub fn swept(&self) -> usize {
        self.stage().swept.len()
    }

    /// How many runs' working files were deleted in all.
    pub fn forgotten(&self) -> usize {
        self.stage().forgotten.len()
    }

    /// Whether the run's working files were deleted.
    pub fn was_forgotten(&self, run: &RunId) -> bool {
        self.stage().forgotten.contains(run)
    }

    /// Kills every player, as a reboot kills supervisors: what was told stays, then the runs are gone.
    pub fn lose_all(&self) {
        for actor in self.stage().runs.values() {
            actor.tell(Observed::Gone);
        }
    }
}

impl Actor {
    fn tell(&self, seen: Observed) {
        self.told.send_if_modified(|told| {
            let open = told.last() != Some(&Observed::Gone);
            if open {
                told.push(seen);
            }
            open
        });
    }

    fn record(&self, record: Record) {
        self.tell(Observed::Record(record));
    }

    fn exit(&self, ending: Ending, forced: Option<Forced>) {
        let bytes = std::fs::metadata(&self.output).map_or(0, |meta| meta.len());
        let evidence = Evidence { forced, stored_bytes: bytes, total_bytes: bytes, ..Evidence::default() };
        self.record(Record::Exited { ending, evidence });
    }

    async fn cancel_ordered(&self) {
        let _ = self.cancelled.subscribe().wait_for(|cancelled| *cancelled).await;
    }

    async fn play(&self, script: Vec<Play>) {
        for play in script {
            match play {
                Play::Supervising => self.record(Record::Supervising {
                    pid: 1,
                    start_ticks: 1,
                    container_id: self.container_id.clone(),
                }),
                Play::Launching => {
                    self.record(Record::Launching { exec_id: self.exec_id.clone(), pid: 2, start_ticks: 2 });
                }
                Play::Tell(record) => self.record(record),
                Play::Write(bytes) => {
                    let file = std::fs::OpenOptions::new().append(true).create(true).open(&self.output);
                    if let Err(error) = file.and_then(|mut file| file.write_all(&bytes)) {
                        tracing::warn!(%error, "scripted output");
                    }
                }
                Play::Wait(time) => {
                    if tokio::time::timeout(time, self.cancel_ordered()).await.is_ok() {
                        return self.end_cancelled();
                    }
                }
                Play::Hold => {
                    self.cancel_ordered().await;
                    return self.end_cancelled();
                }
                Play::Deaf => std::future::pending().await,
                Play::Exit(status) => self.exit(Ending::Exited(status), None),
                Play::Removed(left) => self.record(Record::Removed { left }),
            }
        }
        self.tell(Observed::Gone);
    }

    fn end_cancelled(&self) {
        self.exit(Ending::Signalled(9), Some(Forced::Cancel));
        self.record(Record::Removed { left: vec![] });
        self.tell(Observed::Gone);
    }
}

impl Executor for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn identity(&self) -> String {
        self.stage().identity.clone().unwrap_or_else(|| self.name().to_owned())
    }

    fn launch(&self, job: Job) -> Fut<'_, Result<(), ExecError>> {
        Box::pin(async move {
            let mut stage = self.stage();
            *stage.launches.entry(job.run_id.clone()).or_default() += 1;
            let script = match stage.scripts.pop_front() {
                Some(Err(error)) => return Err(ExecError::Spawn(std::io::Error::other(error))),
                Some(Ok(script)) => script,
                None => Play::plain(0),
            };
            let actor = Arc::new(Actor {
                exec_id: job.exec_id,
                container_id: job.container_id,
                output: job.output,
                told: watch::channel(Vec::new()).0,
                cancelled: watch::channel(false).0,
            });
            stage.runs.insert(job.run_id, Arc::clone(&actor));
            tokio::spawn(async move { actor.play(script).await });
            Ok(())
        })
    }

    fn watch(&self, run: &RunId) -> mpsc::Receiver<Observed> {
        let (send, receive) = mpsc::channel(16);
        let actor = self.stage().runs.get(run).cloned();
        tokio::spawn(async move {
            let Some(actor) = actor else {
                let _ = send.send(Observed::Gone).await;
                return;
            };
            let mut told = actor.told.subscribe();
            for next in 0.. {
                let seen = match told.wait_for(|told| told.len() > next).await {
                    Ok(told) => told.get(next).cloned(),
                    Err(_) => None,
                };
                let Some(seen) = seen else { return };
                let last = seen == Observed::Gone;
                if send.send(seen).await.is_err() || last {
                    return;
                }
            }
        });
        receive
    }

    fn cancel(&self, run: &RunId) -> Fut<'_, Result<(), ExecError>> {
        if let Some(actor) = self.stage().runs.get(run) {
            actor.cancelled.send_replace(true);
        }
        Box::pin(async { Ok(()) })
    }

    fn survey(&self, run: &RunId) -> Survey {
        let Some(actor) = self.stage().runs.get(run).cloned() else { return Survey::default() };
        let told = actor.told.borrow();
        let records = told.iter().filter_map(|seen| match seen {
            Observed::Record(record) => Some(record.clone()),
            Observed::Gone => None,
        });
        Survey { supervised: told.last() != Some(&Observed::Gone), records: records.collect() }
    }

    fn alive(&self, _: &RunId, _: &ContainerId) -> Fut<'_, Result<Vec<String>, ExecError>> {
        let alive = self.stage().alive.clone();
        Box::pin(async move { Ok(alive) })
    }

    fn sweep(&self, runs: Vec<(RunId, ContainerId)>) -> Fut<'_, Result<Vec<Vec<String>>, ExecError>> {
        let mut stage = self.stage();
        for (run, _) in &runs {
            stage.swept.push(run.clone());
            if let Some(actor) = stage.runs.get(run) {
                actor.tell(Observed::Gone);
            }
        }
        let left = vec![stage.left.clone(); runs.len()];
        Box::pin(async move { Ok(left) })
    }

    fn forget(&self, run: &RunId) -> Fut<'_, Result<(), ExecError>> {
        let mut stage = self.stage();
        stage.forgotten.push(run.clone());
        stage.runs.remove(run);
        Box::pin(async { Ok(()) })
    }
}
