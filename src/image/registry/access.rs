//! How registries are reached: what the caller decides.

use super::endpoint::Host;
use crate::domain::digest::Digest;
use std::path::PathBuf;
use std::time::Duration;

/// What the operator set for a pull.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Asked before the registry that the reference names. Nothing of it is trusted, and it is shown no
    /// credentials but its own.
    pub mirror: Option<Host>,
    /// Files in the form of Docker's `config.json`, asked in order; a missing one is passed over.
    pub logins: Vec<PathBuf>,
    /// Waits and attempts.
    pub patience: Patience,
}

/// Bounds of waiting. Each attempt that brings no byte counts against `attempts`.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a connection, its TLS handshake included.
    pub connect: Duration,
    /// For the next bytes of an answer.
    pub stall: Duration,
    /// Attempts in a row that bring nothing.
    pub attempts: u32,
    /// Wait after the first of them; doubles with each.
    pub backoff: Duration,
    /// For the answer of a credential helper.
    pub helper: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            stall: Duration::from_secs(30),
            attempts: 5,
            backoff: Duration::from_millis(250),
            helper: Duration::from_secs(60),
        }
    }
}

impl Patience {
    /// The wait after `tries` attempts in a row that brought nothing; at most half a minute.
    pub(super) fn pause(&self, tries: u32) -> Duration {
        let doubled = self.backoff.saturating_mul(1 << tries.saturating_sub(1).min(16));
        doubled.min(Duration::from_secs(30))
    }
}

/// Is told how a pull goes on, from several threads.
pub trait Progress: Sync {
    /// Something that the operator may want to know.
    fn note(&self, _text: &str) {}
    /// Of the `size` bytes of a layer, `at` are here; told at its start, then often.
    fn layer(&self, _blob: &Digest, _at: u64, _size: u64) {}
    /// A layer is here, whole and verified.
    fn done(&self, _blob: &Digest, _size: u64) {}
    /// All layers are here or on their way; they are being unpacked.
    fn unpacking(&self) {}
}

/// Tells nobody.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn img3_pauses_double_and_stay_bounded() {
        let patience = Patience::default();
        assert_eq!(patience.pause(1), Duration::from_millis(250));
        assert_eq!(patience.pause(3), Duration::from_secs(1));
        assert_eq!(patience.pause(u32::MAX), Duration::from_secs(30));
    }
}
