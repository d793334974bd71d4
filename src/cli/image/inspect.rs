//! `sal image inspect`: one image.

use crate::cli::args::ImageStore;
use crate::cli::failure::{Done, Failure};
use crate::cli::output::Output;

/// Arguments of `image inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    store: ImageStore,
    /// The image, by reference or digest
    #[arg(value_name = "REF")]
    image: String,
}

impl Inspect {
    /// Shows the image.
    pub(crate) fn run(self, _out: Output) -> Done {
        let _ = self.store.path()?;
        Err(Failure::not_built("sal image inspect"))
    }
}
