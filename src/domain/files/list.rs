//! `list` and the excluded names of `inspect`: pages over what is already in order.

use super::answer::{LeftOut, ListAnswer, Listed};
use super::page::{Cursors, Page, Start};
use super::request::List;
use super::{View, path};
use crate::domain::manifest::FileEntry;
use crate::domain::refusal::Refusal;
use crate::domain::session::Excluded;
use serde::Serialize;

/// Files on a page, if nothing else is asked, and the most.
const USUAL: u32 = 200;
const MOST: u32 = 500;

impl From<&FileEntry> for Listed {
    fn from(file: &FileEntry) -> Self {
        Self {
            path: file.path.as_str().to_owned(),
            length: file.length,
            hash: file.content.to_string(),
            executable: file.executable,
        }
    }
}

/// Lists the files at and below a path.
///
/// # Errors
/// `not_found`, `invalid`, or `stale_revision` for a cursor of another revision.
pub fn list(view: View<'_>, asked: &List) -> Result<ListAnswer, Refusal> {
    let below = path(asked.path.as_deref().unwrap_or_default())?;
    let found = view.below(&below)?;
    let cursors = Cursors::new(view.revision, &["list", below.as_str()]);
    let page = Page::new(asked.limit, USUAL, MOST);
    let all = found.iter().map(|file| Listed::from(*file));
    let (files, next_cursor) = cut(all, page, &cursors, asked.cursor.as_deref())?;
    Ok(ListAnswer { revision: view.revision, files, total: found.len() as u64, next_cursor })
}

/// A page of what an import left out, and the cursor of the next one.
///
/// # Errors
/// `invalid`, or `stale_revision` for a cursor of another revision.
pub fn excluded(
    revision: u32,
    all: &[Excluded],
    cursor: Option<&str>,
) -> Result<(Vec<LeftOut>, Option<String>), Refusal> {
    let cursors = Cursors::new(revision, &["inspect"]);
    let all = all.iter().map(|item| LeftOut { path: item.path.clone(), reason: item.reason.clone() });
    cut(all, Page::new(None, USUAL, MOST), &cursors, cursor)
}

/// Takes one page out of `all`.
fn cut<T: Serialize>(
    all: impl Iterator<Item = T>,
    mut page: Page,
    cursors: &Cursors,
    cursor: Option<&str>,
) -> Result<(Vec<T>, Option<String>), Refusal> {
    let from = cursors.read(cursor)?.at;
    let mut taken = Vec::new();
    for entry in all.skip(from) {
        if !page.takes(&entry) {
            let next = Start { at: from.saturating_add(taken.len()), within: 0 };
            return Ok((taken, Some(cursors.write(next))));
        }
        taken.push(entry);
    }
    Ok((taken, None))
}
