//! Sequences of publications, repeats, edits, refreshes and restarts against a plain model in memory:
//! every refusal leaves revision, roots and receipts as they were (FT.2–4, WS.6).

use crate::publish::{Files, call, change, files, manifest};
use crate::world::{World, tree};
use proptest::prelude::*;
use salaam::domain::digest::Digest;
use salaam::domain::refusal::Code;
use salaam::domain::session::{Session, Workspace};
use salaam::service::{Published, Service};
use std::path::Path;

#[derive(Clone, Debug)]
enum Op {
    /// Sets a file (`None` deletes it) on a revision so far behind the current one.
    Patch {
        file: usize,
        text: Option<u8>,
        behind: usize,
    },
    /// Repeats a call, with its own or other arguments.
    Repeat {
        which: usize,
        same: bool,
    },
    /// Writes into the current root by hand.
    Edit {
        file: usize,
        text: u8,
    },
    /// Undoes all edits of the current root.
    Undo,
    /// Adopts what is there, or something else.
    Refresh {
        reviewed: bool,
        behind: usize,
    },
    Restart,
}

const NAMES: [&str; 4] = ["src/main.js", "a", "src/b", "c/d/e"];

fn op() -> impl Strategy<Value = Op> {
    let behind = || prop_oneof![4 => Just(0usize), 1 => Just(1usize)];
    prop_oneof![
        6 => (0..NAMES.len(), prop::option::weighted(0.7, 0u8..3), behind())
            .prop_map(|(file, text, behind)| Op::Patch { file, text, behind }),
        2 => (0usize..8, any::<bool>()).prop_map(|(which, same)| Op::Repeat { which, same }),
        2 => (0..NAMES.len(), 3u8..6).prop_map(|(file, text)| Op::Edit { file, text }),
        1 => Just(Op::Undo),
        3 => (any::<bool>(), behind()).prop_map(|(reviewed, behind)| Op::Refresh { reviewed, behind }),
        1 => Just(Op::Restart),
    ]
}

/// What must be: every revision as it was published, what lies in its directory, and the receipts.
struct Model {
    published: Vec<(Workspace, Files)>,
    on_disk: Vec<Files>,
    receipts: Vec<Published>,
}

impl Model {
    fn current(&self) -> &(Workspace, Files) {
        self.published.last().unwrap()
    }

    fn edited(&self) -> bool {
        self.on_disk.last() != Some(&self.current().1)
    }

    fn publish(&mut self, workspace: Workspace, files: Files) {
        self.published.push((workspace, files.clone()));
        self.on_disk.push(files);
    }
}

fn put(root: &str, from: &Files, to: &Files) {
    for path in from.keys().filter(|path| !to.contains_key(*path)) {
        std::fs::remove_file(Path::new(root).join(path)).unwrap();
    }
    for (path, bytes) in to {
        let path = Path::new(root).join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

async fn step(service: &Service, session: &Session, model: &mut Model, op: &Op) {
    let (workspace, current) = model.current().clone();
    match *op {
        Op::Patch { file, text, behind } => {
            let at = model.published.len().saturating_sub(1 + behind);
            let (base, held) = model.published[at].clone();
            let mut to = held.clone();
            match text {
                Some(text) => drop(to.insert(NAMES[file].into(), vec![text; text.into()])),
                None => drop(to.remove(NAMES[file])),
            }
            let id = format!("c{}", model.receipts.len());
            let got = service.publish(&session.id, change(&base, &held, &to), call(&id, &id)).await;
            let refused = if base != workspace {
                Some(Code::StaleRevision)
            } else if model.edited() {
                Some(Code::WorkspaceChanged)
            } else {
                None
            };
            assert_eq!(got.as_ref().err().map(|refusal| refusal.code), refused, "{op:?}");
            if let Ok(published) = got {
                assert_eq!(published.workspace.revision, workspace.revision + 1);
                model.receipts.push(published.clone());
                model.publish(published.workspace, to);
            }
        }
        Op::Repeat { which, same } => {
            let Some(saved) = model.receipts.get(which) else { return };
            let (id, request) = (format!("c{which}"), format!("c{which}{}", if same { "" } else { "x" }));
            let got =
                service.publish(&session.id, change(&workspace, &current, &files(&[])), call(&id, &request));
            match got.await {
                Ok(published) => assert!(same && published == *saved, "{published:?}"),
                Err(refusal) => assert!(!same && refusal.code == Code::Conflict, "{refusal}"),
            }
        }
        Op::Edit { file, text } => {
            let mut to = model.on_disk.last().unwrap().clone();
            to.insert(NAMES[file].into(), vec![text; text.into()]);
            put(&workspace.root, model.on_disk.last().unwrap(), &to);
            *model.on_disk.last_mut().unwrap() = to;
        }
        Op::Undo => {
            put(&workspace.root, model.on_disk.last().unwrap(), &current);
            *model.on_disk.last_mut().unwrap() = current;
        }
        Op::Refresh { reviewed, behind } => {
            let held = model.on_disk.last().unwrap().clone();
            let digest = if reviewed { manifest(&held).digest() } else { Digest::of(b"another") };
            let asked = workspace.revision.saturating_sub(u32::try_from(behind).unwrap());
            let got = service.refresh(&session.id, asked, &digest).await;
            let again = behind == 1 && asked > 0 && asked < workspace.revision && digest == workspace.digest;
            let refused = if again {
                None
            } else if behind > 0 {
                Some(Code::StaleRevision)
            } else if !reviewed {
                Some(Code::WorkspaceChanged)
            } else {
                None
            };
            assert_eq!(got.as_ref().err().map(|refusal| refusal.code), refused, "{op:?}");
            match got {
                Ok(same) if again || !model.edited() => assert_eq!(same, workspace),
                Ok(adopted) => model.publish(adopted, held),
                Err(_) => {}
            }
        }
        Op::Restart => {}
    }
}

async fn run(ops: Vec<Op>) {
    let (world, mut service, session) = World::ready().await;
    let imported = files(&[("src/main.js", "1")]);
    let workspace = session.workspace.clone().unwrap();
    let mut model = Model {
        published: vec![(workspace.clone(), imported.clone())],
        on_disk: vec![imported],
        receipts: vec![],
    };
    for op in &ops {
        if matches!(op, Op::Restart) {
            service.shutdown(false).await.unwrap();
            service = world.start().await;
        }
        step(&service, &session, &mut model, op).await;
        let now = service.session(&session.id).await.unwrap().workspace.unwrap();
        assert_eq!(now, model.current().0);
        for ((at, files), held) in model.published.iter().zip(&model.on_disk) {
            assert_eq!(at.digest, manifest(files).digest());
            assert_eq!(tree(Path::new(&at.root)), manifest(held), "{}", at.root);
        }
        let workspace = std::fs::read_dir(Path::new(&now.root).parent().unwrap()).unwrap();
        assert_eq!(workspace.count(), model.published.len(), "something is left");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn ft4_any_sequence_agrees_with_a_model_in_memory(ops in prop::collection::vec(op(), 1..14)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(ops));
    }
}
