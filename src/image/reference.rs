//! Image references that are pinned by digest.

use crate::domain::digest::Digest;
use crate::domain::job::ImagePin;
use serde::{Deserialize, Serialize};

/// Longest name, in bytes (distribution/reference, `NameTotalLengthMax`).
const MAX_NAME: usize = 255;
/// Longest tag, in bytes (distribution/reference, `TagRegexp`).
const MAX_TAG: usize = 128;

/// A repository name, perhaps a tag for the reader, and the digest that alone decides.
///
/// The grammar is that of distribution/reference, its short forms included: `node@…` is
/// `docker.io/library/node@…`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    name: String,
    tag: Option<String>,
    digest: Digest,
}

/// Why a text is no [`Reference`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReference {
    /// Only a name or a name and a tag.
    #[error("'{0}' has no digest; a tag can move, so pin it by digest: NAME@sha256:<64 hex digits>")]
    NotPinned(String),
    /// The part after `@` is no digest.
    #[error("{0}; pin the image by digest: NAME@sha256:<64 hex digits>")]
    Digest(String),
    /// The name is not well formed.
    #[error(
        "'{name}' is not an image name: {rule}; write it like docker.io/library/node or localhost/my/image"
    )]
    Name {
        /// The name, shortened.
        name: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// The tag is not well formed.
    #[error(
        "'{0}' is not a tag: at most 128 letters, digits, '_', '.' and '-', not starting with '.' or '-'"
    )]
    Tag(String),
}

impl Reference {
    /// Parses `NAME@sha256:…` or `NAME:TAG@sha256:…`.
    ///
    /// # Errors
    /// [`BadReference::NotPinned`] without a digest, else the one that applies.
    pub fn parse(text: &str) -> Result<Self, BadReference> {
        let Some((left, digest)) = text.split_once('@') else {
            return Err(BadReference::NotPinned(printable(text)));
        };
        let digest = Digest::parse(digest).map_err(|e| BadReference::Digest(printable(&e.to_string())))?;
        let (name, tag) = parse_name(left)?;
        Ok(Self { name, tag, digest })
    }

    /// Puts a name (with or without a tag) and a digest together.
    ///
    /// # Errors
    /// [`BadReference::Name`] or [`BadReference::Tag`].
    pub fn pinned(name: &str, digest: Digest) -> Result<Self, BadReference> {
        let (name, tag) = parse_name(name)?;
        Ok(Self { name, tag, digest })
    }

    /// The full name, its registry included.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The registry and the repository in it.
    pub(super) fn parts(&self) -> (&str, &str) {
        self.name.split_once('/').unwrap_or(("", &self.name))
    }

    /// The tag, which decides nothing.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest of a manifest or of an index.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The same without the tag.
    #[must_use]
    pub fn without_tag(&self) -> Self {
        Self { tag: None, ..self.clone() }
    }

    /// True if the pin was resolved from this reference: the names are equal and the digest is that
    /// of the pin's manifest or the one that its operator named. Tags are not compared.
    pub fn matches(&self, pin: &ImagePin) -> bool {
        Self::parse(&pin.reference).is_ok_and(|named| {
            named.name == self.name && (self.digest == pin.manifest || self.digest == named.digest)
        })
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        write!(f, "@{}", self.digest)
    }
}

impl TryFrom<String> for Reference {
    type Error = BadReference;
    fn try_from(text: String) -> Result<Self, BadReference> {
        Self::parse(&text)
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        reference.to_string()
    }
}

impl std::str::FromStr for Reference {
    type Err = BadReference;
    fn from_str(text: &str) -> Result<Self, BadReference> {
        Self::parse(text)
    }
}

/// Splits off the tag, checks both, and writes the name out in full.
fn parse_name(text: &str) -> Result<(String, Option<String>), BadReference> {
    // A colon before the last slash belongs to a port.
    let (short, tag) = match text.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (text, None),
    };
    if let Some(tag) = tag {
        check_tag(tag)?;
    }
    let name = match short.split_once('/') {
        Some((first, _)) if first == "localhost" || first.contains(['.', ':']) => short.to_owned(),
        Some(_) => format!("docker.io/{short}"),
        None => format!("docker.io/library/{short}"),
    };
    check_name(&name).map_err(|rule| BadReference::Name {
        name: printable(if short.is_empty() { text } else { short }),
        rule,
    })?;
    Ok((name, tag.map(str::to_owned)))
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.len() > MAX_NAME {
        return Err("it is longer than 255 bytes");
    }
    let (domain, path) = name.split_once('/').ok_or("it has no path")?;
    is_domain(domain)?;
    if path.split('/').all(is_component) {
        Ok(())
    } else {
        Err("its parts must be lowercase letters and digits, joined by '.', '_', '__' or dashes")
    }
}

