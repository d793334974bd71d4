//! The checker of revisions: believes the ledger's file and the directories alone (B10, B12).
//!
//! Old roots are as they were published; a new root is absent or digest-exact; root, revision, completion
//! event and receipt are all there or none; nothing is left that no row names.

use crate::checker::Findings;
use crate::child::Place;
use rusqlite::{Connection, OpenFlags};
use salaam::domain::application::{Event, Intent};
use salaam::domain::session::Workspace;
use salaam::workspace::observe::observe;
use salaam::workspace::policy::Limits;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

struct Revision {
    number: u32,
    digest: String,
    root: String,
}

struct Applied {
    intent: Intent,
    phase: String,
    events: Vec<Event>,
    has_manifest: bool,
}

fn texts<const N: usize>(db: &Connection, sql: &str) -> Vec<[String; N]> {
    let mut statement = db.prepare(sql).unwrap();
    let mut rows = statement.query([]).unwrap();
    let mut out = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        out.push(std::array::from_fn(|i| row.get::<_, Option<String>>(i).unwrap().unwrap_or_default()));
    }
    out
}

/// Checks the one workspace of a place whose services have stopped; `edited` is what a person wrote into
/// which revision's directory, and `acknowledged` what a publication answered.
pub fn check(place: &Place, edited: Option<u32>, acknowledged: &[Workspace]) -> Findings {
    let mut found = Findings::default();
    let path = place.setup.state.join("ledger.db");
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let revisions: Vec<Revision> =
        texts(&db, "SELECT CAST(revision AS TEXT), digest, root FROM revisions ORDER BY revision")
            .into_iter()
            .map(|[number, digest, root]| Revision { number: number.parse().unwrap(), digest, root })
            .collect();
    let [[id, current]] = &texts(&db, "SELECT id, CAST(revision AS TEXT) FROM workspaces")[..] else {
        found.lost.push("there is not one workspace".into());
        return found;
    };
    let current: u32 = current.parse().unwrap();
    for (index, revision) in (1..).zip(&revisions) {
        let seen = observe(Path::new(&revision.root), &Limits::fixed());
        let exact =
            seen.is_ok_and(|s| s.refused.is_empty() && s.manifest.digest().as_str() == revision.digest);
        if revision.number != index || (!exact && edited != Some(revision.number)) {
            found
                .invented
                .push(format!("revision {} at {} is not its digest", revision.number, revision.root));
        }
    }
    if revisions.last().map(|r| r.number) != Some(current) {
        found.invented.push(format!("revision {current} is current, of {} revisions", revisions.len()));
    }
    let applied = applied(&db);
    let kept = journal(&applied, &revisions, &mut found);
    receipts(&db, &applied, &mut found);
    for workspace in acknowledged {
        let there = revisions.iter().any(|r| {
            (r.number, r.digest.as_str(), &r.root)
                == (workspace.revision, workspace.digest.as_str(), &workspace.root)
        });
        if !there {
            found.lost.push(format!("revision {} was acknowledged", workspace.revision));
        }
    }
    let known: BTreeSet<PathBuf> = revisions.iter().map(|r| PathBuf::from(&r.root)).chain(kept).collect();
    for entry in std::fs::read_dir(place.setup.coding.join(id)).unwrap().flatten() {
        if !known.contains(&entry.path()) {
            found.leftovers.push(entry.path().display().to_string());
        }
    }
    found
}

fn applied(db: &Connection) -> Vec<Applied> {
    let sql = "SELECT id, intent, phase, manifest FROM applications ORDER BY seq";
    let mut events: BTreeMap<String, Vec<Event>> = BTreeMap::new();
    for [id, event] in texts(db, "SELECT application_id, event FROM application_events ORDER BY seq") {
        events.entry(id).or_default().push(serde_json::from_str(&event).unwrap());
    }
    texts(db, sql)
        .into_iter()
        .map(|[id, intent, phase, manifest]| Applied {
            intent: serde_json::from_str(&intent).unwrap(),
            phase,
            events: events.remove(&id).unwrap_or_default(),
            has_manifest: !manifest.is_empty(),
        })
        .collect()
}

/// Each application is decided once, and each revision past the import was published by one. Answers the
/// directories that are kept.
fn journal(applied: &[Applied], revisions: &[Revision], found: &mut Findings) -> Vec<PathBuf> {
    let mut kept = Vec::new();
    let mut published = BTreeSet::new();
    for one in applied {
        let id = &one.intent.id;
        let end = match (&one.events[..], one.phase.as_str()) {
            ([Event::Intended, Event::Published], "published") => {
                let target = &one.intent.target;
                let named = revisions.iter().any(|r| {
                    (r.number, r.digest.as_str(), &r.root)
                        == (target.revision, target.digest.as_str(), &target.root)
                });
                named && published.insert(target.revision)
            }
            ([Event::Intended, Event::Failed { .. }], "failed") => true,
            ([Event::Intended, Event::Blocked { kept: dir, .. }], "blocked") => {
                kept.push(PathBuf::from(dir));
                Path::new(dir).is_dir()
            }
            ([Event::Intended], "intended") => {
                found.lost.push(format!("{id} is not decided"));
                continue;
            }
            _ => false,
        };
        if !end || one.has_manifest {
            found.invented.push(format!("{id}: {} after {:?}", one.phase, one.events));
        }
    }
    if published.len() + 1 != revisions.len() {
        found.invented.push(format!("{} publications of {} revisions", published.len(), revisions.len()));
    }
    kept
}

/// Each published call has its one receipt, and each receipt its publication.
fn receipts(db: &Connection, applied: &[Applied], found: &mut Findings) {
    let sql = "SELECT session_id, call_id, application_id, request, workspace FROM receipts";
    let receipts = texts::<5>(db, sql);
    for [_, call, application, request, workspace] in &receipts {
        let workspace: Workspace = serde_json::from_str(workspace).unwrap();
        let exact = applied.iter().any(|one| {
            let (i, asked) = (&one.intent, one.intent.call.as_ref());
            one.phase == "published"
                && i.id.as_str() == application
                && asked.is_some_and(|c| c.id.as_str() == call && c.request.as_str() == request)
                && (i.target.revision, &i.target.digest) == (workspace.revision, &workspace.digest)
                && i.target.root == workspace.root
        });
        if !exact {
            found.invented.push(format!("the receipt of {call} for {application}"));
        }
    }
    let answered = applied.iter().filter(|one| one.phase == "published" && one.intent.call.is_some()).count();
    if answered != receipts.len() {
        found.lost.push(format!("{answered} calls were published, {} have receipts", receipts.len()));
    }
    let calls: BTreeSet<_> = receipts.iter().map(|r| (&r[0], &r[1])).collect();
    if calls.len() != receipts.len() {
        found.duplicates.push("a call has two receipts".into());
    }
}
