//! The changes of a workspace in figures, in the manner of `git diff --stat --summary`.

use crate::api::wire::{FileDiff, FileSide, WorkspaceDiff};
use crate::cli::output::Text;
use crate::cli::terminal::safe_line;
use crate::domain::diff::{Content, FileChange};

/// Most columns of a name before the bar.
const NAME: usize = 56;
/// Most columns of the bar.
const BAR: u64 = 40;

/// One line a file, the totals, and what happened to modes.
pub(super) fn text(found: &WorkspaceDiff) -> Text {
    if found.files.is_empty() {
        return Text::default();
    }
    let width = found.files.iter().map(|file| columns(&file.path)).max().unwrap_or(0).min(NAME);
    let most = found.files.iter().map(|file| file.added_lines + file.deleted_lines).max().unwrap_or(0);
    let figures = Text::default().lines(&found.files, |file| line(file, width, most)).line(totals(found));
    found.files.iter().filter_map(mode).fold(figures, |text, line| text.line(line))
}

fn columns(path: &str) -> usize {
    safe_line(path).chars().count()
}

fn line(file: &FileDiff, width: usize, most: u64) -> String {
    let path = safe_line(&file.path);
    let bytes = |side: &Option<FileSide>| side.as_ref().map_or(0, |side| side.bytes);
    let what = match file.content {
        _ if file.change == FileChange::Mode => "0".to_owned(),
        Content::Binary => format!("Bin {} -> {} bytes", bytes(&file.old), bytes(&file.new)),
        Content::Lost => "lost: published bytes are no longer there".to_owned(),
        Content::Text | Content::Control => {
            let lines = file.added_lines + file.deleted_lines;
            let bar = |lines: u64, sign: &str| sign.repeat(scaled(lines, most));
            format!("{lines:<5} {}{}", bar(file.added_lines, "+"), bar(file.deleted_lines, "-"))
        }
    };
    format!(" {path:<width$} | {}", what.trim_end())
}

/// At least one sign where there is anything.
fn scaled(lines: u64, most: u64) -> usize {
    let signs = if most <= BAR { lines } else { (lines * BAR).div_ceil(most) };
    usize::try_from(signs).unwrap_or_default()
}

fn totals(found: &WorkspaceDiff) -> String {
    let many = |count: u64, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
    format!(
        " {}, {}, {}",
        many(found.files.len() as u64, "file changed", "files changed"),
        many(found.added_lines, "insertion(+)", "insertions(+)"),
        many(found.deleted_lines, "deletion(-)", "deletions(-)")
    )
}

fn mode(file: &FileDiff) -> Option<String> {
    let path = safe_line(&file.path);
    match (&file.old, &file.new) {
        (None, Some(new)) => Some(format!(" create mode {} {path}", new.mode)),
        (Some(old), None) => Some(format!(" delete mode {} {path}", old.mode)),
        (Some(old), Some(new)) if old.mode != new.mode => {
            Some(format!(" mode change {} => {} {path}", old.mode, new.mode))
        }
        _ => None,
    }
}
