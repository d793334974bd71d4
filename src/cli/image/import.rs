//! `sal image import`: imports an OCI image layout; every blob is verified as it is copied.

use super::store;
use super::view::View;
use crate::cli::args::ImageStore;
use crate::cli::failure::Done;
use crate::cli::output::Output;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `image import`.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    #[command(flatten)]
    store: ImageStore,
    /// Directory of the layout
    #[arg(value_name = "LAYOUT")]
    layout: PathBuf,
    /// Full name to keep it under, such as docker.io/library/node [default: that of the layout]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Import {
    /// Imports the layout and shows the image.
    pub(crate) fn run(self, out: Output) -> Done {
        let store = store::open(&self.store)?;
        let image = store.import_layout(&self.layout, self.name.as_deref())?;
        out.either(&View::of(image, &store)?, View::full)?;
        Ok(ExitCode::SUCCESS)
    }
}
