//! What every topic needs: workspaces as plain directories, a proof that passes, and a world to start in.

use salaam::domain::application::{Found, Intent, Survey};
use salaam::domain::change::{Base, TreeChange};
use salaam::domain::diff::Diff;
use salaam::domain::digest::Digest;
use salaam::domain::files::answer::FileLimits;
use salaam::domain::files::request::Patch;
use salaam::domain::ids::{RunId, SessionId, StepKey, WorkspaceId};
use salaam::domain::job::{Bundle, ImagePin};
use salaam::domain::manifest::{FileEntry, TreeManifest};
use salaam::domain::outcome::Cause;
use salaam::domain::refusal::{Code, Refusal};
use salaam::domain::relpath::RelPath;
use salaam::domain::run::{Run, RunState};
use salaam::domain::session::{Excluded, Session, SessionKind};
use salaam::exec::Fut;
use salaam::exec::scripted::{Play, Scripted};
use salaam::ledger::Ledger;
use salaam::service::ports::{
    Imported, Observation, ProofSummary, Prover, Published, RevisionPort, WorkspacePort,
};
use salaam::service::startup::Opened;
use salaam::service::{Backend, CreateSession, Graces, Service, StartCommand, settled};
use salaam::workspace::diff::{Revision, revisions};
use salaam::workspace::patch;
use salaam::workspace::policy::Limits;
use salaam::workspace::published;
use salaam::workspace::remembered::Remembered;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Workspaces as plain directories of plain files.
pub struct Plain(pub PathBuf);

pub fn tree(root: &Path) -> TreeManifest {
    let mut files = Vec::new();
    let mut todo = vec![(root.to_owned(), String::new())];
    while let Some((dir, prefix)) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                todo.push((entry.path(), format!("{path}/")));
                continue;
            }
            let bytes = std::fs::read(entry.path()).unwrap();
            files.push(FileEntry {
                path: RelPath::parse(&path).unwrap(),
                executable: false,
                length: bytes.len() as u64,
                content: Digest::of(&bytes),
            });
        }
    }
    TreeManifest::new(files, vec![])
}

impl WorkspacePort for Plain {
    fn create(&self, id: &WorkspaceId, project: &Path) -> Result<Imported, Refusal> {
        if !project.join("main.js").exists() {
            return Err(Refusal::new(Code::ImportRefused, "no main.js", "make one"));
        }
        let root = self.0.join(id.as_str()).join("1");
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::copy(project.join("main.js"), root.join("src/main.js")).unwrap();
        let excluded = vec![Excluded { path: ".git".into(), reason: "version control metadata".into() }];
        Ok(Imported { manifest: tree(&root), root, excluded })
    }

    fn observe(&self, root: &Path) -> Result<Observation, Refusal> {
        Ok(Observation { manifest: tree(root), excluded: vec![] })
    }

    fn read(&self, root: &Path, files: &[FileEntry]) -> Result<Vec<Result<Arc<[u8]>, Refusal>>, Refusal> {
        Remembered::new(0).read(root, files).map_err(|e| Refusal::from(&e))
    }

    fn plan(
        &self,
        root: &Path,
        base: Base,
        tree: &TreeManifest,
        patch: &Patch,
    ) -> Result<TreeChange, Refusal> {
        let read = |file: &FileEntry| published::read_one(root, file);
        patch::plan(&patch::Published { base, tree, read }, patch, &Limits::fixed())
    }

    fn limits(&self) -> FileLimits {
        (&Limits::fixed()).into()
    }

    fn remove(&self, id: &WorkspaceId) -> Result<(), Refusal> {
        let _ = std::fs::remove_dir_all(self.0.join(id.as_str()));
        Ok(())
    }

    fn diff(&self, old: &Published, new: &Published) -> Result<Diff, Refusal> {
        let [old, new] =
            [old, new].map(|it| Revision { root: &it.root, elsewhere: &[], manifest: &it.manifest });
        revisions(old, new).map_err(|e| Refusal::from(&e))
    }

    fn revisions(&self) -> Option<&dyn RevisionPort> {
        Some(self)
    }
}

impl Plain {
    pub fn staged(&self, intent: &Intent) -> PathBuf {
        self.0.join(intent.workspace_id.as_str()).join(format!(".staging-{}", intent.id))
    }
}

fn found(root: &Path) -> Found {
    if root.exists() { Found::Tree(tree(root)) } else { Found::Absent }
}

impl RevisionPort for Plain {
    fn room(&self, id: &WorkspaceId, revision: u32, _: &TreeManifest) -> Result<PathBuf, Refusal> {
        if revision > 32 {
            return Err(Refusal::new(Code::LimitExceeded, "33; the limit is 32", "start anew"));
        }
        Ok(self.0.join(id.as_str()).join(revision.to_string()))
    }

    fn stage(&self, intent: &Intent, change: &TreeChange) -> Result<(), Refusal> {
        let (base, into) = (Path::new(&intent.base.root), self.staged(intent));
        std::fs::create_dir(&into).unwrap();
        for file in change.target.files() {
            let given = change.written.iter().find(|(path, _)| *path == file.path);
            let path = file.path.as_str();
            let bytes =
                given.map_or_else(|| std::fs::read(base.join(path)).unwrap_or_default(), |g| g.1.clone());
            std::fs::create_dir_all(into.join(path).parent().unwrap()).unwrap();
            std::fs::write(into.join(path), &bytes).unwrap();
            if Digest::of(&bytes) != file.content {
                return Err(Refusal::new(Code::WorkspaceChanged, format!("{path} changed"), "undo it"));
            }
        }
        Ok(())
    }

    fn sync(&self, _: &Intent) -> Result<(), Refusal> {
        Ok(())
    }

    fn publish(&self, intent: &Intent) -> Result<(), Refusal> {
        let staged = self.staged(intent);
        assert!(!staged.exists() || !Path::new(&intent.target.root).exists(), "it would be overwritten");
        if staged.exists() {
            std::fs::rename(staged, &intent.target.root).unwrap();
        }
        Ok(())
    }

    fn survey(&self, intent: &Intent) -> Survey {
        Survey { staged: found(&self.staged(intent)), target: found(Path::new(&intent.target.root)) }
    }

    fn discard(&self, intent: &Intent) -> Result<(), Refusal> {
        let _ = std::fs::remove_dir_all(self.staged(intent));
        Ok(())
    }

    fn keep(&self, intent: &Intent) -> Result<PathBuf, Refusal> {
        let staged = self.staged(intent);
        if !staged.exists() {
            std::fs::rename(&intent.target.root, &staged).unwrap();
        }
        Ok(staged)
    }
}

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
            manifest: Digest::of(b"m"),
            config: Digest::of(b"c"),
            diff_ids: vec![],
        };
        let bundle = Bundle { pin, rootfs: "/nonexistent/rootfs".into(), etc: "/nonexistent/etc".into() };
        Backend { executor: Arc::new(self.exec.clone()), bundle, probe: "/nonexistent/sal".into() }
    }

    pub async fn start(&self) -> Service {
        self.start_in("boot-1").await
    }

    pub async fn start_in(&self, boot: &str) -> Service {
        self.start_with(boot, Graces::default()).await
    }

    pub async fn start_with(&self, boot: &str, graces: Graces) -> Service {
        self.start_over(boot, graces, Arc::new(Plain(self.path("coding")))).await
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
