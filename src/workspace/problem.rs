//! What is wrong with a patch: every problem at once, up to a bound, as one refusal.

use super::refused::{Kind, LimitName, Refusals, Refused};
use crate::domain::refusal::{Code, Refusal};

/// Most problems that one refusal names.
const NAMED: usize = 20;

/// Why one file of a patch does not fit.
pub(super) struct Problem {
    /// Its kind.
    pub code: Code,
    /// The next step.
    pub hint: &'static str,
    /// One sentence that names the file.
    pub said: String,
}

impl Problem {
    pub(super) fn of(refused: &Refused) -> Self {
        let said = refused.to_string();
        match refused.kind {
            Kind::Limit { .. } => Self::limit(said),
            _ => Self {
                code: Code::PatchRefused,
                hint: "choose other paths, and send the whole patch anew",
                said,
            },
        }
    }

    /// A limit that is passed.
    pub(super) fn limit(said: String) -> Self {
        Self { code: Code::LimitExceeded, hint: "make less of it, or delete files that are not needed", said }
    }

    /// What no revision would take.
    pub(super) fn invalid(said: String) -> Self {
        Self { code: Code::Invalid, hint: "correct the request and send it whole", said }
    }

    /// What does not fit this revision.
    pub(super) fn unfit(said: String) -> Self {
        let hint = "read the files again, then send the whole patch anew";
        Self { code: Code::PatchRefused, hint, said }
    }
}

/// Whether a refusal of a tree is about one name or one file by itself.
pub(super) fn by_itself(kind: &Kind) -> bool {
    matches!(kind, Kind::Excluded { .. } | Kind::Limit { name: LimitName::FileBytes, .. })
}

/// All problems of a patch, the first of them by name.
#[derive(Default)]
pub(super) struct Problems {
    named: Vec<Problem>,
    /// How many more there are.
    rest: usize,
}

impl Problems {
    /// Everything that the rules of a tree have against it.
    pub(super) fn of(refused: &Refusals) -> Self {
        let named: Vec<_> = refused.listed().iter().map(Problem::of).collect();
        let total = usize::try_from(refused.total()).unwrap_or(usize::MAX);
        Self { rest: total.saturating_sub(named.len()), named }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    pub(super) fn push(&mut self, problem: Problem) {
        if self.named.len() < NAMED {
            self.named.push(problem);
        } else {
            self.rest += 1;
        }
    }

    /// The refusal of the whole patch, if there is a problem; it has the code and the next step of the first.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let Some(first) = self.named.first() else { return Ok(()) };
        let mut lines: Vec<_> = self.named.iter().map(|problem| problem.said.as_str()).collect();
        let more = format!("{} more are not listed", self.rest);
        if self.rest > 0 {
            lines.push(&more);
        }
        Err(Refusal::new(first.code, format!("nothing was changed: {}", lines.join("\n")), first.hint))
    }
}
