//! A section of a patch as a terminal may show it (A12): nothing in it steers, and names are readable.

use crate::api::wire::FileDiff;
use crate::cli::colour::{Paint, painted};
use crate::cli::output::name;
use crate::cli::terminal::{safe, safe_line};
use crate::domain::diff::{Content, FileChange};

/// Renders one file's section. A file with control characters is named and not shown.
pub(super) fn section(file: &FileDiff, section: &str, colours: bool) -> String {
    if file.content == Content::Control && file.change != FileChange::Mode {
        let line = format!(
            "# {} {}: holds control characters; its text goes into a pipe or file only",
            name(&file.change),
            safe_line(&file.path)
        );
        return painted(&line, Paint::Note, colours) + "\n";
    }
    let mut out = String::with_capacity(section.len() * 2);
    let mut in_hunk = false;
    for line in section.split_inclusive('\n') {
        let line = line.strip_suffix('\n').unwrap_or(line);
        in_hunk |= line.starts_with("@@");
        let (shown, paint) = match line.chars().next() {
            Some('@') if in_hunk => (safe(line), Paint::Hunk),
            Some('+') if in_hunk => (safe(line), Paint::Added),
            Some('-') if in_hunk => (safe(line), Paint::Deleted),
            _ if in_hunk => (safe(line), Paint::Plain),
            Some('#') => (safe_line(&readable(line)).into_owned().into(), Paint::Note),
            _ => (safe_line(&readable(line)).into_owned().into(), Paint::Header),
        };
        out.push_str(&painted(&shown, paint, colours));
        out.push('\n');
    }
    out
}

/// Undoes git's octal escapes of bytes above 0x7f, so that `é` is `é`; every other escape stays.
fn readable(line: &str) -> String {
    let mut bytes = Vec::with_capacity(line.len());
    let mut rest = line.trim_end_matches('\t').as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|digits| first == b'\\' && digits.iter().all(u8::is_ascii_digit));
        let byte = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match byte.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|byte| *byte > 0x7f) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None if first == b'\\' => {
                // The escaped character goes with its backslash, or `\\303` would be read as an octal.
                let (pair, left) = rest.split_at(rest.len().min(2));
                bytes.extend_from_slice(pair);
                rest = left;
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: Content) -> FileDiff {
        FileDiff {
            path: "e\u{202e}.js".into(),
            change: FileChange::Modified,
            content,
            old: None,
            new: None,
            added_lines: 1,
            deleted_lines: 1,
            in_patch: true,
            patch_bytes: 0,
        }
    }

    #[test]
    fn d7_names_are_readable_and_nothing_steers() {
        assert_eq!(readable(r#"--- "a/\303\251 \\303\251.js"	"#), "--- \"a/\u{e9} \\\\303\u{fffd}.js\"");
        assert_eq!(readable(r#""a/\303\251\t\"x""#), "\"a/\u{e9}\\t\\\"x\"");
        let patch = "diff --git \"a/\\302\\233\\342\\200\\256\" b\n@@ -1 +1,2 @@\n-\u{e9}\u{202e}\tx\r\n+\u{2066}\n+@@\n";
        let shown = section(&file(Content::Text), patch, false);
        assert_eq!(
            shown,
            "diff --git \"a/\\u{9b}\\u{202e}\" b\n@@ -1 +1,2 @@\n-\u{e9}\\u{202e}\tx\\u{d}\n+\\u{2066}\n+@@\n"
        );
        let coloured = section(&file(Content::Text), patch, true);
        assert!(coloured.contains("\u{1b}[32m+\\u{2066}\u{1b}[m\n"), "{coloured:?}");
        assert_eq!(coloured.matches('\u{1b}').count(), 2 * 5);
    }

    #[test]
    fn ws7_a_file_with_control_characters_is_only_named() {
        let shown = section(&file(Content::Control), "diff\n@@ -1 +1 @@\n-\u{1b}[1m\n+x\n", false);
        assert!(shown.starts_with("# modified e\\u{202e}.js: holds control characters"), "{shown}");
        assert_eq!(shown.lines().count(), 1);
        let mode = FileDiff { change: FileChange::Mode, ..file(Content::Control) };
        assert_eq!(section(&mode, "old mode 100644\n", false), "old mode 100644\n");
    }
}
