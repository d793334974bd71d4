//! Publishing and refreshing revisions: rules, receipts, conflicts, and the recovery table (FT.3–5, WS.6).

use crate::world::{Plain, World, command, start, tree, wait};
use salaam::domain::application::{Event, Intent, Survey};
use salaam::domain::change::{Base, TreeChange};
use salaam::domain::diff::{Content, Diff};
use salaam::domain::digest::Digest;
use salaam::domain::files::FileContent;
use salaam::domain::files::answer::FileLimits;
use salaam::domain::files::request::Patch;
use salaam::domain::ids::{ApplicationId, CallId, WorkspaceId};
use salaam::domain::manifest::{FileEntry, TreeManifest};
use salaam::domain::refusal::{Code, Refusal};
use salaam::domain::relpath::RelPath;
use salaam::domain::session::{Session, SessionKind, Workspace};
use salaam::service::ports::{Imported, Observation, Published, RevisionPort, WorkspacePort};
use salaam::service::{Call, CreateSession, Graces, Service};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A tree as bytes by path.
pub type Files = BTreeMap<String, Vec<u8>>;

pub fn files(entries: &[(&str, &str)]) -> Files {
    entries.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
}

pub fn manifest(files: &Files) -> TreeManifest {
    let entry = |(path, bytes): (&String, &Vec<u8>)| FileEntry {
        path: RelPath::parse(path).unwrap(),
        executable: false,
        length: bytes.len() as u64,
        content: Digest::of(bytes),
    };
    TreeManifest::new(files.iter().map(entry).collect(), vec![])
}

/// The change from what `base` holds to `to`.
pub fn change(workspace: &Workspace, base: &Files, to: &Files) -> TreeChange {
    let written = to.iter().filter(|(path, bytes)| base.get(*path) != Some(bytes));
    TreeChange {
        base: Base { revision: workspace.revision, digest: workspace.digest.clone() },
        target: manifest(to),
        written: written.map(|(path, bytes)| (RelPath::parse(path).unwrap(), bytes.clone())).collect(),
    }
}

pub fn call(id: &str, request: &str) -> Option<Call> {
    Some(Call { id: CallId::parse(id).unwrap(), request: Digest::of(request.as_bytes()) })
}

pub fn imported() -> Files {
    files(&[("src/main.js", "1")])
}

pub fn next() -> Files {
    files(&[("src/main.js", "1"), ("lib/a.js", "new")])
}

pub fn of(session: &Session) -> &Workspace {
    session.workspace.as_ref().unwrap()
}

pub async fn now(service: &Service, session: &Session) -> Workspace {
    service.session(&session.id).await.unwrap().workspace.unwrap()
}

pub type Hook = Box<dyn Fn() -> Result<(), Refusal> + Send + Sync>;

/// Plain workspaces with something that happens just before a step.
pub struct Meddled {
    pub plain: Plain,
    pub hooks: Mutex<Vec<(&'static str, Hook)>>,
}

impl Meddled {
    pub fn over(world: &World) -> Arc<Self> {
        Arc::new(Self { plain: Plain::new(world.path("coding")), hooks: Mutex::default() })
    }

    /// Makes the next `step` do this first.
    pub fn hook(&self, step: &'static str, hook: impl Fn() -> Result<(), Refusal> + Send + Sync + 'static) {
        self.hooks.lock().unwrap().push((step, Box::new(hook)));
    }

    fn before(&self, step: &'static str) -> Result<(), Refusal> {
        let hook = {
            let mut hooks = self.hooks.lock().unwrap();
            let at = hooks.iter().position(|(name, _)| *name == step);
            at.map(|at| hooks.remove(at).1)
        };
        hook.map_or(Ok(()), |hook| hook())
    }
}

impl WorkspacePort for Meddled {
    fn coding_root(&self) -> &Path {
        self.plain.coding_root()
    }

