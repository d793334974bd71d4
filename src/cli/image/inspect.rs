//! `sal image inspect`: one image of the store.

use super::store;
use super::view::View;
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
        let store = store::open(&self.store)?;
        out.either(&View::of(store.find(&self.image)?, &store)?, View::full)?;
        Ok(ExitCode::SUCCESS)
    }
}
