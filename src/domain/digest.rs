//! Content digests in the OCI form `sha256:<64 lowercase hex digits>`.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest in the form of the OCI image specification ("Digests").
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A string that is not `sha256:` and 64 lowercase hex digits.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is not a digest: it must be 'sha256:' and 64 lowercase hex digits")]
pub struct BadDigest(pub String);

impl Digest {
    /// Hashes `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_sha256(&Sha256::digest(bytes))
    }

    /// Wraps the 32 bytes of a finished SHA-256.
    pub fn from_sha256(raw: &[u8]) -> Self {
        Self(format!("sha256:{}", hex::encode(raw)))
    }

    /// Parses the text form.
    ///
    /// # Errors
    /// [`BadDigest`] for another algorithm, length or letter case.
    pub fn parse(text: &str) -> Result<Self, BadDigest> {
        let bad =
            || BadDigest(text.chars().take(100).map(|c| if c.is_control() { '?' } else { c }).collect());
        let digits = text.strip_prefix("sha256:").ok_or_else(bad)?;
        let ok =
            digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if ok { Ok(Self(text.to_owned())) } else { Err(bad()) }
    }

    /// The whole text, `sha256:…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The 64 hex digits alone, as used for blob file names.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = BadDigest;
    fn try_from(text: String) -> Result<Self, BadDigest> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_parse_only_in_their_canonical_form() {
        let good = Digest::of(b"x");
        assert_eq!(Digest::parse(good.as_str()).unwrap(), good);
        for bad in ["", "sha256:", "sha256:AB", &good.as_str().to_uppercase(), "md5:00", &good.as_str()[..70]]
        {
            assert!(Digest::parse(bad).is_err(), "{bad}");
        }
    }
}
