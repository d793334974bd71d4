//! How an image of the store is shown: what a person or a script can use, and nothing of the store's
//! own bookkeeping.

use super::users;
use crate::cli::failure::Failure;
use crate::cli::output::Text;
use crate::domain::digest::Digest;
use crate::image::{ImageRecord, Reference, Store, Usage, shipped};
use serde::Serialize;
use std::collections::HashMap;

/// An image.
#[derive(Debug, Serialize)]
pub(super) struct View {
    reference: String,
    /// Full names under which it was imported again.
    other_names: Vec<String>,
    tag: Option<String>,
    manifest: Digest,
    config: Digest,
    /// The index through which its manifest was found.
    index: Option<Digest>,
    diff_ids: Vec<Digest>,
    /// Bytes of all its blobs.
    size: u64,
    /// Bytes of its uncompressed layers.
    unpacked: u64,
    disk: Disk,
    /// Whether it is a stack of layers that images share, or one directory of its own.
    layered: bool,
    /// State directories whose service or runs may need it.
    used_by: Vec<String>,
    /// When it was built, as its configuration says.
    created: Option<String>,
    imported: String,
    /// Whether commands run in it unless told otherwise.
    default: bool,
}

/// Bytes on disk.
#[derive(Debug, Serialize)]
struct Disk {
    /// What its removal gives back.
    own: u64,
    /// What other images have too.
    shared: u64,
}

impl View {
    /// What is shown of `image`, which lies in `store`.
    pub(super) fn of(image: ImageRecord, store: &Store) -> Result<Self, Failure> {
        let (usage, _) = store.usage()?;
        Self::with(image, store, &usage)
    }

    /// The same, with what images cost.
    pub(super) fn with(
        image: ImageRecord,
        store: &Store,
        usage: &HashMap<Digest, Usage>,
    ) -> Result<Self, Failure> {
        let Usage { own, shared } = usage.get(&image.pin.manifest).copied().unwrap_or_default();
        let users = store.uses()?.into_iter().filter(|used| used.manifest == image.pin.manifest);
        Ok(Self {
            disk: Disk { own, shared },
            layered: !image.layers.is_empty(),
            used_by: users
                .filter(|used| users::busy(&used.state))
                .map(|used| used.state.display().to_string())
                .collect(),
            default: is_default(&image, store)?,
            reference: image.pin.reference,
            other_names: image.other_names,
            tag: image.tag,
            manifest: image.pin.manifest,
            config: image.pin.config,
            index: image.index,
            diff_ids: image.pin.diff_ids,
            size: image.size,
            unpacked: image.unpacked,
            created: image.created,
            imported: image.imported,
        })
    }

    /// All of it.
    pub(super) fn full(&self) -> Text {
        let mut text = Text::default()
            .field("reference", &self.reference)
            .lines(&self.other_names, |name| format!("also       {name}"))
            .field("tag", self.tag.as_deref().unwrap_or("-"))
            .field("manifest", &self.manifest)
            .field("config", &self.config);
        if let Some(index) = &self.index {
            text = text.field("index", index);
        }
        text.lines(&self.diff_ids, |layer| format!("diff id    {layer}"))
            .field("size", format_args!("{} bytes, {} unpacked", self.size, self.unpacked))
            .field("disk", format_args!("{} bytes of its own, {} shared", self.disk.own, self.disk.shared))
            .lines(&self.used_by, |state| format!("used by    {state}"))
            .field("built", self.created.as_deref().unwrap_or("-"))
            .field("imported", &self.imported)
            .field("default", if self.default { "yes" } else { "no" })
    }

    /// One line of it.
    pub(super) fn brief(&self) -> String {
        let tag = self.tag.as_deref().unwrap_or("-");
        let default = if self.default { "  default" } else { "" };
        let Disk { own, shared } = self.disk;
        format!("{}  {own} bytes, {shared} shared  {tag}{default}", self.reference)
    }
}

/// Whether commands run in `image` unless told otherwise: the store's default, or else the shipped pin,
/// means it.
pub(super) fn is_default(image: &ImageRecord, store: &Store) -> Result<bool, Failure> {
    Ok(image.answers(&default_of(store)?))
}

/// The image that commands run in unless told otherwise.
pub(super) fn default_of(store: &Store) -> Result<Reference, Failure> {
    Ok(store.default()?.map_or_else(shipped, Ok)?)
}
