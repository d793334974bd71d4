//! `sal image pull`: pulls an image from a registry, by digest; every byte is verified as it comes.

use super::pulling::Shown;
use super::store;
use super::view::View;
use crate::cli::args::ImageStore;
use crate::cli::failure::{Done, Failure};
use crate::cli::output::{Output, Text};
use crate::cli::places;
use crate::image::{Access, BadReference, Host, ImageError, Patience, Reference};
use serde::Serialize;
use std::process::ExitCode;

/// Arguments of `image pull`.
#[derive(Debug, clap::Args)]
pub(crate) struct Pull {
    #[command(flatten)]
    store: ImageStore,
    /// The image, by the digest of its manifest or index: NAME@sha256:… or NAME:TAG@sha256:…
    #[arg(value_name = "REF")]
    image: String,
    /// Registry to ask first, HOST or HOST:PORT; what it lacks comes from the registry of the name
    #[arg(long, value_name = "HOST", env = "SAL_REGISTRY_MIRROR", hide_env_values = true)]
    mirror: Option<Host>,
}

#[derive(Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    image: View,
    /// Layers that came from the registry.
    pulled_layers: usize,
    /// Bytes of them.
    pulled_bytes: u64,
}

impl Pull {
    /// Pulls the image and shows it.
    pub(crate) fn run(self, out: Output) -> Done {
        let reference = Reference::parse(&self.image).map_err(unpinned)?;
        let store = store::open(&self.store)?;
        let access =
            Access { mirror: self.mirror, logins: places::registry_logins(), patience: Patience::default() };
        let shown = Shown::new(out);
        let pulled = store.pull(&reference, &access, &shown);
        shown.clear();
        let pulled = pulled?;
        let answer = Answer {
            image: View::of(pulled.image, &store)?,
            pulled_layers: pulled.layers,
            pulled_bytes: pulled.bytes,
        };
        out.either(&answer, text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn text(answer: &Answer) -> Text {
    let pulled = format!("{} layers, {} bytes", answer.pulled_layers, answer.pulled_bytes);
    answer.image.full().field("pulled", pulled)
}

/// Says how a tag's digest is learnt.
fn unpinned(error: BadReference) -> Failure {
    let BadReference::NotPinned(name) = &error else { return ImageError::from(error).into() };
    let hint = format!(
        "`docker buildx imagetools inspect {name}` or `skopeo inspect --format '{{{{.Digest}}}}' docker://{name}` \
         shows its digest of today; then pull {name}@sha256:…"
    );
    let refusal = ImageError::from(error.clone()).refusal();
    Failure::Refused(crate::domain::refusal::Refusal { hint, ..refusal })
}
