//! A new revision as a value: made by a patch or a refresh, published by the service (FT.4, WS.6).

use super::digest::Digest;
use super::manifest::TreeManifest;
use super::relpath::RelPath;

/// A published revision that a change is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Its number.
    pub revision: u32,
    /// Digest of its manifest.
    pub digest: Digest,
}

/// The next tree: what it holds, and the bytes of the files that are not in the base with the same content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeChange {
    /// What it was made from.
    pub base: Base,
    /// What the new revision holds, whole.
    pub target: TreeManifest,
    /// Content of each file of `target` whose path or content the base does not have, sorted by path.
    pub written: Vec<(RelPath, Vec<u8>)>,
}
