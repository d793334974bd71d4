//! Why a verb did not succeed, and the exit code that says so.

use crate::domain::refusal::{Code, Refusal};
use std::process::ExitCode;

/// Exit code of a failure of the tool itself; docker and podman use the same.
pub(crate) const OWN_FAILURE: u8 = 125;
/// Exit code of a usage error.
pub(crate) const USAGE: u8 = 2;
/// Exit code when standard output is closed: 128 + SIGPIPE.
pub(crate) const PIPE_CLOSED: u8 = 141;
/// Exit code when the user left a wait: 128 + SIGINT.
pub(crate) const DETACHED: u8 = 130;

/// What a verb answers.
pub(crate) type Done = Result<ExitCode, Failure>;

/// Why a verb did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The service or this program refused.
    Refused(Refusal),
    /// The arguments do not go together.
    Usage(String),
    /// Standard output could not be written.
    Write(std::io::Error),
}

impl Failure {
    /// The one error form, and the exit code.
    pub(crate) fn explain(self) -> (Refusal, u8) {
        match self {
            Self::Refused(refusal) => (refusal, OWN_FAILURE),
            Self::Usage(message) => (Refusal::new(Code::Invalid, message, "see --help"), USAGE),
            Self::Write(error) => (
                Refusal::new(
                    Code::Internal,
                    format!("standard output could not be written: {error}"),
                    "check the file or disk that it goes to",
                ),
                OWN_FAILURE,
            ),
        }
    }

    /// Something that the documentation names and this version lacks.
    pub(crate) fn not_built(what: &str) -> Self {
        Self::Refused(Refusal::new(
            Code::NotBuilt,
            format!("{what} is not built in version {}", env!("CARGO_PKG_VERSION")),
            "the README lists what is",
        ))
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Write(error)
    }
}
