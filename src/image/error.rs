//! What can go wrong in the image store.

use super::reference::BadReference;
use crate::domain::digest::Digest;
use crate::domain::refusal::{Code, Refusal};
use std::io;
use std::path::{Path, PathBuf};

/// Why the store refused or failed. After any of them the store is as it was before the call.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The system refused an operation on a file.
    #[error("{path}: cannot {doing}: {source}")]
    Io {
        /// What was tried, such as `read`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The store directory is not private to its user.
    #[error("{path}: {problem}; the image store must be a directory of its user with mode 0700")]
    UnsafeStore {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A text that names no image.
    #[error(transparent)]
    Reference(#[from] BadReference),
    /// Not an OCI image layout, or one that cannot be used here.
    #[error("{path}: {problem}")]
    Layout {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong, and the next step.
        problem: String,
    },
    /// A list of images without the one that is wanted.
    #[error("the source {problem}")]
    Source {
        /// What is wrong, and the next step.
        problem: String,
    },
    /// A blob that the layout names but does not hold.
    #[error("{path}: the layout names blob {blob} but does not hold it; export the image again")]
    BlobMissing {
        /// The blob.
        blob: Digest,
        /// Where it should lie.
        path: PathBuf,
    },
    /// A blob whose content is not what its name says.
    #[error("{path}: blob {expected} has content {found}; it was changed or damaged, export the image again")]
    BlobDigest {
        /// Where it was read.
        path: PathBuf,
        /// The digest in its descriptor.
        expected: Digest,
        /// The digest of its content.
        found: Digest,
    },
    /// A blob of another length than its descriptor says.
    #[error("{path}: blob {blob} has {found} bytes, its descriptor says {expected}; export the image again")]
    BlobSize {
        /// The blob.
        blob: Digest,
        /// Where it was read.
        path: PathBuf,
        /// Bytes in its descriptor.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// A manifest or configuration that is verified but of no use.
    #[error("blob {blob}: {problem}")]
    Document {
        /// The blob.
        blob: Digest,
        /// What is wrong, and the next step.
        problem: String,
    },
    /// A layer in a form that is not supported yet.
    #[error(
        "layer {layer} has media type {media_type}, which is not built yet; export the image with gzip, zstd or plain layers"
    )]
    LayerNotBuilt {
        /// The layer.
        layer: Digest,
        /// Its media type.
        media_type: String,
    },
    /// A layer that cannot be read as a compressed archive.
    #[error("layer {layer} cannot be unpacked: {problem}; export the image again")]
    Layer {
        /// The layer.
        layer: Digest,
        /// What is wrong.
        problem: String,
    },
    /// The uncompressed layer is not the one of the configuration.
    #[error(
        "layer {layer} unpacks to {found}, the configuration's diff_id is {expected}; export the image again"
    )]
    DiffId {
        /// The layer.
        layer: Digest,
        /// The digest in the configuration.
        expected: Digest,
        /// The digest found.
        found: Digest,
    },
    /// An archive entry that would be unsafe or cannot be made.
    #[error("layer {layer}, entry '{entry}': {problem}; the image is refused, build it without that entry")]
    Entry {
        /// The layer.
        layer: Digest,
        /// The entry's path, made printable.
        entry: String,
        /// What is wrong.
        problem: String,
    },
    /// A root file system that the profile's mounts cannot be put on.
    #[error("the image's {path} {problem}; use an image where it is sound")]
    Rootfs {
        /// The path in the image.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// A named bound is exceeded.
    #[error("{what} exceeds the limit of {limit} {unit}; use a smaller image")]
    Limit {
        /// What is too large.
        what: String,
        /// The limit.
        limit: u64,
        /// Its unit.
        unit: &'static str,
    },
    /// A registry could not be reached, refused, or did not send what it should.
    #[error("{registry}: {problem}")]
    Registry {
        /// Its host.
        registry: String,
        /// What is wrong.
        problem: String,
        /// What to do next.
        hint: String,
    },
    /// A file with logins that cannot be used.
    #[error("{path}: {problem}; mend it, or log in again with `docker login`")]
    Logins {
        /// The file.
        path: PathBuf,
        /// What is wrong; nothing of its content.
        problem: String,
    },
    /// A credential helper that did not do its work.
    #[error("the credential helper {program} {problem}")]
    Helper {
        /// The program.
        program: String,
        /// What is wrong.
        problem: String,
    },
    /// No such image.
    #[error("{store} holds no image {wanted}; import it first")]
    NotFound {
        /// What was asked for.
        wanted: String,
        /// The store.
        store: PathBuf,
    },
    /// A digest prefix that fits several images.
    #[error("{wanted} fits {count} images in {store}; give more digits")]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// How many it fits.
        count: usize,
        /// The store.
        store: PathBuf,
    },
    /// A file of the store that cannot be understood.
    #[error("{path}: {problem}; remove this file, then import or set again what it stood for")]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// An image that a service, its runs or its proof need.
    #[error(
        "{image} is used by the service or the runs of {by}; stop that service first, and settle its runs"
    )]
    InUse {
        /// The image.
        image: String,
        /// The state directory.
        by: PathBuf,
    },
    /// A stored image is not as it was imported.
    #[error(
        "{image}: {problem}; see what differs with 'sal image verify', or remove it with 'sal image rm' and import it again"
    )]
    Changed {
        /// The image.
        image: String,
        /// The first difference.
        problem: String,
    },
}

