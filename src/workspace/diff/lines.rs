//! Two texts as one hunk that holds both whole.

use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::ops::Range;

/// What git writes after a last line without a line feed.
const NO_NEWLINE: &str = "\n\\ No newline at end of file\n";

/// A written hunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    /// Lines that it adds.
    pub added: u64,
    /// Lines that it deletes.
    pub deleted: u64,
}

/// Splits at line feeds only, each with its line; CR, U+2028 and the like stay inside.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Appends the hunk that leads from `old` to `new`; nothing where both are equal.
///
/// Time stays near linear for hostile texts: the algorithm gives up the shortest way where it would
/// search too long.
pub(super) fn hunk(out: &mut String, old: &str, new: &str) -> Counts {
    let mut counts = Counts { added: 0, deleted: 0 };
    if old == new {
        return counts;
    }
    let (old, new) = (lines(old), lines(new));
    out.push_str(&format!("@@ -{} +{} @@\n", range(old.len()), range(new.len())));
    for op in capture_diff_slices(Algorithm::Myers, &old, &new) {
        if let DiffOp::Equal { old_index, len, .. } = op {
            write(out, ' ', &old, old_index..old_index + len);
            continue;
        }
        let (deleted, added) = (op.old_range(), op.new_range());
        counts.deleted += deleted.len() as u64;
        counts.added += added.len() as u64;
        write(out, '-', &old, deleted);
        write(out, '+', &new, added);
    }
    counts
}

/// The whole of a file in a hunk's header: git leaves a count of one out.
fn range(lines: usize) -> String {
    match lines {
        0 => "0,0".to_owned(),
        1 => "1".to_owned(),
        more => format!("1,{more}"),
    }
}

fn write(out: &mut String, sign: char, lines: &[&str], range: Range<usize>) {
    for line in lines.get(range).unwrap_or_default() {
        out.push(sign);
        out.push_str(line);
        if !line.ends_with('\n') {
            out.push_str(NO_NEWLINE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn of(old: &str, new: &str) -> String {
        let mut out = String::new();
        hunk(&mut out, old, new);
        out
    }

    #[test]
    fn ws7_a_hunk_holds_the_whole_file_and_marks_missing_line_feeds() {
        let none = "\\ No newline at end of file\n";
        for (old, new, want) in [
            ("", "", String::new()),
            ("a\n", "a\n", String::new()),
            ("", "a\n", "@@ -0,0 +1 @@\n+a\n".into()),
            ("a\nb\n", "", "@@ -1,2 +0,0 @@\n-a\n-b\n".into()),
            ("a\nb\nc\n", "a\nB\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n".into()),
            ("a", "a\n", format!("@@ -1 +1 @@\n-a\n{none}+a\n")),
            ("a\nz", "b\nz", format!("@@ -1,2 +1,2 @@\n-a\n+b\n z\n{none}")),
            ("\n", "\n\n", "@@ -1 +1,2 @@\n \n+\n".into()),
        ] {
            assert_eq!(of(old, new), want, "{old:?} {new:?}");
        }
    }

    #[test]
    fn d5_lines_end_at_line_feeds_only() {
        let old = "\u{feff}bom\r\nlone\rcr\u{2028}sep\u{85}nel\nlast";
        let new = old.replace("lone", "lonE");
        let got = of(old, &new);
        assert_eq!(got.matches("\n-").count() + got.matches("\n+").count(), 2, "{got:?}");
        assert!(got.contains("-lone\rcr\u{2028}sep\u{85}nel\n+lonE\rcr"), "{got:?}");
        assert!(got.starts_with("@@ -1,3 +1,3 @@\n \u{feff}bom\r\n"), "{got:?}");
    }

    #[test]
    fn ws7_hostile_texts_take_no_long_time() {
        // 256 KiB each, the most that a file may hold.
        let feeds = "\n".repeat(256 << 10);
        let ab = |seed: u32, letters: u32| -> String {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state >> 16
            };
            let letter = |n: u32| char::from_u32(u32::from(b'a') + n).unwrap_or('a');
            (0..128 << 10).flat_map(|_| [letter(next() % letters), '\n']).collect()
        };
        let numbers = |from: u32| -> String { (from..from + 37_000).map(|n| format!("{n}\n")).collect() };
        let reversed: String = numbers(10_000).lines().rev().flat_map(|line| [line, "\n"]).collect();
        for (old, new) in [
            (feeds.clone(), feeds[1..].to_owned()),
            (feeds.clone(), "a\n".repeat(128 << 10)),
            (ab(1, 2), ab(2, 2)),
            (ab(3, 26), ab(4, 26)),
            (ab(5, 3), feeds),
            (numbers(10_000), reversed),
            (numbers(10_000), numbers(28_500)),
        ] {
            // Of this thread alone, so that a busy machine takes no part in it.
            let clock = || nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
            let begin = clock();
            let got = of(&old, &new);
            let took = Duration::from(clock() - begin);
            println!("{} and {} bytes: {took:?}, {} bytes", old.len(), new.len(), got.len());
            assert!(took < Duration::from_secs(5), "{took:?}");
        }
    }
}
