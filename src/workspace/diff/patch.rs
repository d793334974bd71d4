//! The section of each file, in the form that `git apply` takes (git-diff(1), "generating patch text
//! with -p").

use super::compare::{Pair, TreeFile};
use super::content::{NULL_ID, blob_id, classify};
use super::lines::{Counts, hunk};
use super::names::{label, quoted};
use crate::domain::diff::{Content, FileChange};

const NOTHING: &str = "/dev/null";
/// Bytes that are not worth a thread.
const SMALL: usize = 64 << 10;

/// What the patch says of one file.
pub(super) struct Section {
    pub text: String,
    pub counts: Counts,
    /// False for a comment.
    pub applies: bool,
}

/// Writes a section for each pair, in order. `carried` says of a binary file whether its deletion must
/// be part of the patch.
pub(super) fn sections(pairs: &[Pair<'_>], carried: impl Fn(&Pair<'_>) -> bool + Sync) -> Vec<Section> {
    let weight = |pair: &Pair<'_>| {
        let bytes = |file: Option<&TreeFile>| file.map_or(0, |file| file.bytes().len());
        bytes(pair.old) + bytes(pair.new)
    };
    let write = |pairs: &[Pair<'_>]| -> Vec<Section> {
        pairs.iter().map(|pair| section(pair, carried(pair))).collect()
    };
    let total: usize = pairs.iter().map(weight).sum();
    let alone = std::thread::available_parallelism().is_ok_and(|threads| threads.get() < 2);
    if alone || total < SMALL || pairs.len() < 2 {
        return write(pairs);
    }
    let mut bytes = 0;
    let half = |pair| {
        bytes += weight(pair);
        bytes >= total / 2
    };
    let middle = pairs.iter().position(half).map_or(1, |at| (at + 1).min(pairs.len() - 1));
    let (front, back) = pairs.split_at(middle);
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new().spawn_scoped(scope, || write(back));
        let mut sections = write(front);
        // Where no thread can be had, this one does the work of both.
        sections.extend(other.ok().and_then(|thread| thread.join().ok()).unwrap_or_else(|| write(back)));
        sections
    })
}

fn section(pair: &Pair<'_>, carried: bool) -> Section {
    let mut out = Writer { text: String::new(), pair };
    let mut counts = Counts { added: 0, deleted: 0 };
    let is_text = matches!(pair.content, Content::Text | Content::Control);
    let applies = pair.change == FileChange::Mode || is_text || carried;
    if !applies {
        out.comment();
    } else {
        out.header();
        if pair.change != FileChange::Mode {
            out.index();
            if pair.content == Content::Binary {
                out.binary("");
            } else {
                counts = out.hunk();
            }
        }
    }
    Section { text: out.text, counts, applies }
}

fn text(file: Option<&TreeFile>) -> Option<&str> {
    file.map_or(Some(""), |file| classify(file.bytes()).1)
}

struct Writer<'a> {
    text: String,
    pair: &'a Pair<'a>,
}

impl Writer<'_> {
    fn line(&mut self, parts: &[&str]) {
        parts.iter().for_each(|part| self.text.push_str(part));
        self.text.push('\n');
    }

    fn old_name(&self) -> String {
        format!("a/{}", self.pair.path.as_str())
    }

    fn new_name(&self) -> String {
        format!("b/{}", self.pair.path.as_str())
    }

    fn header(&mut self) {
        self.line(&["diff --git ", &quoted(&self.old_name()), " ", &quoted(&self.new_name())]);
        let mode = |file: &TreeFile| file.side().git_mode();
        match (self.pair.old.map(mode), self.pair.new.map(mode)) {
            (None, Some(mode)) => self.line(&["new file mode ", mode]),
            (Some(mode), None) => self.line(&["deleted file mode ", mode]),
            (Some(old), Some(new)) if old != new => {
                self.line(&["old mode ", old]);
                self.line(&["new mode ", new]);
            }
            _ => {}
        }
    }

    fn index(&mut self) {
        let id = |file: Option<&TreeFile>| file.map_or(NULL_ID.to_owned(), |file| blob_id(file.bytes()));
        let (old, new) = (id(self.pair.old), id(self.pair.new));
        match (self.pair.old, self.pair.new) {
            (Some(a), Some(b)) if a.executable == b.executable => {
                self.line(&["index ", &old, "..", &new, " ", b.side().git_mode()]);
            }
            _ => self.line(&["index ", &old, "..", &new]),
        }
    }

    fn hunk(&mut self) -> Counts {
        let (Some(old), Some(new)) = (text(self.pair.old), text(self.pair.new)) else {
            return Counts { added: 0, deleted: 0 };
        };
        if old == new {
            // An empty file that comes or goes: its mode says it all.
            return Counts { added: 0, deleted: 0 };
        }
        let from = self.pair.old.map_or(NOTHING.to_owned(), |_| label(&self.old_name()));
        let to = self.pair.new.map_or(NOTHING.to_owned(), |_| label(&self.new_name()));
        self.line(&["--- ", &from]);
        self.line(&["+++ ", &to]);
        hunk(&mut self.text, old, new)
    }

    /// Git's own line for a binary change. After a header with whole ids it applies only as a deletion.
    fn binary(&mut self, more: &str) {
        self.differ("Binary files ", more);
    }

    fn differ(&mut self, what: &str, more: &str) {
        let (old, new) = (self.old_name(), self.new_name());
        let old = self.pair.old.map_or(NOTHING.into(), |_| quoted(&old));
        let new = self.pair.new.map_or(NOTHING.into(), |_| quoted(&new));
        self.line(&[what, &old, " and ", &new, " differ", more]);
    }

    /// The like of it where git passes over it, since it starts no patch.
    fn comment(&mut self) {
        let modes = match (self.pair.old, self.pair.new) {
            (Some(a), Some(b)) if a.executable != b.executable => {
                format!(", mode {} to {}", a.side().git_mode(), b.side().git_mode())
            }
            (None, Some(new)) if new.executable => format!(", new mode {}", new.side().git_mode()),
            _ => String::new(),
        };
        self.text.push_str("# ");
        match self.pair.content {
            Content::Lost => {
                self.differ("Files ", &format!("{modes}; not in this patch, since published bytes are lost"));
            }
            _ => self.binary(&format!("{modes}; not in this patch")),
        }
    }
}
