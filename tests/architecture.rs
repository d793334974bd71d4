//! Holds what ARCHITECTURE.md says of the code's shape: which module may use which, where unsafe code
//! and libcontainer may be, how long a file may get, and that each family of requirements is cited.
//!
//! Every rule is a function over (path, text) pairs, so that each is also shown to find what is planted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Which modules a module may use beside itself; the longest matching prefix decides.
const DIRECTION: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("fault", &[]),
    ("workspace", &["domain", "fault"]),
    ("ledger", &["domain", "fault"]),
    ("image", &["domain"]),
    ("exec", &["domain", "fault"]),
    ("proof", &["domain"]),
    ("supervisor", &["domain", "exec::lock", "exec::oci", "exec::seccomp", "fault"]),
    // Workspaces and images reach the service through its ports alone.
    ("service", &["domain", "exec", "fault", "ledger", "proof"]),
    ("api", &["domain", "service"]),
    ("api::wire", &["domain"]),
    ("api::socket", &["domain"]),
    ("api::client", &["api::socket", "api::wire", "domain"]),
    ("cli", &["api::client", "api::openapi", "api::wire", "domain"]),
    ("mcp", &["api::client", "api::wire", "domain"]),
    ("agent", &["api::client", "api::wire", "domain"]),
    ("main", &["cli", "proof::probe", "supervisor"]),
];

/// The only files that may use more than their module: those that wire a service together, and the
/// operator's verbs on the image store, which need no service.
const WIRING: &[(&str, &[&str])] = &[
    (
        "src/cli/service/assemble.rs",
        &["exec::ExecError", "exec::native", "image", "proof::report", "service"],
    ),
    ("src/cli/service/workspaces.rs", &["service::ports", "workspace"]),
    ("src/cli/service/foreground.rs", &["api::routes", "api::server", "api::socket"]),
    ("src/cli/image/default.rs", &["image"]),
    ("src/cli/image/pull.rs", &["image"]),
    ("src/cli/image/pulling.rs", &["image"]),
    ("src/cli/image/users.rs", &["service::state_dir"]),
    ("src/cli/image/store.rs", &["image"]),
    ("src/cli/image/view.rs", &["image"]),
];

/// The only files with unsafe code.
const UNSAFE: &[&str] = &["src/supervisor/sys.rs", "src/proof/probe/sys.rs"];

/// Most lines of a source file.
const LINES: usize = 600;

/// Families of requirements of which something is built.
const BUILT: &[&str] = &["SVC", "IMG", "PRF", "WS", "FT", "CMD", "EXE", "SES"];
/// Families of which nothing is; the first test that is named after one moves it to [`BUILT`].
const NOT_BUILT: &[&str] = &["DKR", "PRV"];

/// Families each of whose requirements has a test, with their highest number.
const EACH: &[(&str, u32)] = &[("WS", 8), ("FT", 6)];

type File<'a> = (&'a str, &'a str);

/// A piece of code: an identifier, `::`, or any other single character.
fn tokens(code: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        out.push(token);
        rest = after.trim_start();
    }
    out
}

/// The text without comments, and with the content of strings and characters left out.
fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word_before = out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if c == '"' {
            quoted(rest, '"')
        } else if (c == 'r' || rest.starts_with("br")) && !word_before {
            raw_string(rest)
        } else if c == '\'' {
            character(rest)
        } else {
            0
        };
        if skipped > 0 {
            out.push(' ');
            rest = &rest[skipped..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// Length of the (perhaps nested) block comment that `text` starts with.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0usize);
    while let Some(c) = text[at..].chars().next() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += c.len_utf8();
        }
    }
    text.len()
}

/// Length of the literal that `text` starts with, up to the closing `quote` that is not escaped.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + c.len_utf8();
        }
    }
    text.len()
}

/// Length of the raw string that `text` starts with; 0 when it is none.
fn raw_string(text: &str) -> usize {
    let start = if text.starts_with("br") { 2 } else { 1 };
    let hashes = text[start..].chars().take_while(|c| *c == '#').count();
    let open = start + hashes;
    if !text[open..].starts_with('"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    text[open + 1..].find(&close).map_or(text.len(), |at| open + 1 + at + close.len())
}

/// Length of the character literal that `text` starts with; 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut inside = text.chars().skip(1);
    match (inside.next(), inside.next()) {
        (Some('\\'), _) => quoted(text, '\''),
        (Some(c), Some('\'')) => c.len_utf8() + 2,
        _ => 0,
    }
}

