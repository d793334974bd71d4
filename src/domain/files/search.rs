//! `search`: the lines that hold a text, literally.

use super::answer::{Match, SearchAnswer, Skipped};
use super::page::{Cursors, Page, Start};
use super::request::Search;
use super::{View, path, read};
use crate::domain::manifest::FileEntry;
use crate::domain::refusal::{Code, Refusal};
use memchr::memmem::Finder;
use memchr::{memchr, memchr_iter, memrchr};

/// Lines on a page, if nothing else is asked, and the most.
const USUAL: u32 = 200;
const MOST: u32 = 500;
/// Longest text, in bytes.
const MAX_TEXT: usize = 1_024;
/// Characters of a line that are shown, and how many of them stand before the text.
const SHOWN: usize = 240;
const BEFORE: usize = 60;
/// Bytes that are read before they are searched.
const BATCH: u64 = 1024 * 1024;

/// Searches the files at and below a path. `contents` gives the bytes of each file it is asked for, in
/// order, or why it could not.
///
/// A file that is no text, or that could not be read, is named in `skipped`. Where a page ends depends on
/// the revision and the question alone, unless a file is changed by hand in between.
///
/// # Errors
/// `not_found`, `invalid`, `stale_revision` for a cursor of another revision, or what `contents` refuses
/// as a whole.
pub fn search<C: AsRef<[u8]>>(
    view: View<'_>,
    asked: &Search,
    contents: impl Fn(&[FileEntry]) -> Result<Vec<Result<C, Refusal>>, Refusal>,
) -> Result<SearchAnswer, Refusal> {
    check(&asked.text)?;
    let below = path(asked.path.as_deref().unwrap_or_default())?;
    let files: Vec<FileEntry> = view.below(&below)?.into_iter().cloned().collect();
    let cursors = Cursors::new(view.revision, &["search", below.as_str(), &asked.text]);
    let start = cursors.read(asked.cursor.as_deref())?;
    let mut answer =
        SearchAnswer { revision: view.revision, matches: vec![], skipped: vec![], next_cursor: None };
    let mut page = Page::new(asked.limit, USUAL, MOST);
    let wanted = Finder::new(&asked.text);
    let (mut at, mut within) = (start.at.min(files.len()), start.within);
    while at < files.len() {
        let batch = batch(&files[at..]);
        for (file, content) in batch.iter().zip(contents(batch)?) {
            match one(file, content, &wanted, within, &mut page, &mut answer) {
                None => (at, within) = (at + 1, 0),
                Some(line) => {
                    answer.next_cursor = Some(cursors.write(Start { at, within: line }));
                    return Ok(answer);
                }
            }
        }
    }
    Ok(answer)
}

fn check(text: &str) -> Result<(), Refusal> {
    if text.is_empty() || text.len() > MAX_TEXT || text.contains('\n') {
        return Err(Refusal::new(
            Code::Invalid,
            format!(
                "the text of a search has 1 to {MAX_TEXT} bytes and no line feed; this one has {}",
                text.len()
            ),
            "search for a part of one line",
        ));
    }
    Ok(())
}

/// The first files of `rest`, at least one.
fn batch(rest: &[FileEntry]) -> &[FileEntry] {
    let mut bytes = 0u64;
    let fits = rest.iter().take_while(|file| {
        bytes = bytes.saturating_add(file.length);
        bytes <= BATCH
    });
    &rest[..fits.count().max(1)]
}

/// Adds what one file has after line `from`; gives the line to go on after when the page is full.
fn one<C: AsRef<[u8]>>(
    file: &FileEntry,
    content: Result<C, Refusal>,
    wanted: &Finder<'_>,
    from: u64,
    page: &mut Page,
    answer: &mut SearchAnswer,
) -> Option<u64> {
    let text =
        match content.as_ref().map_err(Refusal::clone).and_then(|bytes| read::text(file, bytes.as_ref())) {
            Ok(text) => text,
            Err(refusal) => {
                let skipped = Skipped { path: file.path.as_str().to_owned(), reason: refusal.message };
                if !page.takes(&skipped) {
                    return Some(0);
                }
                answer.skipped.push(skipped);
                return None;
            }
        };
    let mut last = from;
    for found in lines_with(text, wanted).filter(|found| found.line > from) {
        let found = excerpt(file, &found);
        if !page.takes(&found) {
            return Some(last);
        }
        last = found.line;
        answer.matches.push(found);
    }
    None
}

/// A line that holds the text.
struct Found<'a> {
    line: u64,
    whole: &'a str,
    /// Byte of the line at which the text first stands.
    place: usize,
}

/// Finds every line that holds the text, once each. As both are UTF-8, a place is never inside a character.
fn lines_with<'a>(text: &'a str, wanted: &'a Finder<'_>) -> impl Iterator<Item = Found<'a>> {
    let bytes = text.as_bytes();
    let (mut line, mut counted, mut at) = (1, 0, 0);
    std::iter::from_fn(move || {
        let place = at + wanted.find(&bytes[at..])?;
        line += memchr_iter(b'\n', &bytes[counted..place]).count() as u64;
        counted = place;
        let begin = memrchr(b'\n', &bytes[..place]).map_or(0, |end| end + 1);
        let end = memchr(b'\n', &bytes[place..]).map_or(text.len(), |end| place + end);
        at = end;
        Some(Found { line, whole: &text[begin..end], place: place - begin })
    })
}

fn excerpt(file: &FileEntry, found: &Found<'_>) -> Match {
    let before = found.whole[..found.place].chars().count();
    let skipped = before.saturating_sub(BEFORE);
    let mut rest = found.whole.chars().skip(skipped);
    let text: String = rest.by_ref().take(SHOWN).collect();
    Match {
        path: file.path.as_str().to_owned(),
        line: found.line,
        column: before as u64 + 1,
        text,
        text_column: skipped as u64 + 1,
        cut: skipped > 0 || rest.next().is_some(),
    }
}
