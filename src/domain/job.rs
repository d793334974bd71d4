//! The job: what the service hands to a supervisor in a run directory.
//!
//! A run directory holds `job.json` (this type), `records` (one JSON [`super::record::Record`] a line),
//! `lock` and `log`. The kept output lies outside, at [`Job::output`].

use super::digest::Digest;
use super::ids::{ContainerId, ExecId, RunId};
use super::manifest::TreeManifest;
use super::profile::Profile;
use super::relpath::RelPath;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Format version of [`Job`]; a supervisor refuses any other.
pub const FORMAT: u32 = 2;
/// File name of the job.
pub const JOB_FILE: &str = "job.json";
/// File name of the liveness lock, which the supervisor holds with fcntl(2).
pub const LOCK_FILE: &str = "lock";
/// File name of the records.
pub const RECORDS_FILE: &str = "records";

/// What process is run in the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// `/bin/sh -c TEXT` in `/work` or the relative directory below it (CMD.1).
    Command {
        /// The command text.
        text: String,
        /// Working directory below `/work`.
        cwd: RelPath,
    },
    /// Our own probe, mounted read-only at [`super::profile::PROBE`] (PRF.1).
    Probe {
        /// Its arguments.
        args: Vec<String>,
    },
}

/// The resolved image: the tuple by which every engine can be held to it (IMG.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePin {
    /// What the operator named, such as `docker.io/library/node@sha256:…`.
    pub reference: String,
    /// Digest of the index through which the manifest was found: provenance, no part of the identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<Digest>,
    /// Digest of the platform manifest.
    pub manifest: Digest,
    /// Digest of the image configuration.
    pub config: Digest,
    /// Digests of the uncompressed layers, lowest first.
    pub diff_ids: Vec<Digest>,
}

impl ImagePin {
    /// True if both are one image, however it was named or found.
    pub fn is_same_image(&self, other: &Self) -> bool {
        (&self.manifest, &self.config, &self.diff_ids) == (&other.manifest, &other.config, &other.diff_ids)
    }
}

/// A bundle on disk that runs share read-only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// The image it was unpacked from.
    pub pin: ImagePin,
    /// Absolute directories that are stacked to the root file system, topmost first, as an overlay's
    /// lower directories. One alone is the root file system as it is.
    pub lower: Vec<PathBuf>,
    /// Absolute path of the directory that holds our `passwd`, `group`, `hosts`, `hostname` and
    /// `resolv.conf`, bound read-only over those of the image (IMG.4).
    pub etc: PathBuf,
}

/// Everything a supervisor needs to run one container without the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// [`FORMAT`].
    pub format: u32,
    /// The run; also in the name of the run directory.
    pub run_id: RunId,
    /// The container and its cgroup.
    pub container_id: ContainerId,
    /// The one launch attempt.
    pub exec_id: ExecId,
    /// `/proc/sys/kernel/random/boot_id` of the boot that the deadline is counted in.
    pub boot_id: String,
    /// CLOCK_BOOTTIME instant, in nanoseconds, at which the command is killed.
    pub deadline_ns: u64,
    /// What to run.
    pub entry: Entry,
    /// Under which controls.
    pub profile: Profile,
    /// In which root file system.
    pub bundle: Bundle,
    /// Absolute path of the source revision on the host.
    pub source: PathBuf,
    /// What the source must hold, checked while it is copied to `/work` (CMD.3).
    pub manifest: TreeManifest,
    /// Absolute path of the file that keeps the output; it outlives the run directory.
    pub output: PathBuf,
    /// Absolute path of our executable, mounted for probes.
    pub probe: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn img1_an_image_is_its_manifest_config_and_layers_however_it_was_found() {
        let [manifest, config, layer] = ["m", "c", "l"].map(|t| Digest::of(t.as_bytes()));
        let pin = ImagePin {
            reference: "a/b@x".into(),
            index: None,
            manifest: manifest.clone(),
            config: config.clone(),
            diff_ids: vec![layer.clone()],
        };
        let found_otherwise =
            ImagePin { reference: "c/d@y".into(), index: Some(layer.clone()), ..pin.clone() };
        assert!(pin.is_same_image(&found_otherwise));
        for other in [
            ImagePin { manifest: config.clone(), ..pin.clone() },
            ImagePin { config: manifest, ..pin.clone() },
            ImagePin { diff_ids: vec![layer.clone(), layer], ..pin.clone() },
        ] {
            assert!(!pin.is_same_image(&other), "{other:?}");
        }
        // Rows of a ledger from before the index was kept are read.
        let mut old = serde_json::to_value(&pin).unwrap();
        old.as_object_mut().unwrap().remove("index");
        assert_eq!(serde_json::from_value::<ImagePin>(old).unwrap(), pin);
    }
}
