//! Keeps what others wrote from steering a terminal (A12).
//!
//! Escaped are the C0 controls but line feed and tab, DEL, the C1 controls and the characters that
//! reorder text. Log bytes are filtered as they come; JSON is escaped by its own rules, so that
//! nothing is lost to the program that reads it.

use std::borrow::Cow;
use std::fmt::Write as _;

/// True for a character that may change a terminal's state or the order of what it shows.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes text of several lines.
pub(crate) fn safe(text: &str) -> Cow<'_, str> {
    escape(text, |c| steers(c) && c != '\n' && c != '\t')
}

/// Escapes text that must stay on its line, such as a file name.
pub(crate) fn safe_line(text: &str) -> Cow<'_, str> {
    escape(text, steers)
}

fn escape(text: &str, bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&bad) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().fold(String::with_capacity(text.len() + 16), |mut out, c| {
        if bad(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
        out
    });
    Cow::Owned(escaped)
}

/// Escapes the characters that serde_json leaves raw, as JSON's `\uXXXX`.
pub(crate) fn safe_json(json: &str) -> Cow<'_, str> {
    // Outside of strings JSON is plain ASCII, and inside them serde_json has escaped C0.
    if !json.chars().any(|c| steers(c) && c != '\n') {
        return Cow::Borrowed(json);
    }
    let escaped = json.chars().fold(String::with_capacity(json.len() + 16), |mut out, c| {
        if steers(c) && c != '\n' {
            // All of them lie in the basic plane. Writing to a String cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
        out
    });
    Cow::Owned(escaped)
}

/// Escapes a stream of bytes for a terminal; a character may be split between two pushes.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pending: Vec<u8>,
}

impl Filter {
    /// Gives what can be shown once `bytes` have come.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let taken = std::mem::take(&mut self.pending);
        let mut rest = taken.as_slice();
        let mut out = String::with_capacity(rest.len());
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(&safe(text));
                    return out;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    out.push_str(&safe(&String::from_utf8_lossy(valid)));
                    let Some(length) = error.error_len() else {
                        self.pending = after.to_vec();
                        return out;
                    };
                    let (broken, after) = after.split_at(length);
                    push_hex(&mut out, broken);
                    rest = after;
                }
            }
        }
    }

    /// Gives what is left at the end: an unfinished character.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        push_hex(&mut out, &std::mem::take(&mut self.pending));
        out
    }
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(out, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTACKS: [&str; 9] = [
        "\x1b]52;c;cm0gLXJm\x07",
        "\x1b]0;title\x1b\\",
        "\x1b[2J\x1b[31m",
        "\u{9b}31m",
        "\u{9d}52;c;x\u{9c}",
        "safe\rrm -rf",
        "a\u{202e}b\u{2066}c\u{2069}",
        "\u{8}\u{7f}\0",
        "\u{200f}\u{61c}",
    ];

    #[test]
    fn a12_no_attack_stays_raw() {
        for attack in ATTACKS {
            for shown in
                [safe(attack), safe_line(attack), Cow::Owned(Filter::default().push(attack.as_bytes()))]
            {
                assert!(!shown.chars().any(steers), "{shown:?}");
            }
        }
        assert_eq!(safe("a\x1bb\n\tc"), "a\\u{1b}b\n\tc");
        assert_eq!(safe_line("a\nb"), "a\\u{a}b");
        assert!(matches!(safe("plain ünïcode 你好 👍"), Cow::Borrowed(_)));
    }

    #[test]
    fn a12_json_stays_the_same_value() {
        for attack in ATTACKS {
            let json = serde_json::to_string(attack).unwrap();
            let shown = safe_json(&json);
            assert!(!shown.chars().any(steers), "{shown:?}");
            assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), attack);
        }
    }

    #[test]
    fn a12_a_stream_is_filtered_whatever_its_pieces() {
        let bytes = b"ok \xe4\xbd\xa0 \xc2\x9b31m \xff\xfe \xe2\x80\xae \x1b[1m end \xe4\xbd";
        let mut whole = Filter::default();
        let mut expected = whole.push(bytes);
        expected.push_str(&whole.finish());
        assert_eq!(expected, "ok 你 \\u{9b}31m \\xff\\xfe \\u{202e} \\u{1b}[1m end \\xe4\\xbd");
        for size in 1..8 {
            let mut filter = Filter::default();
            let mut got: String = bytes.chunks(size).map(|chunk| filter.push(chunk)).collect();
            got.push_str(&filter.finish());
            assert_eq!(got, expected, "{size}");
        }
    }
}
