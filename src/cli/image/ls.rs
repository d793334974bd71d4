//! `sal image ls`: the images in the store.

use super::store;
use super::view::View;
use crate::cli::args::ImageStore;
use crate::cli::failure::Done;
use crate::cli::output::{Output, Text};
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
    images: Vec<View>,
    /// Bytes on disk of all images together.
    disk: u64,
}

impl Ls {
    /// Lists the images.
    pub(crate) fn run(self, out: Output) -> Done {
        let store = store::open(&self.store)?;
        let (usage, disk) = store.usage()?;
        let images = store.list()?.into_iter().map(|image| View::with(image, &store, &usage));
        let all = Images { images: images.collect::<Result<_, _>>()?, disk };
        out.either(&all, |all| Text::default().lines(&all.images, View::brief))?;
        Ok(ExitCode::SUCCESS)
    }
}
