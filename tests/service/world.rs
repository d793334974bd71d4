//! What every topic needs: a proof that passes, and a world to start in.

#[path = "../fixtures/plain.rs"]
#[allow(dead_code)]
mod plain;

#[allow(unused_imports)]
pub use plain::{Plain, tree};
use salaam::domain::digest::Digest;
use salaam::domain::ids::{RunId, SessionId, StepKey};
use salaam::domain::job::{Bundle, ImagePin};
use salaam::domain::outcome::Cause;
use salaam::domain::refusal::Refusal;
use salaam::domain::relpath::RelPath;
use salaam::domain::run::{Run, RunState};
use salaam::domain::session::{Session, SessionKind};
use salaam::exec::Fut;
use salaam::exec::scripted::{Play, Scripted};
use salaam::ledger::Ledger;
use salaam::service::ports::{ProofSummary, Prover, WorkspacePort};
use salaam::service::startup::Opened;
use salaam::service::{Backend, CreateSession, Graces, Service, StartCommand, settled};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub struct Proof;

impl Prover for Proof {
    fn prove(&self) -> Fut<'_, Result<ProofSummary, Refusal>> {
        Box::pin(async { Ok(ProofSummary { digest: Digest::of(b"proof"), engine: "scripted 1".into() }) })
    }
}

/// A place on disk and an executor that outlive the services started over them.
pub struct World {
    pub tmp: TempDir,
    pub exec: Scripted,
}

impl World {
    pub fn new() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::create_dir(tmp.path().join("project")).unwrap();
        std::fs::write(tmp.path().join("project/main.js"), "1").unwrap();
        Self { tmp, exec: Scripted::new() }
    }

    /// A world with a service that is ready and one session in it.
    pub async fn ready() -> (Self, Service, Session) {
        let world = Self::new();
        let service = world.start().await;
        let session = world.session(&service).await;
        (world, service, session)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.tmp.path().join(name)
    }

    pub fn backend(&self) -> Backend {
        let pin = ImagePin {
            reference: "example/node@sha256:0".into(),
            index: None,
            manifest: Digest::of(b"m"),
            config: Digest::of(b"c"),
            diff_ids: vec![],
        };
        let bundle =
            Bundle { pin, lower: vec!["/nonexistent/rootfs".into()], etc: "/nonexistent/etc".into() };
        Backend { executor: Arc::new(self.exec.clone()), bundle, probe: "/nonexistent/sal".into() }
    }

    pub async fn start(&self) -> Service {
        self.start_in("boot-1").await
    }

    pub async fn start_in(&self, boot: &str) -> Service {
        self.start_with(boot, Graces::default()).await
    }

    pub async fn start_with(&self, boot: &str, graces: Graces) -> Service {
        self.start_over(boot, graces, Arc::new(Plain::new(self.path("coding")))).await
    }

    pub async fn start_over(&self, boot: &str, graces: Graces, port: Arc<dyn WorkspacePort>) -> Service {
        let opened = Opened::open(&self.path("state")).await.unwrap().with_graces(graces);
        let chosen = opened.choose_in_boot(Some(self.backend()), Some(port), boot.into());
        chosen.recover().await.unwrap().prove(&Proof).await.unwrap().ready()
    }

    pub async fn session(&self, service: &Service) -> Session {
        self.try_session(service).await.unwrap()
    }

    pub async fn try_session(&self, service: &Service) -> Result<Session, Refusal> {
        let req = CreateSession { kind: SessionKind::Coding, cwd: self.path("project") };
        service.create_session(req).await
    }

    /// Opens the ledger of a stopped service.
    pub fn ledger(&self) -> Ledger {
        Ledger::open(&self.path("state/ledger.db")).unwrap()
    }

    pub fn sql(&self, text: &str) {
        rusqlite::Connection::open(self.path("state/ledger.db")).unwrap().execute_batch(text).unwrap();
    }
}

pub fn command(text: &str) -> StartCommand {
    StartCommand { step_key: None, command: text.into(), cwd: RelPath::default(), revision: None }
}

pub fn keyed(key: &str, text: &str) -> StartCommand {
    StartCommand { step_key: Some(StepKey::parse(key).unwrap()), ..command(text) }
}

/// A script that lets the command go, then plays the rest.
pub fn launched(rest: impl IntoIterator<Item = Play>) -> Vec<Play> {
    [Play::Supervising, Play::Launching].into_iter().chain(rest).collect()
}

pub async fn start(service: &Service, session: &Session, req: StartCommand) -> RunId {
    service.start_command(&session.id, req).await.unwrap().intent.run_id
}

/// Starts a command and waits until it runs.
pub async fn running(service: &Service, session: &Session, req: StartCommand) -> RunId {
    let run = start(service, session, req).await;
    state(service, &session.id, &run, RunState::Running).await;
    run
}

pub async fn refusal(service: &Service, session: &Session, req: StartCommand) -> Refusal {
    service.start_command(&session.id, req).await.unwrap_err()
}

pub async fn wait(service: &Service, session: &SessionId, run: &RunId) -> Run {
    let mut watch = service.follow(session, run).await.unwrap();
    let wait = async { watch.wait_for(settled).await.map(|run| run.clone()) };
    match tokio::time::timeout(Duration::from_secs(20), wait).await.expect("settles in time") {
        Ok(run) => run,
        Err(_) => service.run(session, run).await.unwrap(),
    }
}

pub async fn state(service: &Service, session: &SessionId, run: &RunId, want: RunState) {
    let mut watch = service.follow(session, run).await.unwrap();
    watch.wait_for(|run| run.state == want).await.unwrap();
}

pub async fn until_forgotten(exec: &Scripted, run: &RunId) {
    for _ in 0..500 {
        if exec.was_forgotten(run) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{run} was not forgotten");
}

pub fn cause(run: &Run) -> Cause {
    run.outcome.as_ref().unwrap().cause
}
