//! The startup proof (PRF): what is observed in a real container, against what the profile demands.

pub mod probe;
