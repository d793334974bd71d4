//! `sal image verify`: reads all of an image and compares it with what was imported.

use super::store;
use crate::cli::args::ImageStore;
use crate::cli::failure::{Done, Failure};
use crate::cli::output::{Output, Text};
use crate::domain::refusal::{Code, Refusal};
use serde::Serialize;
use std::process::ExitCode;

/// Arguments of `image verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    store: ImageStore,
    /// The image: NAME@DIGEST, a manifest digest, or at least 12 of its digits [default: every image]
    #[arg(value_name = "REF")]
    image: Option<String>,
}

#[derive(Debug, Serialize)]
struct Answer {
    /// The image; null when all were verified.
    reference: Option<String>,
    sound: bool,
    blobs: usize,
    entries: usize,
    differences: Vec<Different>,
    /// Differences that are not listed.
    more: usize,
}

#[derive(Debug, Serialize)]
struct Different {
    what: String,
    problem: String,
}

impl Verify {
    /// Verifies the image and shows what differs; any difference is a failure.
    pub(crate) fn run(self, out: Output) -> Done {
        let store = store::open(&self.store)?;
        let reference = match &self.image {
            Some(image) => Some(store.find(image)?.reference()?),
            None => None,
        };
        let report = match &reference {
            Some(reference) => store.verify(reference)?,
            None => store.verify_all()?,
        };
        let reference = reference.map(|reference| reference.to_string());
        let sound = report.is_sound();
        let differences = report
            .differences
            .into_iter()
            .map(|found| Different { what: found.what, problem: found.problem });
        let answer = Answer {
            reference: reference.clone(),
            sound,
            blobs: report.blobs,
            entries: report.entries,
            differences: differences.collect(),
            more: report.more,
        };
        out.either(&answer, text)?;
        if sound {
            return Ok(ExitCode::SUCCESS);
        }
        let count = answer.differences.len() + answer.more;
        Err(Failure::Refused(Refusal::new(
            Code::Image,
            match reference {
                Some(image) => format!("the image {image} differs in {count} places from what was imported"),
                None => format!("the images differ in {count} places from what was imported"),
            },
            "nothing may run in it: `sal image rm REF`, then `sal image import LAYOUT`",
        )))
    }
}

fn text(answer: &Answer) -> Text {
    let text = Text::default()
        .field("reference", answer.reference.as_deref().unwrap_or("all images"))
        .field("compared", format_args!("{} blobs, {} files", answer.blobs, answer.entries))
        .lines(&answer.differences, |found| format!("differs    {}: {}", found.what, found.problem));
    if answer.more > 0 { text.line(format_args!("and {} more", answer.more)) } else { text }
}
