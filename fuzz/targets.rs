//! What a fuzzer calls, and what must hold whatever it sends. `tests/workspace/seeds.rs` runs the seeds
//! through the same functions.

use salaam::domain::change::Base;
use salaam::domain::diff::Content;
use salaam::domain::digest::Digest;
use salaam::domain::files::{self, Request};
use salaam::domain::manifest::{FileEntry, TreeManifest};
use salaam::domain::relpath::RelPath;
use salaam::workspace::admission::judge;
use salaam::workspace::diff::{Held, Tree, TreeFile, diff as compare};
use salaam::workspace::exclusion;
use salaam::workspace::patch::{Published, plan};
use salaam::workspace::policy::Limits;

/// The tree that patches are planned on; seeds carry the hashes of these contents.
const FILES: [(&str, &[u8]); 3] =
    [("a.js", b"one\ntwo\n"), ("d/run.sh", b"\xef\xbb\xbf#!/bin/sh\r\nexit 0"), ("raw", b"\xff\x00")];

/// Parses `data` as a request and, if it is a patch, plans it. Says whether a tree came of it.
pub fn patch(data: &[u8]) -> bool {
    let request = match Request::parse(data) {
        Ok(request) => request,
        Err(refusal) => {
            assert!(refusal.message.len() < 4_096);
            return false;
        }
    };
    let again = as_json(&request);
    assert_eq!(Request::parse(&again).as_ref(), Ok(&request), "a request is what it is written as");
    let Request::Patch(asked) = request else { return false };
    let entry = |(path, content): (&str, &[u8])| FileEntry {
        path: RelPath::parse(path).expect("a path"),
        executable: path.ends_with(".sh"),
        length: content.len() as u64,
        content: Digest::of(content),
    };
    let tree = TreeManifest::new(FILES.map(|(path, content)| entry((path, content))).to_vec(), vec![]);
    let before = tree.clone();
    let limits = Limits { files: 5, entries: 9, total_bytes: 400, file_bytes: 100, ..Limits::fixed() };
    let base = Base { revision: 1, digest: tree.digest() };
    let read = |file: &FileEntry| {
        let found = FILES.iter().find(|(path, _)| *path == file.path.as_str());
        Ok(found.expect("a file of the tree").1.to_vec())
    };
    let planned = plan(&Published { base: base.clone(), tree: &tree, read }, &asked, &limits);
    assert_eq!(tree, before);
    match planned {
        Ok(change) => {
            assert_eq!(change.base, base);
            assert_ne!(change.target.digest(), base.digest);
            assert!(judge(&change.target, &limits).is_empty());
            for (path, content) in &change.written {
                let file = change.target.file(path).expect("a written file is in the tree");
                assert_eq!(file.content, Digest::of(content));
                assert!(asked.files.iter().any(|named| named.path == path.as_str()));
            }
            true
        }
        Err(refusal) => {
            assert!(!refusal.message.is_empty() && refusal.message.len() < 64 * 1024);
            false
        }
    }
}

/// Parses `data` as a path. Says whether it is one.
pub fn path(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    match files::path(text) {
        Ok(path) => {
            let names: Vec<&str> = path.as_str().split('/').collect();
            assert!(path.is_root() || names.iter().all(|name| !matches!(*name, "" | "." | "..")));
            assert!(names.len() <= 16 && names.iter().all(|name| name.len() <= 255));
            assert!(!path.as_str().chars().any(|c| c.is_control() && c != '\t'));
            assert_eq!(RelPath::parse(path.as_str()).as_ref(), Ok(&path));
            assert!(path.is_within(&RelPath::default()) && path.is_within(&path));
            // An excluded name excludes everything below it.
            if exclusion::of_path(&path).is_some()
                && let Ok(below) = path.join("below")
            {
                assert!(exclusion::of_path(&below).is_some());
            }
            true
        }
        Err(refusal) => {
            assert!(refusal.message.len() < 4_096);
            false
        }
    }
}

