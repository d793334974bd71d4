//! `sal image import`: imports an OCI image layout or a `docker save` archive; every blob is verified as it
//! is copied.

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
    /// An OCI image layout (a directory or a tar archive of one) or what `docker save` wrote
    #[arg(value_name = "LAYOUT")]
    layout: PathBuf,
    /// Full name to keep it under, such as docker.io/library/node [default: that in the layout]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Import {
    /// Imports the image and shows it.
    pub(crate) fn run(self, out: Output) -> Done {
        let store = store::open(&self.store)?;
        let name = self.name.as_deref();
        let image = if self.layout.is_dir() {
            store.import_layout(&self.layout, name)?
        } else {
            store.import_archive(&self.layout, name)?
        };
        out.either(&View::of(image, &store)?, View::full)?;
        Ok(ExitCode::SUCCESS)
    }
}
