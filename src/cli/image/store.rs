//! Opens the store for a verb.

use crate::cli::args::ImageStore;
use crate::cli::failure::Failure;
use crate::image::{ImageError, Store};

/// Opens the store that `place` names.
pub(super) fn open(place: &ImageStore) -> Result<Store, Failure> {
    Ok(Store::open(&place.path()?)?)
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        Self::Refused(error.refusal())
    }
}
