//! Images: references pinned by digest, a verified local store, and the bundles that runs share
//! read-only (IMG.1–4).
//!
//! ```text
//!  source ──▶ blob (copy, size + SHA-256) ──▶ layer (decompress, diff_id) ──▶ unpack ──▶ layers
//!                                                         (each once, by chain id)          │
//!  images/<manifest>.json ◀── record ◀── tree (manifest of what is there) ◀── bundle (top, etc)
//! ```
//! A root file system is a stack: the bundle's `top`, with the mount points that the image lacks, on the
//! unpacked layers. A supervisor mounts it read-only. Where layers cannot be stacked (the store lies on an
//! overlay, say) an image is unpacked flat, into one directory.
//!
//! Everything is written aside under `tmp/` and published by rename; the record is written last, so
//! an image without one does not exist.

mod archive;
mod archive_image;
mod blob;
mod bundle;
mod entry;
mod error;
pub mod examine;
mod gc;
mod import;
mod layer;
mod layers;
mod layout;
mod limits;
mod overlay;
mod prepare;
mod record;
mod reference;
mod registry;
mod resolve;
mod root;
mod shipped;
mod source;
mod store;
mod tree;
mod unpack;
mod uses;
mod verify;

pub use error::ImageError;
pub use gc::{Freed, Usage};
pub use limits::Limits;
pub use record::ImageRecord;
pub use reference::{BadReference, Reference};
pub use registry::{Access, Host, Patience, Progress, Pulled, Silent};
pub use shipped::shipped;
pub use store::Store;
pub use uses::Use;
pub use verify::{Difference, Report};
