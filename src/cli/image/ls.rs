//! `sal image ls`: the images in the store.

use super::{store, text};
use crate::cli::args::ImageStore;
use crate::cli::failure::Done;
use crate::cli::output::{Output, Text};
use crate::image::ImageRecord;
use serde::Serialize;
use std::process::ExitCode;

/// Arguments of `image ls`.
#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    #[command(flatten)]
    store: ImageStore,
}

#[derive(Debug, Serialize)]
struct Images {
    images: Vec<ImageRecord>,
}

impl Ls {
    /// Lists the images.
    pub(crate) fn run(self, out: Output) -> Done {
        let all = Images { images: store::open(&self.store)?.list()? };
        out.either(&all, |all| Text::default().lines(&all.images, text::brief))?;
        Ok(ExitCode::SUCCESS)
    }
}
