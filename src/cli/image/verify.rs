//! `sal image verify`: checks every blob of an image against its digest.

use crate::cli::args::ImageStore;
use crate::cli::failure::{Done, Failure};
use crate::cli::output::Output;

/// Arguments of `image verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    store: ImageStore,
    /// The image, by reference or digest
    #[arg(value_name = "REF")]
    image: String,
}

impl Verify {
    /// Verifies the image.
    pub(crate) fn run(self, _out: Output) -> Done {
        let _ = self.store.path()?;
        Err(Failure::not_built("sal image verify"))
    }
}