/// Checks a registry: `HOST` or `HOST:PORT`.
pub(super) fn is_domain(domain: &str) -> Result<(), &'static str> {
    let (host, port) = match domain.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (domain, None),
    };
    let label = |l: &str| {
        !l.is_empty()
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if !host.split('.').all(label) {
        return Err("its registry is not a host name");
    }
    if port.is_some_and(|p| p.parse::<u16>().is_err() || !p.bytes().all(|b| b.is_ascii_digit())) {
        return Err("its port is not a number up to 65535");
    }
    Ok(())
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
fn is_component(part: &str) -> bool {
    let alnum = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut separators = part.split(alnum).filter(|s| !s.is_empty());
    part.starts_with(alnum)
        && part.ends_with(alnum)
        && separators.all(|s| matches!(s, "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

fn check_tag(tag: &str) -> Result<(), BadReference> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let ok = (1..=MAX_TAG).contains(&tag.len())
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|b| word(b) || b == b'.' || b == b'-');
    if ok { Ok(()) } else { Err(BadReference::Tag(printable(tag))) }
}

/// At most 120 characters, none of which can steer a terminal.
fn printable(text: &str) -> String {
    text.chars().take(120).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest() -> Digest {
        Digest::of(b"image")
    }

    fn parse(left: &str) -> Result<Reference, BadReference> {
        Reference::parse(&format!("{left}@{}", digest()))
    }

    #[test]
    fn img1_a_tag_or_a_bare_name_without_a_digest_is_refused() {
        for text in ["node", "node:26.7.0", "docker.io/library/node:26.7.0", "localhost:5000/node", ""] {
            let error = Reference::parse(text).unwrap_err();
            assert!(matches!(error, BadReference::NotPinned(_)), "{text}: {error}");
            assert!(error.to_string().contains("pin it by digest"), "{error}");
        }
    }

    #[test]
    fn img1_names_are_written_out_and_round_trip() {
        for (text, full, tag) in [
            ("node", "docker.io/library/node", None),
            ("me/node:26", "docker.io/me/node", Some("26")),
            ("localhost/salaam/node-debian:26.7.0", "localhost/salaam/node-debian", Some("26.7.0")),
            ("registry.example:5000/a__b/c-d.e", "registry.example:5000/a__b/c-d.e", None),
            ("localhost:5000/x:y", "localhost:5000/x", Some("y")),
        ] {
            let reference = parse(text).unwrap();
            assert_eq!((reference.name(), reference.tag()), (full, tag));
            assert_eq!(Reference::parse(&reference.to_string()).unwrap(), reference);
        }
    }

    #[test]
    fn img1_names_outside_the_grammar_are_refused() {
        for bad in [
            "",
            "/",
            "a//b",
            "Node",
            "a/../b",
            "-a/b",
            "a_.b",
            "a___b",
            "x./y",
            "h:99999/x",
            "h:+1/x",
            "a b",
            "a\u{1b}",
        ] {
            assert!(matches!(parse(bad), Err(BadReference::Name { .. })), "{bad}: {:?}", parse(bad));
        }
        assert!(matches!(parse(&"n".repeat(300)), Err(BadReference::Name { .. })));
        assert!(matches!(parse("node:"), Err(BadReference::Tag(_))));
        assert!(matches!(parse("node:.x"), Err(BadReference::Tag(_))));
        for bad in ["node@", "node@sha512:00", "node@sha256:AB", "a@b@sha256:00"] {
            assert!(matches!(Reference::parse(bad), Err(BadReference::Digest(_))), "{bad}");
        }
    }

    #[test]
    fn img1_a_reference_matches_by_name_and_by_manifest_or_named_digest() {
        let index = Digest::of(b"index");
        let pin = ImagePin {
            reference: format!("node@{index}"),
            index: None,
            manifest: digest(),
            config: Digest::of(b"config"),
            diff_ids: Vec::new(),
        };
        assert!(parse("docker.io/library/node:26.7.0").unwrap().matches(&pin));
        assert!(Reference::pinned("node", index).unwrap().matches(&pin));
        assert!(!parse("other").unwrap().matches(&pin));
        assert!(!Reference::pinned("node", Digest::of(b"else")).unwrap().matches(&pin));
    }
}
