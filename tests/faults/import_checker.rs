//! The checker of imports and removals: believes the ledger's file and the directories alone. A session is
//! there whole, with its workspace and nothing else in it, or there is nothing of it.

use crate::checker::Findings;
use crate::child::Place;
use rusqlite::{Connection, OpenFlags};
use salaam::domain::ids::SessionId;
use salaam::workspace::observe::observe;
use salaam::workspace::policy::Limits;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Checks a place whose services have stopped; `told` are the sessions that must be there.
pub fn check(place: &Place, told: &[SessionId]) -> Findings {
    let mut found = Findings::default();
    let path = place.setup.state.join("ledger.db");
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let rows = |sql: &str| -> Vec<[String; 3]> {
        let mut statement = db.prepare(sql).unwrap();
        let row = |row: &rusqlite::Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?]);
        statement.query_map([], row).unwrap().map(Result::unwrap).collect()
    };
    let sessions = rows("SELECT id, phase, coalesce(workspace_id, '') FROM sessions");
    for [id, phase, _] in &sessions {
        if phase != "active" {
            found.lost.push(format!("{id} is still {phase}"));
        }
    }
    for id in told {
        if !sessions.iter().any(|[have, ..]| have == id.as_str()) {
            found.lost.push(format!("{id} was acknowledged"));
        }
    }
    let owned: BTreeSet<&String> = sessions.iter().map(|[.., workspace]| workspace).collect();
    for [id, ..] in rows("SELECT id, '', '' FROM workspaces") {
        if !owned.contains(&id) {
            found.leftovers.push(format!("the row of {id}"));
        }
    }
    let mut known = BTreeSet::new();
    for [id, digest, root] in rows("SELECT workspace_id, digest, root FROM revisions") {
        let seen = observe(Path::new(&root), &Limits::fixed());
        if !seen.is_ok_and(|s| s.refused.is_empty() && s.manifest.digest().as_str() == digest) {
            found.invented.push(format!("{root} is not its digest"));
        }
        known.extend([place.setup.coding.join(&id), PathBuf::from(root)]);
        if !owned.contains(&id) {
            found.leftovers.push(format!("a revision of {id}"));
        }
    }
    for [.., id] in &sessions {
        if !known.contains(&place.setup.coding.join(id)) {
            found.lost.push(format!("{id} has no revision"));
        }
    }
    for dir in std::fs::read_dir(&place.setup.coding).unwrap().flatten() {
        let below = std::fs::read_dir(dir.path()).into_iter().flatten().flatten().map(|e| e.path());
        let all = std::iter::once(dir.path()).chain(below).filter(|path| !known.contains(path));
        found.leftovers.extend(all.map(|path| path.display().to_string()));
    }
    found
}
