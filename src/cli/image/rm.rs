//! `sal image rm`: removes an image from the store.

use super::{store, users, view};
use crate::cli::args::ImageStore;
use crate::cli::failure::{Done, Failure};
use crate::cli::output::{Output, Text};
use crate::domain::refusal::{Code, Refusal};
use serde::Serialize;
use std::process::ExitCode;

/// Arguments of `image rm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Rm {
    #[command(flatten)]
    store: ImageStore,
    /// The image: NAME@DIGEST, a manifest digest, or at least 12 of its digits
    #[arg(value_name = "REF")]
    image: String,
    /// Remove it even if it is the default; one that a service or run uses stays
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Serialize)]
struct Answer {
    removed: String,
    /// Bytes on disk that were given back.
    freed: u64,
}

impl Rm {
    /// Removes the image with its bundle, and the layers and blobs that no other image has.
    pub(crate) fn run(self, out: Output) -> Done {
        let store = store::open(&self.store)?;
        let image = store.find(&self.image)?;
        let reference = image.reference()?;
        if !self.force && view::is_default(&image, &store)? {
            return Err(Failure::Refused(Refusal::new(
                Code::Forbidden,
                format!("the image {reference} is the default of the store {}", store.dir().display()),
                "set another with `sal image default REF` first, or repeat with --force",
            )));
        }
        store.forget_uses(&users::busy)?;
        let freed = store.remove(&reference)?;
        let answer = Answer { removed: reference.to_string(), freed };
        out.either(&answer, |answer| {
            Text::default()
                .field("removed", &answer.removed)
                .field("freed", format_args!("{} bytes", answer.freed))
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
