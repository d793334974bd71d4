//! The startup proof (PRF): what is observed in a real container, against what the profile demands.

pub mod expectation;
pub mod observation;
pub mod probe;
pub mod report;

/// Name of the file in the proof's source whose random content shows that the source is ours.
pub const NONCE_FILE: &str = "nonce";
