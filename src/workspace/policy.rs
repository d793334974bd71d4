//! The rules of a workspace as values: its limits (WS.3), and what makes two names one (WS.2).

use crate::domain::files::answer::FileLimits;
use caseless::Caseless as _;
use unicode_normalization::UnicodeNormalization as _;

/// The limits of a workspace (WS.3). Import, patch and refresh obey the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most regular files.
    pub files: u64,
    /// Most directory entries that a walk may meet: files, directories and excluded names.
    pub entries: u64,
    /// Most bytes in all files together.
    pub total_bytes: u64,
    /// Most bytes in one file.
    pub file_bytes: u64,
    /// Most components of a path.
    pub components: usize,
    /// Most revisions of a workspace.
    pub revisions: u32,
    /// Most bytes that all directories of a workspace hold together.
    pub kept_bytes: u64,
}

impl Limits {
    /// The limits of WS.3.
    pub const fn fixed() -> Self {
        Self {
            files: 512,
            entries: 2_048,
            total_bytes: 4 << 20,
            file_bytes: 256 << 10,
            components: crate::domain::relpath::MAX_COMPONENTS,
            revisions: 32,
            kept_bytes: 160 << 20,
        }
    }
}

impl From<&Limits> for FileLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            files: limits.files,
            entries: limits.entries,
            total_bytes: limits.total_bytes,
            file_bytes: limits.file_bytes,
            path_components: limits.components as u64,
            revisions: limits.revisions,
            kept_bytes: limits.kept_bytes,
        }
    }
}

/// Gives the form under which a name is compared: two names with one key are one file on some file
/// system that a project travels to.
///
/// Canonical caseless matching (Unicode standard, section 3.13, D145), so `A`/`a`, `ß`/`ss` and the
/// composed and decomposed `é` agree. Default-ignorable format characters are dropped, as HFS+ and
/// ext4's `casefold` do, so `.g<ZWNJ>it` is `.git`.
pub fn collision_key(name: &str) -> String {
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    let kept = name.chars().filter(|c| !is_ignorable(*c));
    // Rust's lower-case table may know letters of a newer Unicode than the folding table.
    kept.nfd().flat_map(char::to_lowercase).default_case_fold().nfc().collect()
}

fn is_ignorable(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Gives a file name in a form that is safe on a terminal: control characters, invisible format
/// characters and bytes that are not UTF-8 appear as escapes, everything else as it is.
pub fn printable(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || is_ignorable(c) || matches!(c, '\u{2028}' | '\u{2029}') {
                out.extend(c.escape_default());
            } else {
                out.push(c);
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a19_twins_have_one_key_and_others_do_not() {
        for (a, b) in [
            ("A", "a"),
            ("stra\u{df}e", "STRASSE"),
            ("stra\u{1e9e}e", "strasse"),
            ("\u{e9}.js", "e\u{301}.js"),
            ("\u{c9}", "e\u{301}"),
            ("\u{fb01}n", "FIN"),
            ("\u{3c2}", "\u{3a3}"),
            ("\u{212a}", "k"),
            ("a\u{200d}b", "ab"),
            // Composition after folding: sigma with iota subscript.
            ("\u{1fc3}", "\u{1fcc}"),
        ] {
            assert_eq!(collision_key(a), collision_key(b), "{a} {b}");
        }
        for (a, b) in [("a", "b"), ("\u{131}", "i"), ("e", "\u{e9}"), ("\u{fb01}le-", "file")] {
            assert_ne!(collision_key(a), collision_key(b), "{a} {b}");
        }
    }

    #[test]
    fn a19_every_letter_has_the_key_of_its_upper_and_lower_case() {
        // Each of these has a case partner that Unicode's folding keeps apart on purpose.
        let apart = ['\u{130}', '\u{131}'];
        for c in ('\0'..='\u{1ffff}').filter(|c| !apart.contains(c)) {
            let key = collision_key(&c.to_string());
            let upper: String = c.to_uppercase().collect();
            if upper.chars().ne([c]) {
                assert_eq!(collision_key(&upper), key, "{c} {:x}", c as u32);
            }
        }
    }

    #[test]
    fn a12_printable_escapes_what_a_terminal_would_obey() {
        assert_eq!(printable(b"a\x1b[31m\n\xff"), "a\\u{1b}[31m\\n\\xff");
        assert_eq!(printable("\u{9b}\u{202e}\u{e9}".as_bytes()), "\\u{9b}\\u{202e}\u{e9}");
    }
}
