//! Edits of one text: exact old text that occurs once becomes new text (FT.2).
//!
//! Everything is a function of the text and the edits, and takes time in proportion to their lengths,
//! whatever a model sends.

use crate::domain::files::request::Edit;

/// Makes the edits, each to the result of those before it; no result may have more than `most` bytes.
///
/// # Errors
/// [`Misfit`] of the first edit that does not fit.
pub(super) fn apply(text: &str, edits: &[Edit], most: usize) -> Result<String, Misfit> {
    let mut text = text.to_owned();
    for (index, edit) in edits.iter().enumerate() {
        let number = index + 1;
        if edit.old.is_empty() {
            return Err(Misfit::Text(format!(
                "edit {number} has no old text; to write a whole file, give its content"
            )));
        }
        if edit.old == edit.new {
            return Err(Misfit::Text(format!(
                "edit {number} changes nothing: its old and new texts are the same"
            )));
        }
        let place = match occurs(&text, &edit.old) {
            Occurs::Once(place) => place,
            Occurs::Never => return Err(Misfit::Text(format!("edit {number}: {}", mismatch(&text, edit)))),
            Occurs::Often(first, second) => {
                return Err(Misfit::Text(format!(
                    "edit {number}: its old text must occur once and does so at line {} and line {}; \
                     give more of what stands around it",
                    line_of(&text, first),
                    line_of(&text, second)
                )));
            }
        };
        let length = text.len() - edit.old.len() + edit.new.len();
        if length > most {
            return Err(Misfit::Length(format!(
                "edit {number} makes it {length} bytes long; the limit for one file is {most}"
            )));
        }
        text.replace_range(place..place + edit.old.len(), &edit.new);
    }
    Ok(text)
}

/// Takes the edits back, if `text` is what they led to.
pub(super) fn undo(text: &str, edits: &[Edit]) -> Option<String> {
    let mut text = text.to_owned();
    for edit in edits.iter().rev() {
        match occurs(&text, &edit.new) {
            Occurs::Once(place) => text.replace_range(place..place + edit.new.len(), &edit.old),
            _ => return None,
        }
    }
    Some(text)
}

/// Why an edit does not fit, as a sentence without a full stop.
#[derive(Debug)]
pub(super) enum Misfit {
    /// The text is not as the edit expects it.
    Text(String),
    /// The result would be too long.
    Length(String),
}

enum Occurs {
    Never,
    Once(usize),
    /// The first two places, which may overlap.
    Often(usize, usize),
}

fn occurs(text: &str, wanted: &str) -> Occurs {
    let Some(step) = wanted.chars().next().map(char::len_utf8) else { return Occurs::Never };
    let Some(first) = text.find(wanted) else { return Occurs::Never };
    match text[first + step..].find(wanted) {
        None => Occurs::Once(first),
        Some(second) => Occurs::Often(first, first + step + second),
    }
}

/// Says where the old text begins to differ, and whether the new one is there already.
fn mismatch(text: &str, edit: &Edit) -> String {
    let mut said = difference(text, &edit.old);
    if let Occurs::Once(place) | Occurs::Often(place, _) = occurs(text, &edit.new) {
        let line = line_of(text, place);
        said.push_str(&format!("; its new text is there at line {line}: this change is already applied"));
    } else if edit.new.is_empty() {
        said.push_str("; if it was there, it is already removed");
    }
    said
}

fn difference(text: &str, old: &str) -> String {
    const NOT: &str = "its old text is not in the file";
    let alike = longest_start(text, old);
    let number = old[..alike].matches('\n').count();
    let expected = old.split('\n').nth(number).unwrap_or_default();
    let place = text.find(&old[..alike]).unwrap_or_default() + alike;
    if number == 0 {
        // Not even one line is alike: white space is the usual reason.
        let lines = || (1..).zip(text.split('\n'));
        let same = |(_, line): &(usize, &str)| !line.trim().is_empty() && line.trim() == expected.trim();
        if let Some((line, found)) = lines().find(same)
            && found != expected
        {
            let (found, expected) = (quoted(found), quoted(expected));
            return format!(
                "{NOT}; line {line} differs in white space: the file has {found}, the edit {expected}"
            );
        }
        if old[..alike].trim().is_empty() {
            return format!("{NOT}; no line begins like its line 1, {}", quoted(expected));
        }
    }
    let line = line_of(text, place);
    let begin = text[..place].rfind('\n').map_or(0, |end| end + 1);
    let found = text[begin..].split('\n').next().unwrap_or_default();
    let ends = if place == text.len() { ", and ends there" } else { "" };
    format!(
        "{NOT}; the first line that differs is line {line}: the file has {}{ends}, the edit {} (its line {})",
        quoted(found),
        quoted(expected),
        number + 1
    )
}

/// Length of the longest start of `old`, which does not occur as a whole, that occurs in `text`. If a start
/// occurs, so does every shorter one.
fn longest_start(text: &str, old: &str) -> usize {
    let (mut fits, mut fails) = (0, old.len());
    loop {
        let middle = old.floor_char_boundary(fits + (fails - fits) / 2);
        let middle = if middle == fits { old.ceil_char_boundary(fits + 1) } else { middle };
        if middle >= fails {
            return fits;
        }
        if text.contains(&old[..middle]) {
            fits = middle;
        } else {
            fails = middle;
        }
    }
}

