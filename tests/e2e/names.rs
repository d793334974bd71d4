//! I3: what may not enter a workspace (WS.1 to WS.3) enters by no way: neither by an import, nor by a
//! patch, nor by hand and a refresh; in odd letter case or another Unicode form.

use crate::Case;
use crate::cases::{inspect, root};
use crate::excluded::EXCLUDED;
use crate::host::{Host, Seen};
use crate::review::tool;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

pub const CASES: &[Case] = &[
    ("i3_ws1_excluded_names_in_any_case_by_import_patch_and_refresh", excluded),
    ("i3_ws2_refused_kinds_and_twins_by_import_patch_and_refresh", refused),
    ("ws3_limits_by_patch_and_refresh", limits),
];

fn patch(host: &Host, session: &str, revision: u64, paths: &[String], content: &str) -> Seen {
    let file = |path: &String| json!({ "path": path, "expected_hash": null, "content": content });
    let files: Vec<Value> = paths.iter().map(file).collect();
    let request = json!({ "operation": "patch", "revision": revision, "files": files });
    tool(host, session, "c-1", &request)
}

fn refresh(host: &Host, session: &str, view: &Value) -> Seen {
    let (revision, digest) = (view["revision"].to_string(), view["observed_digest"].as_str().unwrap());
    host.sal(&["workspace", "refresh", session, "--revision", &revision, "--digest", digest, "--json"])
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap()).collect()
}

fn excluded(host: &Host) {
    let project = host.project("i3-excluded", &[("src/a.js", b"1")]);
    let plant = |at: &Path| {
        for (n, name) in EXCLUDED.iter().enumerate() {
            if n % 2 == 0 {
                fs::write(at.join(name), "canary").unwrap();
            } else {
                fs::create_dir(at.join(name)).unwrap();
                fs::write(at.join(name).join("inside"), "canary").unwrap();
            }
        }
    };
    plant(&project.join("src"));
    let session = host.session(&project);
    let view = inspect(host, &session);
    let listed = names(&view["excluded"]);
    for name in EXCLUDED {
        let name = name.replace('\u{200c}', "\\u{200c}");
        assert!(listed.contains(&format!("src/{name}").as_str()), "{name}: {listed:?}");
    }
    assert_eq!(fs::read_dir(root(host, &session).join("src")).unwrap().count(), 1);
    // By a patch: each is named with its reason, and the good file beside them is not made either.
    for below in ["", "/deep/x.js"] {
        for chunk in EXCLUDED.chunks(15) {
            let mut paths: Vec<String> = chunk.iter().map(|name| format!("lib/{name}{below}")).collect();
            paths.push("lib/good.js".into());
            let seen = patch(host, &session, 1, &paths, "x");
            assert_ne!(seen.code, 0, "{seen:?}");
            let said = seen.stderr.replace("\\\\", "\\");
            for name in chunk {
                let name = name.replace('\u{200c}', "\\u{200c}");
                assert!(said.contains(&format!("'lib/{name}{below}' is an excluded name")), "{name}: {said}");
            }
            assert!(!said.contains("'lib/good.js'"), "{said}");
        }
    }
    assert_eq!(inspect(host, &session), view);
    // By hand: they are listed, and stay out of what is adopted.
    let dir = root(host, &session);
    plant(&dir);
    fs::write(dir.join("by-hand.js"), "2").unwrap();
    let view = inspect(host, &session);
    for name in EXCLUDED {
        let name = name.replace('\u{200c}', "\\u{200c}");
        assert!(names(&view["excluded"]).contains(&name.as_str()), "{name}");
    }
    assert_eq!(names(&view["changes"]), ["by-hand.js"]);
    assert_eq!(refresh(host, &session, &view).ok().json()["revision"], 2);
    let mut left: Vec<_> = fs::read_dir(root(host, &session))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["by-hand.js", "src"]);
}

type Plant = fn(&Path);