/// The module that a file is, as its path below `src`; the empty path for `lib.rs`.
fn module(path: &str) -> Vec<String> {
    let below = path.strip_prefix("src/").unwrap_or(path).trim_end_matches(".rs");
    let mut parts: Vec<String> = below.split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| last == "mod" || last == "lib") {
        parts.pop();
    }
    parts
}

/// Every path into this crate that a file names, from the crate's root on, groups spelled out.
fn paths(file: File) -> Vec<Vec<String>> {
    let code = code_only(file.1);
    let tokens = tokens(&code);
    let own = module(file.0);
    let mut out = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let starts = tokens.get(at + 1) == Some(&"::") && (at == 0 || tokens[at - 1] != "::");
        let mut base = match tokens[at] {
            "crate" | "salaam" if starts => Vec::new(),
            "self" if starts => own.clone(),
            "super" if starts => own[..own.len().saturating_sub(1)].to_vec(),
            _ => {
                at += 1;
                continue;
            }
        };
        at += 2;
        while tokens.get(at) == Some(&"super") && tokens.get(at + 1) == Some(&"::") {
            base.pop();
            at += 2;
        }
        at = tree(&tokens, at, base, &mut out);
    }
    out
}

/// Reads what follows a `::`; gives the place of the next token.
fn tree(tokens: &[&str], mut at: usize, mut path: Vec<String>, out: &mut Vec<Vec<String>>) -> usize {
    loop {
        match tokens.get(at) {
            Some(&"{") => {
                at += 1;
                while at < tokens.len() && tokens[at] != "}" {
                    at = tree(tokens, at, path.clone(), out);
                    // `as NAME`, then the comma.
                    while at < tokens.len() && tokens[at] != "," && tokens[at] != "}" {
                        at += 1;
                    }
                    if tokens.get(at) == Some(&",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            Some(word) if word.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                if *word != "self" {
                    path.push((*word).to_owned());
                }
                at += 1;
                if tokens.get(at) != Some(&"::") {
                    out.push(path);
                    return at;
                }
                at += 1;
            }
            _ => {
                out.push(path);
                return at;
            }
        }
    }
}

/// True when `path` is `prefix` or lies below it.
fn is_below(path: &[String], prefix: &str) -> bool {
    let mut own = path.iter();
    prefix.split("::").all(|part| own.next().is_some_and(|p| p == part))
}

/// What may be used beside the module itself, and which module that is; `None` without a rule.
fn rule(from: &[String]) -> Option<(&'static str, &'static [&'static str])> {
    let fits = DIRECTION.iter().filter(|(name, _)| is_below(from, name));
    fits.max_by_key(|(name, _)| name.len()).map(|(name, may)| (*name, *may))
}

/// What a file uses against the direction, one line each.
fn against_direction(file: File, wiring: &[(&str, &[&str])]) -> Vec<String> {
    let own = module(file.0);
    if own.is_empty() {
        return Vec::new();
    }
    let Some((name, may)) = rule(&own) else {
        return vec![format!("{}: there is no rule for this module", file.0)];
    };
    let more = wiring.iter().find(|(path, _)| *path == file.0).map_or(&[][..], |(_, more)| *more);
    let used: BTreeSet<Vec<String>> = paths(file).into_iter().collect();
    let wrong = used.iter().filter(|path| {
        // A parent alone, as in a test's `use super::*`, says nothing.
        let says_nothing = path.is_empty() || own.starts_with(path);
        let ours = is_below(path, name) && rule(path).is_some_and(|(theirs, _)| theirs == name);
        // What a folder's own rule forbids is decided there, not by its neighbours.
        let same_folder = path.first() == own.first() && !name.contains("::");
        !(says_nothing || ours || same_folder || may.iter().chain(more).any(|m| is_below(path, m)))
    });
    wrong.map(|path| format!("{}: {name} may not use {}", file.0, path.join("::"))).collect()
}

/// Every rule but the direction: unsafe code, libcontainer, length.
fn against_the_rest(file: File) -> Vec<String> {
    let code = code_only(file.1);
    let tokens = tokens(&code);
    let mut out = Vec::new();
    for word in ["unsafe", "unsafe_code"] {
        if tokens.contains(&word) && !UNSAFE.contains(&file.0) {
            out.push(format!("{}: `{word}` outside of {}", file.0, UNSAFE.join(" and ")));
        }
    }
    let foreign = tokens.windows(2).any(|pair| pair == ["libcontainer", "::"]);
    if foreign && !file.0.starts_with("src/supervisor/") {
        out.push(format!("{}: libcontainer outside of the supervisor", file.0));
    }
    let lines = file.1.lines().count();
    if lines > LINES {
        out.push(format!("{}: {lines} lines; the most is {LINES}", file.0));
    }
    out
}

fn violations(files: &[File]) -> Vec<String> {
    files
        .iter()
        .flat_map(|file| [against_direction(*file, WIRING), against_the_rest(*file)].concat())
        .collect()
}

/// Whether a text cites a family: `CMD.4` or `(CMD…` in a comment, or by the name of a test.
fn cites(text: &str, family: &str) -> bool {
    follows(text, &format!("{family}."), |c| c.is_ascii_digit())
        || text.contains(&format!("({family}"))
        || names(text, family)
}

/// Whether a text has a test that is named after a family: `fn cmd4_…` or `"cmd4_…`.
fn names(text: &str, family: &str) -> bool {
    let lower = family.to_lowercase();
    ["fn ", "\""]
        .iter()
        .any(|start| follows(text, &format!("{start}{lower}"), |c| c.is_ascii_digit() || c == '_'))
}

/// Whether a text cites one requirement: `WS.4`, or in the name of a test, `fn ws4_…` or `…_ws4_…`.
fn cites_one(text: &str, family: &str, number: u32) -> bool {
    let name = format!("{}{number}_", family.to_lowercase());
    follows(text, &format!("{family}.{number}"), |c| !c.is_ascii_digit())
        || ["fn ", "\"", "_"].iter().any(|start| text.contains(&format!("{start}{name}")))
}

fn follows(text: &str, start: &str, fits: fn(char) -> bool) -> bool {
    text.match_indices(start).any(|(at, _)| text[at + start.len()..].starts_with(fits))
}

/// Reads every Rust file below a folder of the package, as (path from the package's root, text).
fn read(folder: &str) -> Vec<(String, String)> {
    fn walk(dir: &Path, out: &mut Vec<(String, String)>) {
        let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                walk(&path, out);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let root = Path::new(env!("CARGO_MANIFEST_DIR"));
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                out.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut out = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut out);
    assert!(!out.is_empty(), "no Rust file below {folder}");
    out
}

fn borrowed(files: &[(String, String)]) -> Vec<File<'_>> {
    files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect()
}

#[test]
fn the_code_keeps_its_direction_and_its_bounds() {
    let found = violations(&borrowed(&read("src")));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_exception_outlives_its_need() {
    let files = read("src");
    for (path, more) in WIRING {
        let file = borrowed(&files).into_iter().find(|(name, _)| name == path);
        let file = file.unwrap_or_else(|| panic!("{path} is excepted and does not exist"));
        for one in *more {
            let without: Vec<&str> = more.iter().copied().filter(|m| m != one).collect();
            let found = against_direction(file, &[(path, &without)]);
            assert!(!found.is_empty(), "{path} does not need its exception for {one}");
        }
    }
    for path in UNSAFE {
        let file = borrowed(&files).into_iter().find(|(name, _)| name == path).unwrap();
        assert!(tokens(&code_only(file.1)).contains(&"unsafe"), "{path} has no unsafe code");
    }
}

#[test]
fn every_family_of_requirements_is_cited() {
    let mut files = read("src");
    files.extend(read("tests").into_iter().filter(|(path, _)| path != "tests/architecture.rs"));
    let cited = |family: &str| files.iter().any(|(_, text)| cites(text, family));
    for family in BUILT {
        assert!(cited(family), "no test name or comment cites {family}");
    }
    for family in NOT_BUILT {
        let named = files.iter().find(|(_, text)| names(text, family));
        assert!(named.is_none(), "{} has a test of {family}: move it to BUILT", named.unwrap().0);
    }
}

#[test]
fn every_requirement_on_workspaces_and_files_has_a_test() {
    let mut files = read("tests");
    files.retain(|(path, _)| path != "tests/architecture.rs");
    let own = read("src");
    for (family, most) in EACH {
        for number in 1..=*most {
            let cited = files.iter().any(|(_, text)| cites_one(text, family, number));
            let named = format!("fn {}{number}_", family.to_lowercase());
            let cited = cited || own.iter().any(|(_, text)| text.contains(&named));
            assert!(cited, "no test cites {family}.{number}");
        }
        let past = files.iter().find(|(_, text)| cites_one(text, family, most + 1));
        assert!(past.is_none(), "{} cites {family}.{}: raise EACH", past.unwrap().0, most + 1);
    }
    for text in ["(WS.1)", "//! WS.1, WS.2", "fn ws1_x()", "(\"ws6_ws1_x\", f)"] {
        assert!(cites_one(text, "WS", 1), "{text}");
    }
    for text in ["WS.10", "ws1", "fn ws10_x()", "FT.1", "news1_x"] {
        assert!(!cites_one(text, "WS", 1), "{text}");
    }
}

#[test]
fn planted_imports_against_the_direction_are_found() {
    for (path, text) in [
        ("src/domain/run.rs", "use crate::ledger::Ledger;"),
        ("src/domain/run.rs", "use super::super::service;"),
        ("src/ledger/runs.rs", "use crate::image::Store;"),
        ("src/image/store.rs", "use crate::{domain::digest::Digest, workspace::store};"),
        ("src/exec/native.rs", "fn f() { crate::supervisor::main(&[]); }"),
        ("src/proof/report.rs", "pub(crate) use crate::exec as e;"),
        ("src/supervisor/life.rs", "use crate::exec::{oci, native::NativeExecutor};"),
        ("src/supervisor/life.rs", "use crate::service::clock;"),
        ("src/service/core.rs", "use crate::workspace::store::Store;"),
        ("src/service/core.rs", "use crate::api::wire;"),
        ("src/api/routes/logs.rs", "use crate::ledger::Ledger;"),
        ("src/api/wire.rs", "use crate::service::Status;"),
        ("src/api/client.rs", "use super::{routes::router, wire};"),
        ("src/cli/commands/start.rs", "use crate::service::Service;"),
        ("src/cli/service/status.rs", "use crate::api::server;"),
        ("src/cli/service/workspaces.rs", "use crate::ledger::Ledger;"),
        ("src/mcp.rs", "use crate::exec::Executor;"),
        ("src/main.rs", "fn main() { salaam::service::go() }"),
        ("src/novel/mod.rs", ""),
    ] {
        assert_eq!(violations(&[(path, text)]).len(), 1, "{path}: {text}");
    }
}

#[test]
fn what_is_allowed_is_not_reported() {
    for (path, text) in [
        ("src/lib.rs", "pub mod domain;"),
        ("src/main.rs", "fn main() { salaam::cli::main() }"),
        ("src/domain/run.rs", "use super::ids::RunId;\n#[cfg(test)] mod tests { use super::*; }"),
        ("src/service/core.rs", "use crate::ledger::{Ledger, LedgerError};"),
        ("src/supervisor/life.rs", "use crate::exec::{oci, seccomp}; use super::{sweep, sys};"),
        ("src/api/client.rs", "use super::wire::{ENDED, TOTAL}; use super::{socket, wire};"),
        ("src/api/server.rs", "use super::routes::{Api, router}; use crate::service::Service;"),
        ("src/cli/service/foreground.rs", "use crate::api::{server, socket};"),
        ("src/cli/image/view.rs", "use crate::image::ImageRecord;"),
        ("src/ledger/runs.rs", "// use crate::image::Store;\nconst A: &str = \"crate::image::Store\";"),
        ("src/ledger/runs.rs", "/// See [`crate::service`].\nfn f<'a>(x: &'a str) -> char { '\"' }"),
        ("src/ledger/runs.rs", "const A: &str = r#\"\"unsafe\" libcontainer::x\"#; // unsafe"),
        ("src/service/state_dir.rs", "let unsafe_path = 1;"),
    ] {
        assert_eq!(violations(&[(path, text)]), Vec::<String>::new(), "{path}: {text}");
    }
}

#[test]
fn planted_unsafe_code_foreign_use_and_length_are_found() {
    let long = "\n".repeat(LINES + 1);
    for (path, text) in [
        ("src/supervisor/life.rs", "fn f() { unsafe { g() } }"),
        ("src/service/core.rs", "#![allow(unsafe_code)]"),
        ("src/exec/native.rs", "use libcontainer::container::Container;"),
        ("src/domain/run.rs", long.as_str()),
    ] {
        assert_eq!(violations(&[(path, text)]).len(), 1, "{path}");
    }
    assert!(
        violations(&[("src/proof/probe/sys.rs", "#![allow(unsafe_code)] fn f() { unsafe {} }")]).is_empty()
    );
    assert!(
        violations(&[("src/supervisor/container.rs", "use libcontainer::container::Container;")]).is_empty()
    );
}

#[test]
fn a_citation_is_an_id_or_a_name_and_nothing_else() {
    for text in ["//! Admission (CMD.3).", "fn cmd3_places() {}", "(\"cmd10_deadline\", deadline),"] {
        assert!(cites(text, "CMD"), "{text}");
    }
    for text in ["the command", "fn cmd() {}", "CMD", "fn cmdline() {}"] {
        assert!(!cites(text, "CMD"), "{text}");
    }
}
