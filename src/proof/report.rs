//! `executor-proof.json`: what was proved, written so that it is whole or absent (PRF.3).

use super::expectation::Finding;
use crate::domain::digest::Digest;
use crate::domain::job::ImagePin;
use crate::domain::profile::Profile;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// File name of the report in the state directory.
pub const REPORT_FILE: &str = "executor-proof.json";

/// A proof: everything that was demanded and seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Format version, 1.
    pub format: u32,
    /// The backend: `oci` or `docker`.
    pub executor: String,
    /// Engine and kernel identity; commands are refused when it changes (PRF.4).
    pub engine: String,
    /// The cgroup version that holds the limits: `v1` or `v2`.
    pub cgroup: String,
    /// The image.
    pub image: ImagePin,
    /// The profile.
    pub profile: Profile,
    /// Its digest.
    pub profile_digest: Digest,
    /// When it was made, RFC 3339, for readers only.
    pub made_at: String,
    /// One finding a control.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The controls that do not hold.
    pub fn failures(&self) -> Vec<&Finding> {
        self.findings.iter().filter(|f| !f.passed).collect()
    }

    /// Writes the report: temporary file, fsync, rename, fsync of the directory. Answers its digest.
    ///
    /// # Errors
    /// The system's error; the old report is then still whole.
    pub fn write(&self, state: &Path) -> io::Result<Digest> {
        let text = serde_json::to_vec_pretty(self)?;
        let temporary = state.join(format!("{REPORT_FILE}.new"));
        let mut file =
            File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&temporary, state.join(REPORT_FILE))?;
        File::open(state)?.sync_all()?;
        Ok(Digest::of(&text))
    }
}
