//! What a content is, and the name that git has for it.

use crate::domain::diff::Content;
use sha1::{Digest as _, Sha1};

/// Git's name for a file that is not there.
pub(super) const NULL_ID: &str = "0000000000000000000000000000000000000000";

/// Says what `bytes` are and gives them as text unless they are binary.
pub(super) fn classify(bytes: &[u8]) -> (Content, Option<&str>) {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t' | b'\r');
    match std::str::from_utf8(bytes) {
        Err(_) => (Content::Binary, None),
        Ok(text) if bytes.iter().all(plain) => (Content::Text, Some(text)),
        Ok(_) if bytes.contains(&0) => (Content::Binary, None),
        Ok(text) if text.chars().any(is_control) => (Content::Control, Some(text)),
        Ok(text) => (Content::Text, Some(text)),
    }
}

fn is_control(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t' | '\r')
}

/// The object id of a blob: SHA-1 over `blob`, a space, the length, NUL and the content
/// (gitformat-pack(5)). With whole ids `git apply --3way` finds its base, and a binary file can be
/// deleted by a patch.
pub(super) fn blob_id(bytes: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", bytes.len()));
    hash.update(bytes);
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ws7_text_is_utf8_without_nul_and_other_controls_are_told_apart() {
        let text: [&str; 6] =
            ["", "a\r\nb\rc\td", "\u{feff}bom", "\u{2028}\u{202e}", "\u{e9} 你 \u{1f600}", "no end"];
        for text in text {
            assert_eq!(classify(text.as_bytes()), (Content::Text, Some(text)), "{text:?}");
        }
        for text in ["\x1b[1m", "\u{c}", "\u{7f}", "\u{9b}31m", "\u{85}", "\u{8}"] {
            assert_eq!(classify(text.as_bytes()), (Content::Control, Some(text)), "{text:?}");
        }
        for bytes in [&b"a\0"[..], b"\0\x1b", b"\xff", b"caf\xe9", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"] {
            assert_eq!(classify(bytes), (Content::Binary, None), "{bytes:?}");
        }
    }

    #[test]
    fn ws7_a_blob_has_the_id_that_git_gives_it() {
        assert_eq!(blob_id(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(blob_id(b"hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
    }
}
