//! FT.4, WS.5: a revision written aside from its base: exact bytes and modes, never a hardlink, and only
//! from a base that is what the change was made from.

use super::{Bench, alone, id, snapshot, with_descriptors};
use salaam::domain::application::{Found, Intent, Root};
use salaam::domain::change::{Base, TreeChange};
use salaam::domain::digest::Digest;
use salaam::domain::ids::{ApplicationId, SessionId, WorkspaceId};
use salaam::domain::manifest::{FileEntry, TreeManifest};
use salaam::domain::refusal::{Code, Refusal};
use salaam::domain::relpath::RelPath;
use salaam::workspace::observe::observe;
use salaam::workspace::published::read;
use salaam::workspace::store::{Store, StoreError};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

pub(super) fn file(path: &str, content: &[u8], executable: bool) -> FileEntry {
    FileEntry {
        path: RelPath::parse(path).unwrap(),
        executable,
        length: content.len() as u64,
        content: Digest::of(content),
    }
}

fn dir(path: &str) -> RelPath {
    RelPath::parse(path).unwrap()
}

/// A published workspace, and the change of one file, one more file, one file less and one mode.
struct Case {
    bench: Bench,
    store: Store,
    root: PathBuf,
    intent: Intent,
    change: TreeChange,
}

impl Case {
    fn new() -> Self {
        let bench = Bench::new();
        bench.write("a/keep", "kept").write("a/edit", "old").write("a.b/z", "").write("gone", "x");
        bench.write("run.sh", "#!/bin/sh\n").write("deep/er/than/this", "d");
        for path in ["empty/one", "empty/two"] {
            std::fs::create_dir_all(bench.at(path)).unwrap();
        }
        std::fs::set_permissions(bench.at("run.sh"), PermissionsExt::from_mode(0o700)).unwrap();
        let store = Store::open(&bench.copies).unwrap();
        let ws = id();
        let made = store.create_workspace(&ws, &bench.project).unwrap();
        let target = TreeManifest::new(
            vec![
                file("a/keep", b"kept", true),
                file("a/edit", b"new text", false),
                file("a.b/z", b"", false),
                file("run.sh", b"#!/bin/sh\n", true),
                file("deep/er/than/this", b"d", false),
                file("new/dir/f", b"\0\xff", false),
            ],
            vec![dir("empty/one"), dir("fresh")],
        );
        let written = vec![(dir("a/edit"), b"new text".to_vec()), (dir("new/dir/f"), b"\0\xff".to_vec())];
        let base = Base { revision: 1, digest: made.imported.manifest.digest() };
        let intent = intent(&ws, &made.root, &base.digest, &store.root(&ws, 2), &target);
        Self { bench, store, root: made.root, intent, change: TreeChange { base, target, written } }
    }

    fn aside(&self) -> PathBuf {
        self.store.aside(&self.intent.workspace_id, &self.intent.id)
    }

    fn fails(&self) -> StoreError {
        let before = snapshot(&self.root);
        let error = self.store.write_aside(&self.intent, &self.change).unwrap_err();
        assert_eq!(before, snapshot(&self.root), "the base was written");
        self.store.discard_aside(&self.intent).unwrap();
        assert!(!self.aside().exists());
        error
    }
}

pub(super) fn intent(
    id: &WorkspaceId,
    base: &Path,
    digest: &Digest,
    target: &Path,
    tree: &TreeManifest,
) -> Intent {
    let root = |revision, digest: &Digest, root: &Path| Root {
        revision,
        digest: digest.clone(),
        root: root.display().to_string(),
    };
    Intent {
        id: ApplicationId::fresh(),
        session_id: SessionId::fresh(),
        workspace_id: id.clone(),
        call: None,
        base: root(1, digest, base),
        source: digest.clone(),
        target: root(2, &tree.digest(), target),
    }
}

