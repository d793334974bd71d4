//! `sal image default`: shows or sets the image that commands run in.

use super::store;
use crate::cli::args::ImageStore;
use crate::cli::failure::Done;
use crate::cli::output::{Output, Text};
use crate::image::{Reference, shipped};
use serde::Serialize;
use std::process::ExitCode;

/// Arguments of `image default`.
#[derive(Debug, clap::Args)]
pub(crate) struct Default {
    #[command(flatten)]
    store: ImageStore,
    /// The image to set: NAME@DIGEST, a manifest digest, or at least 12 of its digits
    #[arg(value_name = "REF")]
    image: Option<String>,
}

#[derive(Debug, Serialize)]
struct Answer {
    default: String,
    /// False for the pin that this program ships, which holds until another is set.
    set: bool,
    /// Whether the image is in the store.
    present: bool,
}

impl Default {
    /// Sets the default if one is named, and shows it.
    pub(crate) fn run(self, out: Output) -> Done {
        let store = store::open(&self.store)?;
        let kept = match &self.image {
            Some(text) => {
                // A whole reference is kept as the operator names it: it may name an index.
                let reference = match Reference::parse(text) {
                    Ok(reference) => reference,
                    Err(_) => store.find(text)?.reference()?,
                };
                store.set_default(&reference)?;
                Some(reference)
            }
            None => store.default()?,
        };
        let set = kept.is_some();
        let reference = kept.map_or_else(shipped, Ok)?;
        let present = store.inspect(&reference).is_ok();
        let answer = Answer { default: reference.to_string(), set, present };
        out.either(&answer, |answer| Text::default().line(&answer.default))?;
        if !present && !out.is_json() {
            out.note("this image is not in the store; import it: sal image import LAYOUT --name NAME");
        }
        Ok(ExitCode::SUCCESS)
    }
}
