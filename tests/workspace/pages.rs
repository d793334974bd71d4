//! Looking at a tree: pages are complete and free of repetition, and every answer is bounded (FT.1).

use proptest::prelude::*;
use salaam::domain::digest::Digest;
use salaam::domain::files::answer::{ListAnswer, Match, ReadAnswer, SearchAnswer};
use salaam::domain::files::page::MAX_ANSWER;
use salaam::domain::files::request::{List, Read, Search};
use salaam::domain::files::{View, list, read, search};
use salaam::domain::manifest::{FileEntry, TreeManifest};
use salaam::domain::refusal::{Code, Refusal};
use salaam::domain::relpath::RelPath;
use salaam::domain::session::Excluded;
use serde::Serialize;
use std::collections::BTreeMap;

struct Tree {
    manifest: TreeManifest,
    contents: BTreeMap<String, Vec<u8>>,
}

impl Tree {
    fn new(contents: BTreeMap<String, Vec<u8>>) -> Self {
        let entry = |(path, content): (&String, &Vec<u8>)| FileEntry {
            path: RelPath::parse(path).unwrap(),
            executable: false,
            length: content.len() as u64,
            content: Digest::of(content),
        };
        Self { manifest: TreeManifest::new(contents.iter().map(entry).collect(), vec![]), contents }
    }

    fn view(&self) -> View<'_> {
        View { revision: 3, tree: &self.manifest }
    }

    fn list(&self, asked: &List) -> Result<ListAnswer, Refusal> {
        list::list(self.view(), asked).map(bounded)
    }

    fn search(&self, asked: &Search) -> Result<SearchAnswer, Refusal> {
        let contents = |files: &[FileEntry]| {
            Ok(files.iter().map(|file| Ok(self.contents[file.path.as_str()].clone())).collect())
        };
        search::search(self.view(), asked, contents).map(bounded)
    }

    fn read(&self, asked: &Read) -> Result<ReadAnswer, Refusal> {
        let file = self.view().file(&RelPath::parse(&asked.path).unwrap())?;
        let content = self.contents[file.path.as_str()].clone();
        read::read(self.view(), file, content, asked).map(bounded)
    }

    /// All pages of a search.
    fn found(&self, text: &str, path: Option<&str>, limit: Option<u32>) -> (Vec<Match>, Vec<String>) {
        let mut asked = Search { text: text.into(), path: path.map(Into::into), cursor: None, limit };
        let (mut found, mut skipped) = (Vec::new(), Vec::new());
        loop {
            let page = self.search(&asked).unwrap();
            assert!(page.matches.len() + page.skipped.len() <= limit.unwrap_or(200) as usize);
            found.extend(page.matches);
            skipped.extend(page.skipped.into_iter().map(|skipped| skipped.path));
            asked.cursor = page.next_cursor;
            if asked.cursor.is_none() {
                return (found, skipped);
            }
        }
    }

    /// A file put together from its pages.
    fn whole(&self, path: &str, lines: Option<u64>) -> String {
        let mut asked = Read { path: path.into(), line: None, column: None, lines };
        let mut out = String::new();
        loop {
            let page = self.read(&asked).unwrap();
            for line in &page.lines {
                if line.column == 1 && line.line > 1 {
                    out.push('\n');
                }
                out.push_str(&line.text);
            }
            match page.next {
                Some(next) => {
                    assert!(!page.lines.is_empty());
                    (asked.line, asked.column) = (Some(next.line), Some(next.column));
                }
                None => {
                    out.push_str(if page.final_newline { "\n" } else { "" });
                    return out;
                }
            }
        }
    }
}

fn bounded<T: Serialize>(answer: T) -> T {
    let length = serde_json::to_vec(&answer).unwrap().len();
    assert!(length <= MAX_ANSWER, "{length}");
    answer
}

