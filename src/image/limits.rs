//! Bounds of an import. Each is named in the error of what exceeds it.

/// What an image may at most be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a manifest, an index or an image configuration.
    pub document_bytes: u64,
    /// Layers.
    pub layers: usize,
    /// Archive entries, all layers together.
    pub entries: u64,
    /// Bytes of all uncompressed layers together; also of all compressed ones.
    pub unpacked_bytes: u64,
    /// Bytes of a path or a link target (PATH_MAX).
    pub path_bytes: usize,
    /// Directories above an entry.
    pub depth: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            document_bytes: 4 * 1024 * 1024,
            layers: 128,
            entries: 300_000,
            unpacked_bytes: 8 * 1024 * 1024 * 1024,
            path_bytes: 4096,
            depth: 128,
        }
    }
}
