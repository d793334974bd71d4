//! What a fuzzer calls, and what must hold whatever it sends. `tests/workspace/seeds.rs` runs the seeds
//! through the same functions.

use salaam::domain::change::Base;
use salaam::domain::digest::Digest;
use salaam::domain::files::{self, Request};
use salaam::domain::manifest::{FileEntry, TreeManifest};
use salaam::domain::relpath::RelPath;
use salaam::workspace::admission::judge;
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

/// The request as JSON again.
fn as_json(request: &Request) -> Vec<u8> {
    serde_json::to_vec(request).expect("a request is plain JSON")
}
