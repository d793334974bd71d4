//! Images: references pinned by digest, a verified local store, and the bundles that runs share
//! read-only (IMG.1–4).
//!
//! ```text
//!  source ──▶ blob (copy, size + SHA-256) ──▶ layer (gunzip, diff_id) ──▶ unpack ──▶ prepare
//!                                                                                      │
//!  images/<manifest>.json ◀── record ◀── tree (manifest of what was unpacked) ◀── bundle (etc)
//! ```
//! Everything is written aside under `tmp/` and published by rename; the record is written last, so
//! an image without one does not exist.

mod blob;
mod bundle;
mod entry;
mod error;
mod import;
mod layer;
mod layout;
mod limits;
mod prepare;
mod record;
mod reference;
mod resolve;
mod root;
mod shipped;
mod source;
mod store;
mod tree;
mod unpack;
mod verify;

pub use error::ImageError;
pub use limits::Limits;
pub use record::ImageRecord;
pub use reference::{BadReference, Reference};
pub use shipped::shipped;
pub use store::Store;
pub use verify::{Difference, Report};