/// Compares the contents before and after the first byte 0x1e, of which the two bytes in front say whether
/// they are executable, and applies the patch by itself. Says whether there was one to apply.
pub fn diff(data: &[u8]) -> bool {
    let (bits, data) = data.split_at_checked(2).unwrap_or((b"--", data));
    let at = data.iter().position(|byte| *byte == 0x1e).unwrap_or(data.len());
    let (old, new) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    let tree = |executable: bool, bytes: &[u8]| -> Tree {
        let file = TreeFile { executable, held: Held::Bytes(bytes.to_vec()) };
        [(RelPath::parse("f").expect("a path"), file)].into()
    };
    let modes = [bits[0] == b'x', bits[1] == b'x'];
    let found = compare(&tree(modes[0], old), &tree(modes[1], new));
    let [file] = &found.files[..] else {
        assert!(old == new && modes[0] == modes[1] && found.files.is_empty() && found.patch.is_empty());
        return false;
    };
    assert_eq!(found.patch.len(), file.section.len());
    let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0);
    assert_eq!(file.content == Content::Binary, !is_text(old) || !is_text(new));
    let mut head: Vec<&str> = Vec::new();
    let mut rest = found.patch.as_str();
    while let Some((line, after)) = rest.split_once('\n').filter(|(line, _)| !line.starts_with("@@ ")) {
        head.push(line);
        rest = after;
    }
    assert_eq!(head.contains(&"old mode 100644"), modes == [false, true] && file.in_patch);
    assert_eq!(head.contains(&"new mode 100644"), modes == [true, false] && file.in_patch);
    if old == new || file.content == Content::Binary {
        assert_eq!(file.in_patch, old == new);
        assert!(rest.is_empty() && head.len() == if old == new { 3 } else { 1 }, "{}", found.patch);
        return false;
    }
    assert!(file.in_patch && head.ends_with(&["--- a/f", "+++ b/f"]), "{}", found.patch);
    let made = apply(rest);
    assert_eq!((made.sides[0].as_bytes(), made.sides[1].as_bytes()), (old, new));
    assert_eq!((made.deleted, made.added), (file.deleted_lines, file.added_lines));
    true
}

/// What a hunk says of both sides, and how many lines it changes.
struct Applied {
    sides: [String; 2],
    deleted: u64,
    added: u64,
}

/// Reads one hunk that is all there is, as strictly as its form allows (POSIX diff, unified format).
fn apply(hunk: &str) -> Applied {
    let (header, body) = hunk.split_once('\n').expect("a header");
    let ranges = header.strip_prefix("@@ -").and_then(|text| text.strip_suffix(" @@")).expect("a header");
    let (old, new) = ranges.split_once(" +").expect("two ranges");
    let mut made = Applied { sides: [String::new(), String::new()], deleted: 0, added: 0 };
    let mut lines = [0u64; 2];
    let mut last: &[usize] = &[];
    for line in body.split_inclusive('\n') {
        assert!(line.ends_with('\n'), "a hunk ends with a line feed");
        if line == "\\ No newline at end of file\n" {
            assert!(!last.is_empty());
            last.iter().for_each(|side| assert_eq!(made.sides[*side].pop(), Some('\n')));
            last = &[];
            continue;
        }
        last = match line.as_bytes()[0] {
            b' ' => &[0, 1],
            b'-' => &[0],
            b'+' => &[1],
            other => panic!("a line begins with {other:#x}"),
        };
        for side in last {
            assert!(
                made.sides[*side].is_empty() || made.sides[*side].ends_with('\n'),
                "nothing follows an end"
            );
            made.sides[*side].push_str(&line[1..]);
            lines[*side] += 1;
        }
        made.deleted += u64::from(last == [0]);
        made.added += u64::from(last == [1]);
    }
    for (range, lines) in [old, new].into_iter().zip(lines) {
        let want = match lines {
            0 => "0,0".to_owned(),
            1 => "1".to_owned(),
            more => format!("1,{more}"),
        };
        assert_eq!(range, want);
    }
    made
}

/// The request as JSON again.
fn as_json(request: &Request) -> Vec<u8> {
    serde_json::to_vec(request).expect("a request is plain JSON")
}