/// What a person or a program could put into a directory, and the words that name it.
const REFUSED: &[(&str, &str, Plant)] = &[
    ("'Link'", "is a symlink", |at| symlink("/etc/passwd", at.join("Link")).unwrap()),
    ("'up'", "is a symlink", |at| symlink("..", at.join("up")).unwrap()),
    ("'Hard'", "is a hardlink", |at| fs::hard_link(at.join("a.js"), at.join("Hard")).unwrap()),
    ("'Pipe'", "is a FIFO", |at| {
        nix::unistd::mkfifo(&at.join("Pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }),
    ("'Sock'", "is a socket", |at| {
        drop(std::os::unix::net::UnixListener::bind(at.join("Sock")).unwrap());
    }),
    ("'A.JS'", "collide", |at| fs::write(at.join("A.JS"), "").unwrap()),
    ("\u{e9}.js'", "collide", |at| {
        fs::write(at.join("\u{e9}.js"), "").unwrap();
        fs::write(at.join("e\u{301}.js"), "").unwrap();
    }),
    ("stra\u{df}e'", "collide", |at| {
        fs::create_dir(at.join("stra\u{df}e")).unwrap();
        fs::create_dir(at.join("STRASSE")).unwrap();
    }),
    ("\\xff", "not UTF-8", |at| fs::write(at.join(OsStr::from_bytes(b"bad\xff")), "").unwrap()),
    ("\\n", "control character", |at| fs::write(at.join("new\nline"), "").unwrap()),
    ("\\u{1b}", "control character", |at| fs::write(at.join("esc\u{1b}[2J"), "").unwrap()),
];

fn refused(host: &Host) {
    for (n, (path, word, plant)) in REFUSED.iter().enumerate() {
        let says = |seen: &Seen, code: &str| {
            let error = seen.error();
            let message = error["message"].as_str().unwrap();
            assert_eq!((seen.code, error["code"].as_str()), (125, Some(code)), "{word}: {seen:?}");
            assert!(message.contains(path) && message.contains(word), "{path} {word}: {message}");
        };
        let project = host.project(&format!("i3-{n}"), &[("a.js", b"1")]);
        plant(&project);
        let cwd = project.to_str().unwrap();
        says(&host.sal(&["session", "create", "--coding", "--json", "--cwd", cwd]), "import_refused");
        let clean = host.project(&format!("i3-{n}-clean"), &[("a.js", b"1")]);
        let session = host.session(&clean);
        let before = inspect(host, &session);
        plant(Path::new(before["root"].as_str().unwrap()));
        says(&host.sal(&["workspace", "inspect", &session, "--json"]), "workspace_changed");
        says(&refresh(host, &session, &before), "workspace_changed");
        let start = host.sal(&["commands", "start", &session, "--json", "--command", "true"]);
        says(&start, "workspace_changed");
    }
    // A patch can only name paths: twins of what is there, of each other, and what is no path.
    let session = host.session(&host.project("i3-patch", &[("src/a.js", b"1"), ("\u{e9}.js", b"1")]));
    let before = inspect(host, &session);
    for (paths, word) in [
        (&["src/A.js"][..], "collide"),
        (&["SRC/b.js"], "collide"),
        (&["e\u{301}.js"], "collide"),
        (&["\u{c9}.JS"], "collide"),
        (&["new/\u{e9}", "new/e\u{301}"], "collide"),
        (&["stra\u{df}e", "STRASSE"], "collide"),
        (&["../x"], "'../x'"),
        (&["/x"], "'/x'"),
        (&["src/a.js/x"], "both a file and a directory"),
        (&["x\ny"], "control character"),
    ] {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        let seen = patch(host, &session, 1, &paths, "x");
        assert!(seen.code != 0 && seen.stderr.contains(word), "{paths:?}: {seen:?}");
        assert_eq!(inspect(host, &session), before, "{paths:?}");
    }
}

fn limits(host: &Host) {
    let session = host.session(&host.project("ws3", &[("a.js", b"1")]));
    let before = inspect(host, &session);
    let dir = root(host, &session);
    let hand = dir.join("by-hand");
    let deep = vec!["d"; 16].join("/");
    let many: &[(&str, Plant)] = &[
        ("the limit is 512", |at| (0..512).for_each(|n| fs::write(at.join(n.to_string()), "").unwrap())),
        ("the limit is 4194304", |at| {
            (0..17).for_each(|n| fs::write(at.join(n.to_string()), vec![b'x'; 250_000]).unwrap());
        }),
        ("the limit for one file is 262144", |at| fs::write(at.join("Big"), vec![b'x'; 262_145]).unwrap()),
        ("the limit is 16", |at| fs::create_dir_all(at.join(vec!["d"; 16].join("/"))).unwrap()),
        ("the limit is 2048", |at| {
            (0..2_048).for_each(|n| fs::create_dir(at.join(n.to_string())).unwrap());
        }),
    ];
    for (word, plant) in many {
        fs::create_dir(&hand).unwrap();
        plant(&hand);
        if word.ends_with("16") {
            fs::write(hand.join(&deep).join("f"), "").unwrap();
        }
        let seen = refresh(host, &session, &before);
        assert!(seen.code == 125 && seen.stderr.contains(word), "{word}: {seen:?}");
        assert!(seen.stderr.contains("by-hand"), "the path is not named: {seen:?}");
        fs::remove_dir_all(&hand).unwrap();
        assert_eq!(inspect(host, &session), before);
    }
    let numbered = |most: usize| (0..most).map(|n| format!("n/{n}")).collect::<Vec<_>>();
    for (paths, content, word) in [
        (numbered(512), String::new(), "the limit is 512"),
        (numbered(17), "x".repeat(250_000), "the limit is 4194304"),
        (numbered(1), "x".repeat(262_145), "the limit for one file is 262144"),
        (vec![format!("{deep}/f")], String::new(), "16 components"),
    ] {
        let seen = patch(host, &session, 1, &paths, &content);
        assert!(seen.code != 0 && seen.stderr.contains(word), "{word}: {seen:?}");
        assert_eq!(inspect(host, &session), before);
    }
}