#[test]
fn ft4_a_revision_is_written_aside_exactly_and_shares_no_file_with_its_base() {
    let case = Case::new();
    let before = snapshot(&case.root);
    let target = case.store.room(&case.intent.workspace_id, 2, &case.change.target).unwrap();
    assert_eq!(target, Path::new(&case.intent.target.root));
    case.store.write_aside(&case.intent, &case.change).unwrap();
    let survey = case.store.survey(&case.intent).unwrap();
    assert_eq!(survey.staged, Found::Tree(case.change.target.clone()));
    assert_eq!(survey.target, Found::Absent);
    case.store.sync_aside(&case.intent).unwrap();
    // Doing it twice does no more than once.
    for _ in 0..2 {
        case.store.publish_aside(&case.intent).unwrap();
    }
    assert!(!case.aside().exists());
    let seen = observe(&target, case.store.limits()).unwrap();
    assert!(seen.refused.is_empty());
    assert_eq!(seen.manifest, case.change.target);
    assert_eq!(std::fs::read(target.join("new/dir/f")).unwrap(), b"\0\xff");
    for (path, mode) in
        [("a/keep", 0o755), ("a/edit", 0o644), ("run.sh", 0o755), ("fresh", 0o755), ("", 0o755)]
    {
        assert_eq!(target.join(path).metadata().unwrap().mode() & 0o7777, mode, "{path}");
    }
    for path in ["a/keep", "run.sh", "deep/er/than/this"] {
        let (new, old) = (target.join(path).metadata().unwrap(), case.root.join(path).metadata().unwrap());
        assert_eq!((new.nlink(), old.nlink()), (1, 1), "{path}");
        assert_ne!(new.ino(), old.ino(), "{path}");
    }
    // What is written into one does not show in the other, clones or not.
    std::fs::write(target.join("deep/er/than/this"), "edited").unwrap();
    assert_eq!(before, snapshot(&case.root), "the base changed");
    assert!(case.store.sweep_staging().unwrap().is_empty());
}

#[test]
fn ft4_a_base_that_changed_is_refused_and_the_paths_are_named() {
    type Spoil = fn(&Path);
    let spoils: &[(&str, Spoil)] = &[
        ("a/keep", |root| std::fs::write(root.join("a/keep"), "KEPT").unwrap()),
        ("run.sh", |root| std::fs::write(root.join("run.sh"), "longer than before").unwrap()),
        ("deep/er/than/this", |root| std::fs::remove_dir_all(root.join("deep")).unwrap()),
        ("a/keep", |root| {
            std::fs::remove_file(root.join("a/keep")).unwrap();
            symlink("../gone", root.join("a/keep")).unwrap();
        }),
        ("a/keep", |root| std::fs::hard_link(root.join("a/keep"), root.join("other")).unwrap()),
        ("a/keep", |root| {
            std::fs::rename(root.join("a"), root.join("moved")).unwrap();
            symlink("moved", root.join("a")).unwrap();
        }),
    ];
    for (path, spoil) in spoils {
        let case = Case::new();
        spoil(&case.root);
        let error = case.fails();
        assert!(matches!(&error, StoreError::Aside(aside) if aside.is_conflict()), "{error}");
        assert!(error.to_string().contains(path), "{error}");
        let refusal = Refusal::from(&error);
        assert_eq!(refusal.code, Code::WorkspaceChanged);
        assert!(refusal.hint.contains("refresh"));
        assert_eq!(std::fs::read(case.bench.outside.join("secret")).unwrap(), b"canary");
    }
}

#[test]
fn ft4_a_change_whose_bytes_are_not_its_manifests_is_refused() {
    let mut case = Case::new();
    case.change.written[0].1 = b"other".to_vec();
    assert!(case.fails().to_string().contains("'a/edit'"));
    let mut case = Case::new();
    case.change.written.push((dir("unnamed"), vec![]));
    assert!(case.fails().to_string().contains("'unnamed'"));
}

#[test]
fn a17_a_base_whose_directory_turns_into_a_symlink_never_leads_elsewhere() {
    let case = Case::new();
    std::fs::create_dir(case.bench.outside.join("er")).unwrap();
    let (deep, link) = (case.root.join("deep"), case.bench.copies.join("link"));
    symlink(&case.bench.outside, &link).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                use rustix::fs::{CWD, RenameFlags, renameat_with};
                renameat_with(CWD, &deep, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let (mut whole, mut refused) = (0, 0);
        for _ in 0..400 {
            match case.store.write_aside(&case.intent, &case.change) {
                Ok(()) => {
                    whole += 1;
                    let staged = case.store.survey(&case.intent).unwrap().staged;
                    assert_eq!(staged, Found::Tree(case.change.target.clone()));
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("deep/er/than/this"), "{error}");
                }
            }
            case.store.discard_aside(&case.intent).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(refused > 0, "{whole} whole");
    });
}

