//! `sal image gc`: gives back what no image, run or proof needs.

use super::{store, users, view};
use crate::cli::args::ImageStore;
use crate::cli::failure::Done;
use crate::cli::output::{Output, Text};
use serde::Serialize;
use std::process::ExitCode;

/// Arguments of `image gc`.
#[derive(Debug, clap::Args)]
pub(crate) struct Gc {
    #[command(flatten)]
    store: ImageStore,
    /// Also remove every image that is not the default and that no service or run uses
    #[arg(long)]
    unused: bool,
}

#[derive(Debug, Serialize)]
struct Answer {
    /// References of the images that were removed.
    removed: Vec<String>,
    /// Bytes on disk that were given back.
    freed: u64,
}

impl Gc {
    /// Collects, and shows what was removed.
    pub(crate) fn run(self, out: Output) -> Done {
        let store = store::open(&self.store)?;
        store.forget_uses(&users::busy)?;
        let default = view::default_of(&store)?;
        let freed = store.gc(self.unused, &|image| image.answers(&default))?;
        let answer = Answer { removed: freed.images, freed: freed.bytes };
        out.either(&answer, |answer| {
            Text::default()
                .lines(&answer.removed, |image| format!("removed    {image}"))
                .field("freed", format_args!("{} bytes", answer.freed))
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