    fn create(&self, id: &WorkspaceId, project: &Path) -> Result<Imported, Refusal> {
        self.plain.create(id, project)
    }
    fn observe(&self, root: &Path) -> Result<Observation, Refusal> {
        self.before("observe")?;
        self.plain.observe(root)
    }
    fn remove(&self, id: &WorkspaceId) -> Result<(), Refusal> {
        self.before("remove")?;
        self.plain.remove(id)
    }
    fn read(&self, root: &Path, files: &[FileEntry]) -> Result<Vec<FileContent>, Refusal> {
        self.plain.read(root, files)
    }
    fn plan(
        &self,
        root: &Path,
        base: Base,
        tree: &TreeManifest,
        patch: &Patch,
    ) -> Result<TreeChange, Refusal> {
        self.plain.plan(root, base, tree, patch)
    }
    fn limits(&self) -> FileLimits {
        self.plain.limits()
    }
    fn diff(&self, old: &Published, new: &Published) -> Result<Diff, Refusal> {
        self.plain.diff(old, new)
    }
    fn revisions(&self) -> Option<&dyn RevisionPort> {
        Some(self)
    }
}

impl RevisionPort for Meddled {
    fn room(&self, id: &WorkspaceId, revision: u32, target: &TreeManifest) -> Result<PathBuf, Refusal> {
        self.plain.room(id, revision, target)
    }
    fn stage(&self, intent: &Intent, change: &TreeChange) -> Result<(), Refusal> {
        self.before("stage")?;
        self.plain.stage(intent, change)
    }
    fn sync(&self, intent: &Intent) -> Result<(), Refusal> {
        self.before("sync")?;
        self.plain.sync(intent)
    }
    fn publish(&self, intent: &Intent) -> Result<(), Refusal> {
        self.before("publish")?;
        self.plain.publish(intent)?;
        self.before("published")
    }
    fn condemn(&self, intent: &Intent) -> Result<(), Refusal> {
        self.plain.condemn(intent)
    }
    fn survey(&self, intent: &Intent) -> Result<Survey, Refusal> {
        self.before("survey")?;
        self.plain.survey(intent)
    }
    fn discard(&self, intent: &Intent) -> Result<(), Refusal> {
        self.before("discard")?;
        self.plain.discard(intent)
    }
    fn keep(&self, intent: &Intent) -> Result<PathBuf, Refusal> {
        self.plain.keep(intent)
    }
}

pub async fn meddled() -> (World, Service, Session, Arc<Meddled>) {
    meddled_with(Graces::default().reopen).await
}

/// [`meddled`], with another pause before the service takes up what a failure cut off.
pub async fn meddled_with(reopen: Duration) -> (World, Service, Session, Arc<Meddled>) {
    let world = World::new();
    let port = Meddled::over(&world);
    let graces = Graces { reopen, ..Graces::default() };
    let service = world.start_over("boot-1", graces, port.clone()).await;
    let session = world.session(&service).await;
    (world, service, session, port)
}

pub fn disk(message: &str) -> Refusal {
    Refusal::new(Code::Internal, message, "look")
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn directories(world: &World, session: &Session) -> Vec<String> {
    names(&world.path("coding").join(of(session).id.as_str()))
}

#[tokio::test]
async fn ft4_a_publication_is_a_directory_of_its_own_and_commands_run_on_it() {
    let (world, service, session) = World::ready().await;
    let published =
        service.publish(&session.id, change(of(&session), &imported(), &next()), None).await.unwrap();
    let workspace = published.workspace;
    assert_eq!((workspace.revision, &workspace.id), (2, &of(&session).id));
    assert_eq!(workspace, now(&service, &session).await);
    assert_eq!(tree(Path::new(&workspace.root)), manifest(&next()));
    assert_eq!(workspace.digest, manifest(&next()).digest());
    assert_eq!(tree(Path::new(&of(&session).root)), manifest(&imported()));
    assert_eq!(directories(&world, &session), ["1", "2"]);
    let run = start(&service, &session, command("true")).await;
    let run = wait(&service, &session.id, &run).await;
    assert_eq!((run.intent.revision, run.intent.digest), (2, workspace.digest));
    service.shutdown(false).await.unwrap();
    let journal = world.ledger().journal(&session.id).await.unwrap();
    assert!(journal.is_sorted_by(|a, b| a.seq < b.seq));
    let events: Vec<_> = journal.into_iter().map(|entry| entry.event).collect();
    assert_eq!(events, [Event::Intended, Event::Published]);
}

#[tokio::test]
async fn ft3_a_repeated_call_answers_its_receipt_before_any_revision_check() {
    let (world, service, session) = World::ready().await;
    let first = change(of(&session), &imported(), &next());
    let one = service.publish(&session.id, first.clone(), call("c1", "x")).await.unwrap();
    let second = change(&one.workspace, &next(), &imported());
    let two = service.publish(&session.id, second, call("c2", "y")).await.unwrap();
    assert_eq!(two.workspace.revision, 3);
    assert_eq!(service.publish(&session.id, first.clone(), call("c1", "x")).await.unwrap(), one);
    let other = service.publish(&session.id, first.clone(), call("c1", "z")).await.unwrap_err();
    assert_eq!(other.code, Code::Conflict);
    let stale = service.publish(&session.id, first.clone(), call("c3", "x")).await.unwrap_err();
    assert_eq!(stale.code, Code::StaleRevision);
    assert!(service.receipt(&session.id, &call("c3", "x").unwrap()).await.unwrap().is_none());
    service.end_session(&session.id).await.unwrap();
    service.shutdown(false).await.unwrap();
    let service = world.start().await;
    assert_eq!(service.publish(&session.id, first.clone(), call("c1", "x")).await.unwrap(), one);
    assert_eq!(service.receipt(&session.id, &call("c2", "y").unwrap()).await.unwrap(), Some(two));
    let ended = service.publish(&session.id, first, call("c4", "x")).await.unwrap_err();
    assert_eq!(ended.code, Code::Forbidden);
    service.remove_session(&session.id).await.unwrap();
    assert!(service.receipt(&session.id, &call("c1", "x").unwrap()).await.unwrap().is_none());
}

#[tokio::test]
async fn ft4_an_edited_root_is_refused_before_anything_is_written() {
    let (world, service, session) = World::ready().await;
    std::fs::write(Path::new(&of(&session).root).join("src/main.js"), "edited").unwrap();
    let planned = change(of(&session), &imported(), &next());
    let refused = service.publish(&session.id, planned, call("c", "x")).await.unwrap_err();
    assert_eq!(refused.code, Code::WorkspaceChanged);
    assert!(refused.message.contains("src/main.js") && refused.hint.contains("refresh"), "{refused}");
    assert_eq!(directories(&world, &session), ["1"]);
    service.shutdown(false).await.unwrap();
    assert!(world.ledger().journal(&session.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn ft4_a_base_that_changes_meanwhile_blocks_and_both_directories_are_kept() {
    let (world, service, session, port) = meddled().await;
    let edited = Path::new(&of(&session).root).join("src/main.js");
    let path = edited.clone();
    let edit = move || {
        std::fs::write(&path, "edited").unwrap();
        Ok(())
    };
    port.hooks.lock().unwrap().push(("sync", Box::new(edit)));
    let planned = change(of(&session), &imported(), &next());
    let refused = service.publish(&session.id, planned.clone(), call("c", "x")).await.unwrap_err();
    assert_eq!(refused.code, Code::WorkspaceChanged);
    assert_eq!(now(&service, &session).await, *of(&session));
    let view = service.inspect_workspace(&session.id).await.unwrap();
    let kept = PathBuf::from(&view.blocked[0].kept);
    assert!(refused.message.contains("src/main.js") && refused.message.contains(&view.blocked[0].kept));
    assert_eq!((tree(&kept), std::fs::read(&edited).unwrap()), (manifest(&next()), b"edited".to_vec()));
    // A restart changes nothing about it, and the undone edit lets the same call through.
    service.shutdown(false).await.unwrap();
    let service = world.start().await;
    std::fs::write(&edited, "1").unwrap();
    assert_eq!(service.inspect_workspace(&session.id).await.unwrap().blocked.len(), 1);
    let done = service.publish(&session.id, planned, call("c", "x")).await.unwrap();
    assert_eq!(done.workspace.revision, 2);
    assert!(kept.exists());
    std::fs::remove_dir_all(kept).unwrap();
    assert!(service.inspect_workspace(&session.id).await.unwrap().blocked.is_empty());
}

#[tokio::test]
async fn ft4_a_step_that_fails_leaves_nothing_and_its_call_id_is_free() {
    let (world, service, session, port) = meddled().await;
    let planned = change(of(&session), &imported(), &next());
    for step in ["stage", "sync", "publish"] {
        port.hooks.lock().unwrap().push((step, Box::new(|| Err(disk("no space left on device")))));
        let refused = service.publish(&session.id, planned.clone(), call("c", "x")).await.unwrap_err();
        assert!(refused.message.contains("no space"), "{step}: {refused}");
        assert_eq!(now(&service, &session).await, *of(&session), "{step}");
        assert_eq!(directories(&world, &session), ["1"], "{step}");
    }
    // Nothing can be removed for now: the refusal says so, and the next change decides on it first.
    let mut hooks: Vec<(&'static str, Hook)> = Vec::new();
    for step in ["sync", "discard"] {
        hooks.push((step, Box::new(|| Err(disk("i/o error")))));
    }
    port.hooks.lock().unwrap().extend(hooks);
    let refused = service.publish(&session.id, planned.clone(), call("c", "x")).await.unwrap_err();
    assert_eq!((refused.code, directories(&world, &session).len()), (Code::NotReady, 2), "{refused}");
    let done = service.publish(&session.id, planned.clone(), call("c", "x")).await.unwrap();
    assert_eq!((done.workspace.revision, directories(&world, &session)), (2, vec!["1".into(), "2".into()]));
    // The rename is done and not known to be durable: it is seen to once more.
    port.hooks.lock().unwrap().push(("published", Box::new(|| Err(disk("i/o error")))));
    let back = change(&done.workspace, &next(), &imported());
    assert_eq!(service.publish(&session.id, back, None).await.unwrap().workspace.revision, 3);
}

#[tokio::test]
async fn ft4_one_application_at_a_time_and_a_command_runs_on_whichever_revision_is_current() {
    let (_world, service, session, port) = meddled().await;
    let slow = || {
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    };
    port.hooks.lock().unwrap().push(("stage", Box::new(slow)));
    let planned = change(of(&session), &imported(), &next());
    let (first, id, again) = (service.clone(), session.id.clone(), planned.clone());
    let first = tokio::spawn(async move { first.publish(&id, again, None).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let busy = service.publish(&session.id, planned, None).await.unwrap_err();
    assert_eq!(busy.code, Code::Busy);
    assert_eq!(service.remove_session(&session.id).await.unwrap_err().code, Code::Busy);
    let run = start(&service, &session, command("true")).await;
    assert_eq!(wait(&service, &session.id, &run).await.intent.revision, 1);
    assert_eq!(first.await.unwrap().unwrap().workspace.revision, 2);
    let run = start(&service, &session, command("true")).await;
    assert_eq!(wait(&service, &session.id, &run).await.intent.revision, 2);
}

#[tokio::test]
async fn ft5_a_commit_that_fails_admits_nothing_more_and_is_decided_on_after_the_reopening() {
    let (world, service, session, port) = meddled_with(Duration::from_millis(50)).await;
    let path = world.path("state/ledger.db");
    let sql = move |text: &str| rusqlite::Connection::open(&path).unwrap().execute_batch(text).unwrap();
    let away = sql.clone();
    let lose = move || {
        away("ALTER TABLE receipts RENAME TO lost");
        Ok(())
    };
    port.hooks.lock().unwrap().push(("published", Box::new(lose)));
    let planned = change(of(&session), &imported(), &next());
    let refused = service.publish(&session.id, planned.clone(), call("c", "x")).await.unwrap_err();
    assert_eq!(refused.code, Code::NotReady, "{refused}");
    assert!(refused.message.starts_with("it is not known yet whether revision 2 is published"), "{refused}");
    assert!(refused.hint.contains("repeat the call c "), "{}", refused.hint);
    let none = service.refresh(&session.id, 1, &Digest::of(b"")).await.unwrap_err();
    assert!(matches!(none.code, Code::NotReady | Code::WorkspaceChanged), "{none}");
    assert_eq!(service.session(&session.id).await.unwrap().workspace.unwrap().revision, 1);
    sql("ALTER TABLE lost RENAME TO receipts");
    for _ in 0..500 {
        if now(&service, &session).await.revision == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let done = service.publish(&session.id, planned, call("c", "x")).await.unwrap();
    assert_eq!(done.workspace, now(&service, &session).await);
    assert_eq!((done.workspace.revision, directories(&world, &session)), (2, vec!["1".into(), "2".into()]));
}

#[tokio::test]
async fn ws6_a_refresh_adopts_exactly_what_was_reviewed() {
    let (world, service, session) = World::ready().await;
    let root = PathBuf::from(&of(&session).root);
    let unedited = service.refresh(&session.id, 1, &of(&session).digest).await.unwrap();
    assert_eq!(unedited, *of(&session), "nothing to adopt");
    std::fs::write(root.join("src/main.js"), "edited").unwrap();
    std::fs::write(root.join("more.js"), "2").unwrap();
    let reviewed = service.inspect_workspace(&session.id).await.unwrap().observed_digest;
    let wrong = service.refresh(&session.id, 1, &of(&session).digest).await.unwrap_err();
    assert_eq!(wrong.code, Code::WorkspaceChanged);
    assert!(wrong.message.contains(reviewed.as_str()) && wrong.hint.contains("inspect"), "{wrong}");
    let stale = service.refresh(&session.id, 2, &reviewed).await.unwrap_err();
    assert_eq!(stale.code, Code::StaleRevision);
    let adopted = service.refresh(&session.id, 1, &reviewed).await.unwrap();
    assert_eq!((adopted.revision, &adopted.digest), (2, &reviewed));
    assert_eq!(tree(Path::new(&adopted.root)), tree(&root));
    assert!(service.inspect_workspace(&session.id).await.unwrap().changes.is_empty());
    // A repeat is answered alike, but for another digest or an older revision.
    assert_eq!(service.refresh(&session.id, 1, &reviewed).await.unwrap(), adopted);
    for (revision, digest) in [(1, &of(&session).digest), (0, &reviewed), (3, &reviewed)] {
        let stale = service.refresh(&session.id, revision, digest).await.unwrap_err();
        assert_eq!(stale.code, Code::StaleRevision, "{revision}");
    }
    let plain = CreateSession { kind: SessionKind::Ordinary, cwd: world.path("project") };
    let plain = service.create_session(plain).await.unwrap();
    assert_eq!(service.refresh(&plain.id, 1, &reviewed).await.unwrap_err().code, Code::Forbidden);
}

#[tokio::test]
async fn ws6_edits_after_the_review_are_not_adopted() {
    let (world, service, session, port) = meddled().await;
    let path = Path::new(&of(&session).root).join("src/main.js");
    std::fs::write(&path, "edited").unwrap();
    let reviewed = service.inspect_workspace(&session.id).await.unwrap().observed_digest;
    for step in ["stage", "sync"] {
        let late = path.clone();
        let edit = move || {
            std::fs::write(&late, "later").unwrap();
            Ok(())
        };
        port.hooks.lock().unwrap().push((step, Box::new(edit)));
        let refused = service.refresh(&session.id, 1, &reviewed).await.unwrap_err();
        assert_eq!(refused.code, Code::WorkspaceChanged, "{step}");
        assert!(refused.message.contains("src/main.js"), "{step}: {refused}");
        assert_eq!(now(&service, &session).await.revision, 1);
        std::fs::write(&path, "edited").unwrap();
    }
    // The second was whole already, so it is kept.
    assert_eq!(directories(&world, &session).len(), 2);
    assert_eq!(service.refresh(&session.id, 1, &reviewed).await.unwrap().revision, 2);
}

#[tokio::test]
async fn ws3_revision_33_is_refused_and_nothing_is_pruned() {
    let (world, service, session) = World::ready().await;
    let mut at = of(&session).clone();
    let (mut from, mut to) = (imported(), next());
    while at.revision < 32 {
        at = service.publish(&session.id, change(&at, &from, &to), None).await.unwrap().workspace;
        std::mem::swap(&mut from, &mut to);
    }
    let full = service.publish(&session.id, change(&at, &from, &to), None).await.unwrap_err();
    assert_eq!(full.code, Code::LimitExceeded);
    assert_eq!((directories(&world, &session).len(), now(&service, &session).await), (32, at));
}

/// What is on disk when a service starts over an intent: every combination, and a second start.
#[tokio::test]
async fn ft4_the_recovery_over_its_whole_table() {
    for staged in ["absent", "whole", "partial"] {
        for target in ["absent", "whole", "other"] {
            for edited in [false, true] {
                recovery(staged, target, edited).await;
            }
        }
    }
}

/// Leaves the intent of [`next`] in the ledger of a stopped service, with the target's directory at `target`.
pub async fn intended(world: &World, workspace: &Workspace, session: &Session, target: &Path) -> Intent {
    let planned = change(workspace, &imported(), &next());
    let root = |revision, digest: &Digest, root: &Path| salaam::domain::application::Root {
        revision,
        digest: digest.clone(),
        root: root.display().to_string(),
    };
    let intent = Intent {
        id: ApplicationId::fresh(),
        session_id: session.id.clone(),
        workspace_id: workspace.id.clone(),
        call: call("c", "x"),
        base: root(1, &workspace.digest, Path::new(&workspace.root)),
        source: workspace.digest.clone(),
        target: root(2, &planned.target.digest(), target),
    };
    let application =
        salaam::domain::application::Application { intent: intent.clone(), manifest: planned.target };
    let ledger = world.ledger();
    let _ = ledger.begin_application(application, |_| Ok(None)).await.unwrap();
    ledger.close();
    intent
}

pub fn write(dir: &Path, files: &Files) {
    for (path, bytes) in files {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

async fn recovery(staged: &str, target: &str, edited: bool) {
    let case = format!("staged {staged}, target {target}, edited {edited}");
    let (world, service, session) = World::ready().await;
    service.shutdown(false).await.unwrap();
    let workspace = of(&session);
    let port = Plain::new(world.path("coding"));
    let target_root = port.room(&workspace.id, 2, &manifest(&next())).unwrap();
    let intent = intended(&world, workspace, &session, &target_root).await;
    match staged {
        "whole" => write(&port.staged(&intent), &next()),
        "partial" => write(&port.staged(&intent), &imported()),
        _ => {}
    }
    match target {
        "whole" => write(&target_root, &next()),
        "other" => write(&target_root, &files(&[("foreign", "x")])),
        _ => {}
    }
    if edited {
        std::fs::write(Path::new(&workspace.root).join("src/main.js"), "edited").unwrap();
    }
    let old = tree(Path::new(&workspace.root));
    let want = match (staged, target, edited) {
        ("absent", "absent", _) | ("partial", _, _) | ("whole", "whole" | "other", _) => "failed",
        ("absent", "other", _) => "blocked",
        (_, _, true) => "blocked",
        (_, _, false) => "published",
    };
    for _ in 0..2 {
        let service = world.start().await;
        let current = now(&service, &session).await;
        assert_eq!(current.revision, if want == "published" { 2 } else { 1 }, "{case}");
        assert_eq!(tree(Path::new(&workspace.root)), old, "{case}");
        assert_eq!(port.staged(&intent).exists(), want == "blocked", "{case}");
        let receipt = service.receipt(&session.id, &call("c", "x").unwrap()).await.unwrap();
        assert_eq!(receipt.map(|r| r.workspace), (want == "published").then(|| current.clone()), "{case}");
        let blocked = service.inspect_workspace(&session.id).await.unwrap().blocked;
        assert_eq!(blocked.len(), usize::from(want == "blocked"), "{case}");
        if want == "published" {
            assert_eq!(tree(Path::new(&current.root)), manifest(&next()), "{case}");
        }
        service.shutdown(false).await.unwrap();
        let ledger = world.ledger();
        assert!(ledger.intended_applications().await.unwrap().is_empty(), "{case}");
        let events = ledger.journal(&session.id).await.unwrap();
        assert_eq!(events.len(), 2, "{case}: {events:?}");
        ledger.close();
    }
}

#[tokio::test]
async fn ws7_bytes_that_an_editor_overwrote_are_taken_from_the_project_where_they_were_applied() {
    let (world, service, session) = World::ready().await;
    let planned = change(of(&session), &imported(), &next());
    let made = service.publish(&session.id, planned, None).await.unwrap().workspace;
    let whole = service.diff(&session.id, None).await.unwrap().diff;
    std::fs::write(Path::new(&made.root).join("lib/a.js"), "edited").unwrap();
    let lost = service.diff(&session.id, None).await.unwrap().diff;
    assert_eq!((lost.files[0].content, lost.files[0].in_patch), (Content::Lost, false));
    std::fs::create_dir(world.path("project/lib")).unwrap();
    std::fs::write(world.path("project/lib/a.js"), "new").unwrap();
    assert_eq!(service.diff(&session.id, None).await.unwrap().diff, whole);
}