#[test]
fn ft4_what_is_not_whole_is_told_from_what_is() {
    let case = Case::new();
    let staged = || case.store.survey(&case.intent).unwrap().staged;
    assert_eq!(staged(), Found::Absent);
    type Spoil = fn(&Path);
    let spoils: &[Spoil] = &[
        |aside| std::fs::set_permissions(aside.join("a/edit"), PermissionsExt::from_mode(0o600)).unwrap(),
        |aside| std::fs::set_permissions(aside.join("fresh"), PermissionsExt::from_mode(0o700)).unwrap(),
        |aside| std::fs::remove_dir(aside.join("fresh")).unwrap(),
        |aside| std::fs::write(aside.join("a/edit"), "new").unwrap(),
        |aside| std::fs::create_dir(aside.join("target")).unwrap(),
    ];
    for spoil in spoils {
        case.store.write_aside(&case.intent, &case.change).unwrap();
        assert_eq!(staged(), Found::Tree(case.change.target.clone()));
        spoil(&case.aside());
        assert_ne!(staged(), Found::Tree(case.change.target.clone()));
        case.store.discard_aside(&case.intent).unwrap();
    }
}

#[test]
fn ft4_what_is_kept_is_out_of_the_way_of_the_next_revision() {
    let case = Case::new();
    case.store.write_aside(&case.intent, &case.change).unwrap();
    assert_eq!(case.store.keep_aside(&case.intent).unwrap(), case.aside());
    case.store.publish_aside(&case.intent).unwrap();
    assert!(case.store.room(&case.intent.workspace_id, 2, &case.change.target).is_err(), "the name is taken");
    for _ in 0..2 {
        assert_eq!(case.store.keep_aside(&case.intent).unwrap(), case.aside());
        case.store.room(&case.intent.workspace_id, 2, &case.change.target).unwrap();
    }
    // A sweep leaves it to the ledger that names it.
    assert!(case.store.sweep_staging().unwrap().is_empty());
    assert_eq!(case.store.survey(&case.intent).unwrap().staged, Found::Tree(case.change.target.clone()));
}

