//! How an image of the store is shown to a person.

use crate::cli::output::Text;
use crate::image::ImageRecord;

/// An image in full.
pub(super) fn full(image: &ImageRecord) -> Text {
    let pin = &image.pin;
    let mut text = Text::default()
        .field("reference", &pin.reference)
        .lines(&image.other_names, |name| format!("also       {name}"))
        .field("tag", image.tag.as_deref().unwrap_or("-"))
        .field("manifest", &pin.manifest)
        .field("config", &pin.config);
    if let Some(index) = &image.index {
        text = text.field("index", index);
    }
    text.lines(&pin.diff_ids, |layer| format!("diff id    {layer}"))
        .field("size", format_args!("{} bytes, {} unpacked", image.size, image.unpacked))
        .field("built", image.created.as_deref().unwrap_or("-"))
        .field("imported", &image.imported)
}

/// An image on one line.
pub(super) fn brief(image: &ImageRecord) -> String {
    format!("{}  {} bytes  {}", image.pin.reference, image.size, image.tag.as_deref().unwrap_or("-"))
}