fn trees() -> impl Strategy<Value = BTreeMap<String, Vec<u8>>> {
    let name = "[ab]{1,2}|é|\"|\t|\u{2028}";
    let path = proptest::collection::vec(name, 1..4).prop_map(|names| names.join("/"));
    let content = prop_oneof![
        8 => "[abé\r\n\u{feff}]{0,30}".prop_map(String::into_bytes),
        1 => Just(b"a\xffb\n".to_vec()),
    ];
    proptest::collection::btree_map(path, content, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ft1_the_pages_of_a_list_are_the_whole_list_once(files in trees(), limit in 1..5u32, path in "[ab]{0,1}") {
        let tree = Tree::new(files);
        let path = if path.is_empty() { None } else { Some(path) };
        let below = |file: &&String| path.as_ref().is_none_or(|dir| {
            *file == dir || file.starts_with(&format!("{dir}/"))
        });
        let want: Vec<&String> = tree.contents.keys().filter(below).collect();
        let mut asked = List { path: path.clone(), cursor: None, limit: Some(limit) };
        let mut got = Vec::new();
        loop {
            let page = match tree.list(&asked) {
                Ok(page) => page,
                Err(refusal) => {
                    prop_assert!(want.is_empty() && path.is_some() && refusal.code == Code::NotFound);
                    return Ok(());
                }
            };
            prop_assert_eq!(page.total as usize, want.len());
            prop_assert!(page.files.len() <= limit as usize);
            got.extend(page.files);
            asked.cursor = page.next_cursor;
            if asked.cursor.is_none() {
                break;
            }
        }
        prop_assert_eq!(got.iter().map(|file| &file.path).collect::<Vec<_>>(), want);
        prop_assert!(got.iter().all(|file| Digest::of(&tree.contents[&file.path]).as_str() == file.hash));
    }

    #[test]
    fn ft1_the_pages_of_a_search_are_every_line_once(
        files in trees(), limit in 1..5u32, text in "[ab\r]{1,2}|é",
    ) {
        let tree = Tree::new(files);
        let mut want = Vec::new();
        let mut no_text = Vec::new();
        for (path, content) in &tree.contents {
            let Ok(content) = std::str::from_utf8(content) else {
                no_text.push(path.clone());
                continue;
            };
            for (number, line) in (1u64..).zip(content.split('\n')) {
                if let Some(place) = line.find(&text) {
                    want.push((path.clone(), number, line[..place].chars().count() as u64 + 1, line.to_owned()));
                }
            }
        }
        let (found, skipped) = tree.found(&text, None, Some(limit));
        prop_assert!(found.iter().all(|one| !one.cut && one.text_column == 1));
        let got: Vec<_> = found.into_iter().map(|one| (one.path, one.line, one.column, one.text)).collect();
        prop_assert_eq!(got, want);
        prop_assert_eq!(skipped, no_text);
    }

    #[test]
    fn ft1_the_pages_of_a_file_are_the_file(text in "[ab\r\n\u{feff}\u{2028}]{0,40}", lines in 1..4u64) {
        let tree = Tree::new([("f".to_owned(), text.clone().into_bytes())].into());
        prop_assert_eq!(tree.whole("f", Some(lines)), text.clone());
        let page = tree.read(&Read { path: "f".into(), line: None, column: None, lines: None }).unwrap();
        prop_assert_eq!(page.total_lines as usize, text.lines_at_line_feeds());
    }
}

trait LineFeeds {
    fn lines_at_line_feeds(&self) -> usize;
}

impl LineFeeds for String {
    fn lines_at_line_feeds(&self) -> usize {
        self.matches('\n').count() + usize::from(!self.is_empty() && !self.ends_with('\n'))
    }
}

#[test]
fn d5_read_keeps_every_character_in_its_line() {
    let text = "\u{feff}one\r\ntwo\nthr\ree\u{85}\u{2028}x\u{c}\r\nlast";
    let tree = Tree::new([("f".to_owned(), text.into())].into());
    let page = tree.read(&Read { path: "f".into(), line: None, column: None, lines: None }).unwrap();
    let lines: Vec<_> = page.lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(lines, ["\u{feff}one\r", "two", "thr\ree\u{85}\u{2028}x\u{c}\r", "last"]);
    assert!(!page.final_newline && page.next.is_none());
    let part = Read { path: "f".into(), line: Some(3), column: Some(5), lines: Some(1) };
    let page = tree.read(&part).unwrap();
    assert_eq!(page.lines[0].text, "ee\u{85}\u{2028}x\u{c}\r");
    assert_eq!(page.next.map(|next| (next.line, next.column)), Some((4, 1)));
    let past = tree.read(&Read { line: Some(u64::MAX), ..part }).unwrap();
    assert!(past.lines.is_empty() && past.next.is_none() && past.total_lines == 4);
}

#[test]
fn ft1_every_answer_about_the_largest_trees_is_bounded_and_complete() {
    // The longest paths, of characters that JSON doubles.
    let long = |i: usize| format!("{}/{i:03}", vec!["\"".repeat(251); 15].join("/"));
    let tree = Tree::new((0..512).map(|i| (long(i), b"needle".to_vec())).collect());
    let mut asked = List { limit: Some(u32::MAX), ..List::default() };
    let mut listed = 0;
    loop {
        let page = tree.list(&asked).unwrap();
        listed += page.files.len();
        asked.cursor = page.next_cursor;
        if asked.cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, 512);
    assert_eq!(tree.found("needle", None, None).0.len(), 512);
    // One line, and nothing but line feeds; characters that JSON spells in six bytes.
    let line: String = "\u{1}".repeat(256 << 10);
    let feeds = format!("{}x", "\n".repeat((256 << 10) - 1));
    let pairs = "a\n".repeat(128 << 10);
    let all = [("feeds", feeds), ("line", line.clone()), ("pairs", pairs)];
    let tree = Tree::new(all.iter().map(|(path, text)| ((*path).to_owned(), text.clone().into())).collect());
    for (path, text) in &all {
        assert_eq!(&tree.whole(path, None), text, "{path}");
    }
    let begun = std::time::Instant::now();
    assert_eq!(tree.found("a", None, Some(500)).0.len(), 128 << 10);
    assert!(begun.elapsed().as_secs() < 60);
    let (found, _) = tree.found("\u{1}", Some("line"), None);
    assert_eq!((found.len(), found[0].cut, found[0].column), (1, true, 1));
    // What an import left out.
    let left = |i| Excluded { path: format!("{i}{}", "\\u{202e}".repeat(1_300)), reason: "r".into() };
    let all: Vec<_> = (0..40).map(left).collect();
    let (mut got, mut cursor) = (0, None);
    loop {
        let (page, next) = bounded(list::excluded(3, &all, cursor.as_deref()).unwrap());
        got += page.len();
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(got, 40);
}

#[test]
fn ft1_a_cursor_of_another_revision_or_question_is_refused() {
    let tree = Tree::new((0..9).map(|i| (format!("f{i}"), b"x".to_vec())).collect());
    let first = List { limit: Some(2), ..List::default() };
    let cursor = tree.list(&first).unwrap().next_cursor;
    let next = View { revision: 4, tree: &tree.manifest };
    let stale = list::list(next, &List { cursor: cursor.clone(), ..List::default() }).unwrap_err();
    assert_eq!(stale.code, Code::StaleRevision);
    let other = Search { text: "x".into(), path: None, cursor, limit: None };
    assert_eq!(tree.search(&other).unwrap_err().code, Code::Invalid);
    for text in ["", "a\nb", &"x".repeat(1_025)] {
        let asked = Search { text: text.into(), path: None, cursor: None, limit: None };
        assert_eq!(tree.search(&asked).unwrap_err().code, Code::Invalid);
    }
    let binary = Tree::new([("b".to_owned(), b"a\xff".to_vec())].into());
    let refused = binary.read(&Read { path: "b".into(), line: None, column: None, lines: None }).unwrap_err();
    assert!(refused.message.contains("'b' is not UTF-8 text") && refused.message.contains("number 2 of 2"));
}