fn line_of(text: &str, place: usize) -> usize {
    text[..place].matches('\n').count() + 1
}

/// A line in a message: its first characters, with every other than a plain one escaped.
fn quoted(line: &str) -> String {
    const MOST: usize = 120;
    let short: String = line.chars().take(MOST).collect();
    let more = if line.chars().nth(MOST).is_some() { "…" } else { "" };
    format!("{short:?}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edit(old: &str, new: &str) -> Edit {
        Edit { old: old.into(), new: new.into() }
    }

    fn refused(text: &str, old: &str, new: &str) -> String {
        said(apply(text, &[edit(old, new)], 1 << 20))
    }

    fn said(refused: Result<String, Misfit>) -> String {
        match refused.unwrap_err() {
            Misfit::Text(said) | Misfit::Length(said) => said,
        }
    }

    #[test]
    fn ft2_d5_one_letter_among_every_line_end_changes_one_byte() {
        let text = "\u{feff}one\r\ntwo\nthr\ree\u{2028}four\r\nlast without end";
        for (old, new) in [("one", "onE"), ("two", "twO"), ("r\ree", "r\reE"), ("out end", "out enD")] {
            let got = apply(text, &[edit(old, new)], 1 << 20).unwrap();
            assert_eq!(got.len(), text.len());
            assert_eq!(got.bytes().zip(text.bytes()).filter(|(a, b)| a != b).count(), 1, "{old}");
        }
    }

    #[test]
    fn ft2_a_mismatch_names_the_first_line_that_differs() {
        let text = "use a;\n\nfn one() {\n    1\n}\n";
        let said = refused(text, "fn one() {\n    2\n}", "x");
        assert!(said.contains(r#"line 4: the file has "    1", the edit "    2" (its line 2)"#), "{said}");
        let said = refused(text, "\tfn one() {\n", "x");
        assert!(said.contains(r#"line 3 differs in white space: the file has "fn one() {""#), "{said}");
        let said = refused("a\r\nb\r\n", "a\nb\n", "x");
        assert!(said.contains(r#"the file has "a\r", the edit "a""#), "{said}");
        let said = refused("a\nb", "b\n", "x");
        assert!(said.contains(r#"line 2: the file has "b", and ends there, the edit "b""#), "{said}");
        let said = refused(text, "zzz", "x");
        assert!(said.contains(r#"no line begins like its line 1, "zzz""#), "{said}");
        let said = refused("", "zzz", "x");
        assert!(said.contains("not in the file"), "{said}");
    }

    #[test]
    fn ft2_a_change_that_is_there_already_is_called_so() {
        let said = refused("a\nnew\n", "old", "new");
        assert!(said.contains("at line 2: this change is already applied"), "{said}");
        assert!(!refused("a\n", "old", "new").contains("already"));
        assert!(refused("a\n", "old", "").contains("already removed"));
        let edits = [edit("a", "ab"), edit("ab", "x")];
        assert_eq!(apply("1 a", &edits, 10).unwrap(), "1 x");
        assert_eq!(undo("1 x", &edits).as_deref(), Some("1 a"));
        assert_eq!(undo("1 x x", &edits), None);
    }

    #[test]
    fn ft2_a_text_that_occurs_twice_or_is_empty_or_too_long_is_refused() {
        assert!(refused("x\naa\nb\naa\n", "aa", "c").contains("at line 2 and line 4"));
        assert!(refused("aaa", "aa", "c").contains("must occur once"), "overlapping places are two");
        assert!(refused("a", "", "c").contains("no old text"));
        assert!(refused("a", "a", "a").contains("changes nothing"));
        let long = said(apply("abc", &[edit("b", "bbbb")], 5));
        assert!(long.contains("6 bytes") && long.contains("limit for one file is 5"), "{long}");
    }

    #[test]
    fn ft2_a_message_is_short_and_quick_whatever_is_sent() {
        let text = "\n".repeat(256 << 10);
        let begun = std::time::Instant::now();
        let said = refused(&text, &format!("{}x", "\n".repeat(128 << 10)), &"\u{1}".repeat(1 << 20));
        assert!(said.len() < 1_000 && begun.elapsed().as_secs() < 5, "{said}");
        let long = "\u{1b}".repeat(100_000);
        assert!(refused(&long, &format!("{long}x"), "y").len() < 4_000);
    }

    proptest! {
        #[test]
        fn ft2_any_mismatch_is_told_and_any_edit_can_be_taken_back(
            text in "[ab\r\né]{0,20}", old in "[ab\r\né]{1,6}", new in "[abc\r\né]{0,6}",
        ) {
            let places = (0..text.len()).filter(|i| text.as_bytes()[*i..].starts_with(old.as_bytes())).count();
            match apply(&text, &[edit(&old, &new)], 1 << 20) {
                Ok(made) => {
                    prop_assert!(places == 1 && old != new);
                    prop_assert_eq!(&made, &text.replacen(&old, &new, 1));
                    if let Some(back) = undo(&made, &[edit(&old, &new)]) {
                        prop_assert_eq!(&back, &text);
                    }
                }
                Err(said) => prop_assert!(old == new || places != 1, "{:?}", said),
            }
            if places == 0 {
                let alike = longest_start(&text, &old);
                prop_assert!(text.contains(&old[..alike]));
                prop_assert!(!text.contains(&old[..old.ceil_char_boundary(alike + 1)]));
            }
        }
    }
}
