//! `read`: lines of a UTF-8 file. A line ends at a line feed and nowhere else.

use super::answer::{Line, Position, ReadAnswer};
use super::page::{ENTRIES, json_length};
use super::request::Read;
use super::{View, shown};
use crate::domain::manifest::FileEntry;
use crate::domain::refusal::{Code, Refusal};

/// Most lines of an answer.
const MOST: u64 = 2_000;
/// Bytes of JSON around the text of a line.
const AROUND: usize = 64;

/// The text of a file.
///
/// # Errors
/// `invalid` when it is not UTF-8.
pub(super) fn text<'a>(file: &FileEntry, content: &'a [u8]) -> Result<&'a str, Refusal> {
    std::str::from_utf8(content).map_err(|bad| {
        Refusal::new(
            Code::Invalid,
            format!(
                "'{}' is not UTF-8 text: the first byte that is none is number {} of {}",
                shown(file.path.as_str()),
                bad.valid_up_to() + 1,
                content.len()
            ),
            "it can be replaced or deleted as a whole",
        )
    })
}

/// Shows lines of `file`, whose content is `content`.
///
/// # Errors
/// `invalid` when it is not UTF-8.
pub fn read(
    view: View<'_>,
    file: &FileEntry,
    content: impl AsRef<[u8]>,
    asked: &Read,
) -> Result<ReadAnswer, Refusal> {
    let text = text(file, content.as_ref())?;
    let final_newline = text.ends_with('\n');
    let all: Vec<&str> = match text.strip_suffix('\n').unwrap_or(text) {
        "" if !final_newline => Vec::new(),
        body => body.split('\n').collect(),
    };
    let first = asked.line.unwrap_or(1).max(1);
    let mut column = asked.column.unwrap_or(1).max(1);
    let most = asked.lines.unwrap_or(MOST).clamp(1, MOST);
    let (mut lines, mut room, mut next) = (Vec::new(), ENTRIES, None);
    let skipped = usize::try_from(first - 1).unwrap_or(usize::MAX);
    for (line, whole) in (first..).zip(all.iter().skip(skipped)) {
        if lines.len() as u64 == most || room <= AROUND {
            next = Some(Position { line, column: 1 });
            break;
        }
        let rest = whole.chars().skip(usize::try_from(column - 1).unwrap_or(usize::MAX));
        let (piece, taken, more) = fit(rest, room - AROUND);
        if more && piece.is_empty() && !lines.is_empty() {
            next = Some(Position { line, column });
            break;
        }
        room -= AROUND + piece.chars().map(json_length).sum::<usize>();
        lines.push(Line { line, column, text: piece });
        if more {
            next = Some(Position { line, column: column.saturating_add(taken) });
            break;
        }
        column = 1;
    }
    Ok(ReadAnswer {
        revision: view.revision,
        path: file.path.as_str().to_owned(),
        hash: file.content.to_string(),
        length: file.length,
        executable: file.executable,
        total_lines: all.len() as u64,
        final_newline,
        lines,
        next,
    })
}

/// As many characters as fit into `room` bytes of JSON, their number, and whether more follow.
fn fit(rest: impl Iterator<Item = char>, mut room: usize) -> (String, u64, bool) {
    let (mut piece, mut taken) = (String::new(), 0);
    for c in rest {
        let cost = json_length(c);
        if cost > room {
            return (piece, taken, true);
        }
        room -= cost;
        piece.push(c);
        taken += 1;
    }
    (piece, taken, false)
}
