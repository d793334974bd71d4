//! `sal image import`: imports an OCI image layout.

use crate::cli::args::ImageStore;
use crate::cli::failure::{Done, Failure};
use crate::cli::output::Output;

/// Arguments of `image import`.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    #[command(flatten)]
    store: ImageStore,
    /// Directory of the layout
    #[arg(value_name = "LAYOUT")]
    layout: std::path::PathBuf,
    /// Name to keep it under [default: the name in the layout]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Import {
    /// Imports the layout.
    pub(crate) fn run(self, _out: Output) -> Done {
        let _ = self.store.path()?;
        Err(Failure::not_built("sal image import"))
    }
}
