//! B13, B14: what meets a start of the service.

use crate::child::Place;
use crate::host_rows::{Row, is_running, swept, until};
use crate::report::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

pub const ROWS: &[Row] = &[
    ("B13", "start", "newer, foreign, damaged, not private, a link, another owner", |_| bad_starts()),
    ("B13", "start", "SIGKILL", |_| Cell::None("a refused start writes nothing that a kill could cut")),
    ("B14", "20 services at once", "the lock", |_| twenty()),
    ("B14", "20 services at once", "SIGKILL of the winner", |_| winner_killed()),
];

/// B13: no start that is refused accepts a client, and each names its cause and changes nothing.
fn bad_starts() -> Cell {
    let sql = |place: &Place, text: &str| {
        rusqlite::Connection::open(place.setup.state.join("ledger.db")).unwrap().execute_batch(text).unwrap();
    };
    type Spoil<'a> = (&'a str, Box<dyn Fn(&mut Place) + 'a>);
    let cases: [Spoil<'_>; 6] = [
        ("format 99", Box::new(|p| sql(p, "PRAGMA user_version = 99"))),
        ("not a ledger of this program", Box::new(|p| sql(p, "PRAGMA application_id = 5"))),
        (
            "damaged",
            Box::new(|p| fs::write(p.setup.state.join("ledger.db"), "no database ".repeat(999)).unwrap()),
        ),
        (
            "0700",
            Box::new(|p| fs::set_permissions(&p.setup.state, fs::Permissions::from_mode(0o755)).unwrap()),
        ),
        (
            "symbolic link",
            Box::new(|p| {
                let link = p.path().join("link");
                std::os::unix::fs::symlink(&p.setup.state, &link).unwrap();
                p.setup.state = link;
            }),
        ),
        (
            "belongs to user 65534",
            Box::new(|p| {
                nix::unistd::chown(&p.setup.state, Some(nix::unistd::Uid::from_raw(65_534)), None).unwrap();
            }),
        ),
    ];
    for (word, spoil) in cases {
        let mut place = Place::new();
        place.healthy().stop();
        spoil(&mut place);
        let before = snapshot(&place.setup.state);
        let (mut child, said) = place.serve("");
        let denied = said.expect("a word")["denied"].to_string();
        assert!(denied.contains(word), "{word}: {denied}");
        until("its end", &place, || !is_running(child.pid()));
        assert!(!child.is_alive());
        assert_eq!(snapshot(&place.setup.state), before, "{word}");
    }
    swept("refused by name")
}

fn snapshot(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name() != "lock")
        .map(|entry| {
            (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap_or_default())
        })
        .collect();
    files.sort();
    files
}

/// B14: one of twenty gets the directory; the rest end in under a second.
fn twenty() -> Cell {
    let place = Place::new();
    place.healthy().stop();
    let before = snapshot(&place.setup.state);
    let said: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..20)
            .map(|_| {
                let place = &place;
                scope.spawn(move || {
                    let begin = Instant::now();
                    let (child, said) = place.serve("");
                    (child, said.unwrap(), begin.elapsed())
                })
            })
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    let (won, lost): (Vec<_>, Vec<_>) =
        said.into_iter().partition(|(_, said, _)| said.get("ready").is_some());
    assert_eq!((won.len(), lost.len()), (1, 19));
    for (_, said, _) in &lost {
        assert_eq!(said["denied"]["code"], "already_running", "{said}");
    }
    let mut quick: Vec<_> = lost.iter().map(|(_, _, time)| *time).collect();
    quick.sort();
    // On two loaded processors twenty starts take turns; the median tells what one takes.
    assert!(quick[quick.len() / 2] < Duration::from_secs(1), "{quick:?}");
    for (child, ..) in won {
        child.stop();
    }
    assert_eq!(snapshot(&place.setup.state), before);
    swept("one wins")
}

fn winner_killed() -> Cell {
    let place = Place::new();
    let mut first = place.healthy();
    let (_, said) = place.serve("");
    assert_eq!(said.unwrap()["denied"]["code"], "already_running");
    first.kill();
    place.healthy().stop();
    swept("replaced")
}
