//! Images from a registry (OCI distribution specification; IMG.1–3), by digest only.
//!
//! ```text
//!  pull ──▶ session (auth, redirects) ──▶ http (hyper + rustls; plain only to loopback)
//!    │        └─ credentials ──▶ helper (docker-credential-…)
//!    └────▶ download ──▶ partial/<hex> (resumed by Range, hashed as it comes) ──▶ the store's stage
//! ```
//! The registry, its mirror and the network are not trusted: a byte counts only once it has the size and
//! the SHA-256 that the reference, or a document under it, names.

mod access;
mod auth;
mod credentials;
mod download;
mod endpoint;
mod helper;
mod http;
mod kind;
mod pull;
mod session;
mod sources;

pub use access::{Access, Patience, Progress, Silent};
pub use endpoint::Host;
pub(super) use kind::media_type;
pub use pull::Pulled;
