//! `sal image default`: shows or sets the image that commands run in.

use crate::cli::args::ImageStore;
use crate::cli::failure::{Done, Failure};
use crate::cli::output::Output;

/// Arguments of `image default`.
#[derive(Debug, clap::Args)]
pub(crate) struct Default {
    #[command(flatten)]
    store: ImageStore,
    /// The image to set; without it, the default is shown
    #[arg(value_name = "REF")]
    image: Option<String>,
}

impl Default {
    /// Shows or sets the default.
    pub(crate) fn run(self, _out: Output) -> Done {
        let _ = self.store.path()?;
        Err(Failure::not_built("sal image default"))
    }
}
