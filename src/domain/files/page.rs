//! How an answer is cut: by count and by bytes, and a cursor that says where it goes on.

use super::shown;
use crate::domain::digest::Digest;
use crate::domain::refusal::{Code, Refusal};
use serde::Serialize;

/// Most bytes of an answer, as JSON.
pub const MAX_ANSWER: usize = 64 * 1024;
/// Most bytes of the entries of a page; the rest is for what stands around them.
pub(super) const ENTRIES: usize = 48 * 1024;

/// The room of one answer.
#[derive(Debug)]
pub struct Page {
    items: usize,
    bytes: usize,
    empty: bool,
}

impl Page {
    /// A page of at most `limit` entries, but at least one.
    pub fn new(limit: Option<u32>, usual: u32, most: u32) -> Self {
        let items = limit.unwrap_or(usual).clamp(1, most);
        Self { items: items as usize, bytes: ENTRIES, empty: true }
    }

    /// Whether `entry` still has room. A page is never empty, so the first always has; what may be one
    /// entry is bounded by its own type.
    pub fn takes(&mut self, entry: &impl Serialize) -> bool {
        let cost = serde_json::to_vec(entry).map_or(ENTRIES, |json| json.len() + 1);
        if !self.empty && (self.items == 0 || cost > self.bytes) {
            return false;
        }
        self.items = self.items.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(cost);
        self.empty = false;
        true
    }
}

/// Where a page begins: entry `at`, and a place `within` it. It is bound to a revision and to the question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Index of the first entry.
    pub at: usize,
    /// A place in that entry; 0 is its beginning.
    pub within: u64,
}

/// Cuts and finds the cursors of one question.
#[derive(Clone, Debug)]
pub struct Cursors {
    revision: u32,
    question: String,
}

impl Cursors {
    /// For a question about `revision`; `question` is everything that decides the entries and their order.
    pub fn new(revision: u32, question: &[&str]) -> Self {
        let digest = Digest::of(question.join("\0").as_bytes());
        Self { revision, question: digest.hex()[..8].to_owned() }
    }

    /// The text of a cursor; its form is not part of the contract.
    pub fn write(&self, start: Start) -> String {
        format!("r{}-{}-{}-{}", self.revision, start.at, start.within, self.question)
    }

    /// Reads a cursor; none is the beginning.
    ///
    /// # Errors
    /// `stale_revision` for a cursor of another revision, `invalid` for one of another question.
    pub fn read(&self, cursor: Option<&str>) -> Result<Start, Refusal> {
        let Some(text) = cursor else { return Ok(Start::default()) };
        let foreign = || {
            Refusal::new(
                Code::Invalid,
                format!("'{}' is not a cursor of this question", shown(text)),
                "repeat the question as it was with its next_cursor, or start again without a cursor",
            )
        };
        let parts: Vec<&str> = text.split('-').collect();
        let [revision, at, within, question] = parts[..] else { return Err(foreign()) };
        let revision = revision.strip_prefix('r').and_then(|r| r.parse::<u32>().ok()).ok_or_else(foreign)?;
        let (Ok(at), Ok(within)) = (at.parse(), within.parse()) else { return Err(foreign()) };
        if question != self.question {
            return Err(foreign());
        }
        if revision != self.revision {
            return Err(Refusal::new(
                Code::StaleRevision,
                format!("the cursor is of revision {revision}; the workspace is at {}", self.revision),
                "start again without a cursor",
            ));
        }
        Ok(Start { at, within })
    }
}

/// Bytes of `c` in a JSON string, as serde_json writes it.
pub(super) fn json_length(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ft1_a_cursor_holds_for_its_revision_and_question_alone() {
        let cursors = Cursors::new(3, &["list", "src"]);
        let start = Start { at: 7, within: 9 };
        let text = cursors.write(start);
        assert_eq!(cursors.read(Some(&text)).unwrap(), start);
        assert_eq!(cursors.read(None).unwrap(), Start::default());
        let of = |refused: Result<Start, Refusal>| refused.unwrap_err().code;
        assert_eq!(of(Cursors::new(4, &["list", "src"]).read(Some(&text))), Code::StaleRevision);
        assert_eq!(of(Cursors::new(3, &["list", "lib"]).read(Some(&text))), Code::Invalid);
        assert_eq!(of(Cursors::new(3, &["search", "src"]).read(Some(&text))), Code::Invalid);
        for odd in ["", "r3", "r3-7-9", "r3-x-9-0", "r3--7-9-00000000", &"-".repeat(1 << 16)] {
            assert_eq!(of(cursors.read(Some(odd))), Code::Invalid, "{odd}");
        }
    }

    #[test]
    fn ft1_json_lengths_are_those_of_serde_json() {
        for c in ('\0'..='\u{2fff}').chain(['\u{ffff}', '\u{1f44d}']) {
            let json = serde_json::to_string(&c.to_string()).unwrap();
            assert_eq!(json.len() - 2, json_length(c), "{c:?}");
        }
    }
}
