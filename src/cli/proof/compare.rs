//! `sal proof compare`: two proofs, control by control. Not built yet.

use crate::cli::failure::{Done, Failure};
use std::path::PathBuf;

/// Arguments of `proof compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Compare {
    /// One proof
    #[arg(value_name = "A")]
    one: PathBuf,
    /// The other
    #[arg(value_name = "B")]
    other: PathBuf,
}

impl Compare {
    /// Refuses: the verb is not built.
    pub(crate) fn run(self) -> Done {
        let (one, other) = (self.one.display(), self.other.display());
        Err(Failure::not_built(&format!("sal proof compare {one} {other}")))
    }
}
