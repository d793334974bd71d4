//! `sal image ls`: lists the images in the store.

use crate::cli::args::ImageStore;
use crate::cli::failure::{Done, Failure};
use crate::cli::output::Output;

/// Arguments of `image ls`.
#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    #[command(flatten)]
    store: ImageStore,
}

impl Ls {
    /// Lists the images.
    pub(crate) fn run(self, _out: Output) -> Done {
        let _ = self.store.path()?;
        Err(Failure::not_built("sal image ls"))
    }
}
