//! `sal image inspect`: one image of the store.

use super::{store, text};
use crate::cli::args::ImageStore;
use crate::cli::failure::Done;
use crate::cli::output::Output;
use std::process::ExitCode;

/// Arguments of `image inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    store: ImageStore,
    /// The image: NAME@DIGEST, a manifest digest, or at least 12 of its digits
    #[arg(value_name = "REF")]
    image: String,
}

impl Inspect {
    /// Shows the image.
    pub(crate) fn run(self, out: Output) -> Done {
        out.either(&store::open(&self.store)?.find(&self.image)?, text::full)?;
        Ok(ExitCode::SUCCESS)
    }
}
