//! File names in a patch, quoted as git does (`quote.c`, with the default `core.quotePath`).

use std::borrow::Cow;

/// Quotes a name in the style of C if it holds a control character, `"`, `\` or a byte above 0x7f;
/// any other name stays as it is.
pub fn quoted(name: &str) -> Cow<'_, str> {
    let odd = |byte: u8| !(b' '..=b'~').contains(&byte) || byte == b'"' || byte == b'\\';
    if !name.bytes().any(odd) {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len() + 16);
    out.push('"');
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            0x07 => out.push_str("\\a"),
            0x08 => out.push_str("\\b"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            0x0b => out.push_str("\\v"),
            0x0c => out.push_str("\\f"),
            b'\r' => out.push_str("\\r"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out.push('"');
    Cow::Owned(out)
}

/// The name after `--- ` or `+++ `: git ends one with a space by a tab, or a reader could not tell
/// where it ends.
pub(super) fn label(name: &str) -> String {
    let end = if name.contains(' ') { "\t" } else { "" };
    format!("{}{end}", quoted(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ws7_names_are_quoted_as_git_does() {
        for (name, want) in [
            ("a/plain-~!#$%'()*+,;=@[]^`{}|?<>&.js", "a/plain-~!#$%'()*+,;=@[]^`{}|?<>&.js"),
            ("a/sp ace", "a/sp ace"),
            ("a/qu\"o\\te", r#""a/qu\"o\\te""#),
            ("a/ta\tb", r#""a/ta\tb""#),
            ("a/\u{e9}.js", r#""a/\303\251.js""#),
            ("a/\u{7f}\u{1b}\n", r#""a/\177\033\n""#),
            ("a/\u{1f600}", r#""a/\360\237\230\200""#),
        ] {
            assert_eq!(quoted(name), want);
        }
        assert_eq!(label("b/sp ace"), "b/sp ace\t");
        assert_eq!(label("b/\u{e9} x"), "\"b/\\303\\251 x\"\t");
        assert_eq!(label("b/plain"), "b/plain");
    }
}