#[test]
fn ft4_what_could_not_be_synced_is_out_of_sight_and_removed_later() {
    let case = Case::new();
    let names = || {
        let listed = std::fs::read_dir(case.root.parent().unwrap()).unwrap();
        let mut names: Vec<_> = listed.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    for sweeps in [false, true] {
        case.store.write_aside(&case.intent, &case.change).unwrap();
        // Twice is no error: a crash may come in between.
        for _ in 0..2 {
            case.store.condemn_aside(&case.intent).unwrap();
        }
        let survey = case.store.survey(&case.intent).unwrap();
        assert_eq!((survey.staged, survey.target), (Found::Absent, Found::Absent));
        assert!(case.store.publish_aside(&case.intent).is_err(), "nothing is left to name");
        assert_eq!(names(), [format!(".staging-bad-{}", case.intent.id), "r00001".into()]);
        if sweeps {
            assert_eq!(case.store.sweep_staging().unwrap().len(), 1);
        } else {
            case.store.discard_aside(&case.intent).unwrap();
        }
        assert_eq!(names(), ["r00001"]);
    }
}

#[test]
fn ft4_a_name_that_is_taken_is_told_with_the_next_step() {
    let case = Case::new();
    let target = PathBuf::from(&case.intent.target.root);
    case.store.write_aside(&case.intent, &case.change).unwrap();
    std::fs::create_dir(&target).unwrap();
    let ws = &case.intent.workspace_id;
    for error in [
        case.store.room(ws, 2, &case.change.target).unwrap_err(),
        case.store.publish_aside(&case.intent).unwrap_err(),
    ] {
        let refusal = Refusal::from(&error);
        assert_eq!(refusal.code, Code::Conflict);
        assert!(refusal.message.contains(&case.intent.target.root) && refusal.hint.contains("move it away"));
    }
    assert_eq!(std::fs::read_dir(target).unwrap().count(), 0);
}

/// However few descriptors are left, and whatever comes of it, that is never taken for something that a
/// tree holds: what is told is true, or nothing is told.
#[test]
fn ft4_running_out_of_descriptors_is_no_evidence() {
    alone("revisions::ft4_running_out_of_descriptors_is_no_evidence", || {
        let case = Case::new();
        let ours = |refusal: Refusal| assert_eq!(refusal.code, Code::Internal, "{refusal}");
        let (whole, published) = (case.change.target.clone(), case.intent.base.digest.clone());
        let manifest = observe(&case.root, case.store.limits()).unwrap().manifest;
        let mut told = [0; 4];
        const MOST: u64 = 24;
        for left in 0..MOST {
            let refused = with_descriptors(left, || case.store.write_aside(&case.intent, &case.change));
            match refused {
                Ok(()) => told[0] += 1,
                Err(error) => ours(Refusal::from(&error)),
            }
            let _ = std::fs::remove_dir_all(case.aside());
            case.store.write_aside(&case.intent, &case.change).unwrap();
            match with_descriptors(left, || case.store.survey(&case.intent)) {
                Ok(survey) => {
                    told[1] += 1;
                    assert_eq!((survey.staged, survey.target), (Found::Tree(whole.clone()), Found::Absent));
                }
                Err(error) => ours(Refusal::from(&error)),
            }
            case.store.discard_aside(&case.intent).unwrap();
            match with_descriptors(left, || observe(&case.root, case.store.limits())) {
                Ok(seen) => {
                    told[2] += 1;
                    assert!(seen.is(&published), "{left}: {}", seen.refused);
                }
                Err(error) => ours(Refusal::from(&error)),
            }
            match with_descriptors(left, || read(&case.root, manifest.files())) {
                Ok(files) => {
                    told[3] += 1;
                    assert!(files.iter().all(Result::is_ok), "{left}: {files:?}");
                }
                Err(error) => ours(Refusal::from(&error)),
            }
        }
        assert!(told.iter().all(|told| (1..MOST).contains(told)), "{told:?}");
    });
}

#[test]
fn ws3_a_revision_keeps_to_the_limits_and_the_exclusions() {
    let case = Case::new();
    let ws = &case.intent.workspace_id;
    let refused = |revision, tree: &TreeManifest| {
        let error = case.store.room(ws, revision, tree).unwrap_err();
        let refusal = Refusal::from(&error);
        (refusal.code, refusal.message)
    };
    let (code, message) = refused(33, &case.change.target);
    assert!(code == Code::LimitExceeded && message.contains("33") && message.contains("32"), "{message}");
    assert_eq!(refused(0, &case.change.target).0, Code::LimitExceeded);
    let large = TreeManifest::new(vec![file("b", &vec![0; (256 << 10) + 1], false)], vec![]);
    let (code, message) = refused(2, &large);
    assert!(
        code == Code::LimitExceeded && message.contains("262145") && message.contains("'b'"),
        "{message}"
    );
    let secret = TreeManifest::new(
        vec![file(".ENV", b"", false), file("A", b"", false), file("a", b"", false)],
        vec![],
    );
    let (code, message) = refused(2, &secret);
    assert_eq!(code, Code::Invalid);
    assert!(message.contains(".ENV") && message.contains("collide"), "{message}");
    let dump = std::fs::File::create(case.root.join("editor-dump")).unwrap();
    let held = case.store.kept_bytes(ws).unwrap() + case.change.target.total_bytes();
    dump.set_len((160 << 20) - held).unwrap();
    case.store.room(ws, 2, &case.change.target).unwrap();
    dump.set_len((160 << 20) - held + 1).unwrap();
    let (code, message) = refused(2, &case.change.target);
    assert!(code == Code::LimitExceeded && message.contains("167772160"), "{message}");
    // What blocked changes have left is named.
    let hint = || Refusal::from(&case.store.room(ws, 2, &case.change.target).unwrap_err()).hint;
    assert!(hint().starts_with("move what editors left"), "{}", hint());
    std::fs::create_dir(case.aside()).unwrap();
    let want = format!("delete what is kept of blocked changes ({}), or move", case.aside().display());
    assert!(hint().starts_with(&want), "{}", hint());
}