impl ImageError {
    /// Adds what was tried on which path to a system error.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }

    /// The same for an errno.
    pub(super) fn errno(doing: &'static str, path: &Path) -> impl FnOnce(rustix::io::Errno) -> Self + use<> {
        let path = path.to_owned();
        move |errno| Self::Io { doing, path, source: errno.into() }
    }

    /// The form that clients see.
    pub fn refusal(&self) -> Refusal {
        let (code, hint) = match self {
            Self::Registry { hint, .. } => (Code::Image, hint.as_str()),
            Self::Logins { .. } => {
                (Code::Invalid, "REGISTRY_AUTH_FILE or DOCKER_CONFIG can name another file")
            }
            Self::Helper { .. } => (
                Code::Image,
                "see credHelpers and credsStore in ~/.docker/config.json, or put the login in REGISTRY_AUTH_FILE",
            ),
            Self::Io { .. } => (Code::Internal, "see to the named path, then try again"),
            Self::UnsafeStore { .. } => (Code::UnsafePath, "chmod 0700 the directory or name another"),
            Self::Reference(_) => (Code::Invalid, "write NAME@sha256:<64 hex digits>"),
            Self::LayerNotBuilt { .. } => {
                (Code::NotBuilt, "export the image with gzip, zstd or plain layers")
            }
            Self::Limit { .. } => (Code::LimitExceeded, "use a smaller image"),
            Self::NotFound { .. } => {
                (Code::NotFound, "`sal image ls` lists what is there; `sal image import LAYOUT` adds to it")
            }
            Self::Ambiguous { .. } => (Code::Invalid, "`sal image ls` shows the whole digests"),
            Self::InUse { .. } => (Code::Forbidden, "`sal service stop --state DIR`, then try again"),
            Self::Record { .. } => (Code::Image, "remove the named file, then `sal image import LAYOUT`"),
            Self::Changed { .. } => {
                (Code::Image, "`sal image verify REF`, or `sal image rm REF` and `sal image import LAYOUT`")
            }
            _ => (Code::Image, "export or build the image again, then import it"),
        };
        Refusal::new(code, self.to_string(), hint)
    }
}

impl From<ImageError> for Refusal {
    fn from(error: ImageError) -> Self {
        error.refusal()
    }
}

/// At most 300 characters of what another program said, none of which can steer a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().take(300).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Why JSON could not be read. The crate's errors hold text of the document as it is.
pub(super) fn unread(error: &serde_json::Error) -> String {
    printable(&error.to_string())
}

/// Makes path bytes of an image printable and unambiguous: `\` becomes `\\`; bytes that are not
/// UTF-8, and control characters, become `\xNN`.
pub(super) fn path_text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                c if c.is_control() => {
                    let mut utf8 = [0; 4];
                    c.encode_utf8(&mut utf8).bytes().for_each(|b| out.push_str(&format!("\\x{b:02x}")));
                }
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|b| out.push_str(&format!("\\x{b:02x}")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_text_is_unambiguous_and_printable() {
        assert_eq!(path_text("a/Főt".as_bytes()), "a/Főt");
        assert_eq!(path_text(b"a\\x1b"), "a\\\\x1b");
        assert_eq!(path_text(b"a\x1b\xff"), "a\\x1b\\xff");
        assert_eq!(path_text("\u{9b}".as_bytes()), "\\xc2\\x9b");
    }
}
