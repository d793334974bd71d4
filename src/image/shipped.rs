//! The reference that is shipped as the default (IMG.1).

use super::error::ImageError;
use super::reference::Reference;
use serde::Deserialize;
use std::path::PathBuf;

const SHIPPED: &str = include_str!("../../bundles/shipped.toml");

#[derive(Deserialize)]
struct Shipped {
    reference: String,
}

/// The shipped pin: the digest of a multi-platform index. Manifest, configuration and layers are
/// learned at the first import and recorded then.
///
/// # Errors
/// [`ImageError::Record`] if the file that was compiled in holds no reference; a test excludes it.
pub fn shipped() -> Result<Reference, ImageError> {
    let bad = |problem: String| ImageError::Record { path: PathBuf::from("bundles/shipped.toml"), problem };
    let file: Shipped = toml::from_str(SHIPPED).map_err(|e| bad(e.message().to_owned()))?;
    Reference::parse(&file.reference).map_err(|e| bad(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn img1_the_shipped_pin_is_the_documented_index() {
        assert_eq!(
            shipped().unwrap().to_string(),
            "docker.io/library/node@sha256:aadf416b2cdce311a8811ba3f0608a61b77dbf997500e2eafe781b51f6a0b019"
        );
    }
}
