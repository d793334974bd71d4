//! Runs the start-up proof: a real container under the command profile, by the same path as a
//! command, then judges and stores what the probe saw (PRF.1, 3).

use super::clock;
use super::core::{Backend, blocking};
use super::ports::{ProofSummary, Prover};
use super::sweep::{end_orphan, sweep_one};
use crate::domain::digest::Digest;
use crate::domain::ids::{ContainerId, ExecId, RunId};
use crate::domain::job::{self, Entry, Job};
use crate::domain::manifest::{FileEntry, TreeManifest};
use crate::domain::outcome::{Ending, Evidence};
use crate::domain::profile::Profile;
use crate::domain::record::Record;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::relpath::RelPath;
use crate::exec::{Fut, Observed};
use crate::proof::NONCE_FILE;
use crate::proof::expectation::judge;
use crate::proof::observation::{Observation, Outside};
use crate::proof::report::Report;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;

/// What the name of a proof's source directory begins with; a run id of its own follows.
pub(super) const PROOF_SOURCE: &str = "proof-";
/// Longest that a proof may take; a slow guest needs about a fifth of it.
const PROOF_LIMIT: Duration = Duration::from_secs(60);

/// Proves the controls of a backend.
pub struct ContainerProver {
    backend: Backend,
    state: PathBuf,
    stop: Option<watch::Receiver<bool>>,
}

/// A container that was run for its observation.
#[derive(Debug)]
pub struct Probed {
    /// What the probe saw.
    pub seen: Observation,
    /// What is known from outside.
    pub outside: Outside,
}

impl ContainerProver {
    /// Proves `backend`; `state` gets the report and, for the time of the proof, a source directory.
    pub fn new(backend: Backend, state: PathBuf) -> Self {
        Self { backend, state, stop: None }
    }

    /// Ends the proof early, with its container gone and its files deleted, once `stop` says so.
    #[must_use]
    pub fn stopped_by(self, stop: watch::Receiver<bool>) -> Self {
        Self { stop: Some(stop), ..self }
    }

    async fn told_to_stop(&self) {
        let Some(mut stop) = self.stop.clone() else { return std::future::pending().await };
        if stop.wait_for(|stop| *stop).await.is_err() {
            // Whoever could tell it is gone.
            std::future::pending().await
        }
    }

    /// Runs the probe under `actual` while it pushes the limits of `expected`. The two differ only in
    /// tests of the proof itself (PRF.2).
    ///
    /// # Errors
    /// `proof_failed` when the container cannot be run, `host` when the host cannot be read.
    pub async fn probe(&self, actual: &Profile, expected: &Profile) -> Result<Probed, Refusal> {
        let source = self.state.join(format!("{PROOF_SOURCE}{}", RunId::fresh()));
        let result = self.probe_with(&source, actual, expected).await;
        let _ = std::fs::remove_dir_all(&source);
        result
    }

    async fn probe_with(
        &self,
        source: &Path,
        actual: &Profile,
        expected: &Profile,
    ) -> Result<Probed, Refusal> {
        let nonce = ExecId::fresh().to_string();
        if self.stop.as_ref().is_some_and(|stop| *stop.borrow()) {
            return Err(stopped());
        }
        write_source(source, &nonce).map_err(|e| failed(format!("{}: {e}", source.display())))?;
        let job = self.job(source, &nonce, actual, expected)?;
        let (run, output) = (job.run_id.clone(), job.output.clone());
        let container = job.container_id.clone();
        let executor = &self.backend.executor;
        executor.launch(job).await.map_err(|e| failed(e.to_string()))?;
        let end = tokio::select! {
            end = tokio::time::timeout(PROOF_LIMIT, self.until_removed(&run)) => Some(end),
            () = self.told_to_stop() => None,
        };
        let end = match end {
            Some(Ok(end)) => end,
            None => {
                let left = end_orphan(&self.backend, &run, &container).await;
                if !left.is_empty() {
                    tracing::warn!(%run, ?left, "the container of the proof could not be removed");
                }
                Err(stopped())
            }
            Some(Err(_)) => {
                let left = sweep_one(&self.backend, &run, &container).await;
                Err(failed(format!("no end after {} s (left: {left:?})", PROOF_LIMIT.as_secs())))
            }
        };
        let text = std::fs::read(&output);
        let _ = std::fs::remove_file(&output);
        let _ = executor.forget(&run).await;
        end?;
        let seen = serde_json::from_slice(&text.map_err(|e| failed(format!("the probe's output: {e}")))?)
            .map_err(|e| failed(format!("the probe's output: {e}")))?;
        Ok(Probed { seen, outside: Outside { namespaces: own_namespaces()?, nonce } })
    }

    fn job(&self, source: &Path, nonce: &str, actual: &Profile, expected: &Profile) -> Result<Job, Refusal> {
        let run_id = RunId::fresh();
        let args = vec![serde_json::to_string(expected).map_err(|e| failed(e.to_string()))?];
        let path = RelPath::parse(NONCE_FILE).map_err(|e| failed(e.to_string()))?;
        let file = FileEntry {
            path,
            executable: false,
            length: nonce.len() as u64,
            content: Digest::of(nonce.as_bytes()),
        };
        Ok(Job {
            format: job::FORMAT,
            container_id: ContainerId::fresh(),
            exec_id: ExecId::fresh(),
            boot_id: clock::boot_id()?,
            deadline_ns: clock::boottime_ns()? + PROOF_LIMIT.as_nanos() as u64,
            entry: Entry::Probe { args },
            profile: actual.clone(),
            bundle: self.backend.bundle.clone(),
            source: source.to_owned(),
            manifest: TreeManifest::new(vec![file], Vec::new()),
            output: self.state.join("outputs").join(run_id.as_str()),
            probe: self.backend.probe.clone(),
            run_id,
        })
    }

    /// Waits for the checked removal of a probe that ended by itself.
    async fn until_removed(&self, run: &RunId) -> Result<(), Refusal> {
        let mut records = self.backend.executor.watch(run);
        let mut ended = Err(failed("the probe's supervisor was lost"));
        while let Some(seen) = records.recv().await {
            match seen {
                Observed::Record(Record::StartFailed { stage, detail, .. }) => {
                    ended = Err(failed(format!("the container could not be started ({stage}): {detail}")));
                }
                Observed::Record(Record::Exited { ending, evidence }) => ended = passed(ending, &evidence),
                Observed::Record(Record::Removed { left }) if !left.is_empty() => {
                    return Err(failed(format!("the container could not be removed: {}", left.join(", "))));
                }
                Observed::Record(Record::Removed { .. }) | Observed::Gone => break,
                Observed::Record(_) => {}
            }
        }
        ended
    }

    async fn report(&self) -> Result<ProofSummary, Refusal> {
        let profile = Profile::fixed();
        let probed = self.probe(&profile, &profile).await?;
        let report = Report {
            format: 1,
            executor: self.backend.executor.name().to_owned(),
            engine: self.backend.executor.identity(),
            cgroup: probed.seen.cgroup.clone(),
            image: self.backend.bundle.pin.clone(),
            profile_digest: profile.digest(),
            findings: judge(&profile, &probed.seen, &probed.outside),
            made_at: jiff::Timestamp::now().to_string(),
            profile,
        };
        let state = self.state.clone();
        let (report, digest) = blocking(move || {
            let digest = report.write(&state).map_err(|e| {
                failed(format!("the report could not be written to {}: {e}", state.display()))
            })?;
            Ok((report, digest))
        })
        .await?;
        match report.failures().as_slice() {
            [] => Ok(ProofSummary { digest, engine: report.engine }),
            all => Err(failed(
                all.iter()
                    .map(|f| {
                        let name = serde_json::to_string(&f.control).unwrap_or_default();
                        format!(
                            "{}: expected {}, observed {}",
                            name.trim_matches('"'),
                            f.expected,
                            f.observed
                        )
                    })
                    .collect::<Vec<_>>()
                    .join("; "),
            )),
        }
    }
}

impl Prover for ContainerProver {
    fn prove(&self) -> Fut<'_, Result<ProofSummary, Refusal>> {
        Box::pin(self.report())
    }
}

fn passed(ending: Ending, evidence: &Evidence) -> Result<(), Refusal> {
    if ending == Ending::Exited(0) && evidence.stored_bytes == evidence.total_bytes {
        Ok(())
    } else {
        Err(failed(format!("the probe ended with {ending:?}: {evidence:?}")))
    }
}

/// Writes the workspace of the proof, readable for the container's user whatever the umask.
fn write_source(source: &Path, nonce: &str) -> std::io::Result<()> {
    let file = source.join(NONCE_FILE);
    std::fs::create_dir(source)?;
    std::fs::write(&file, nonce)?;
    std::fs::set_permissions(&file, Permissions::from_mode(0o644))?;
    std::fs::set_permissions(source, Permissions::from_mode(0o755))
}

fn stopped() -> Refusal {
    Refusal::new(Code::NotReady, "the service was told to stop during the startup proof", "start it again")
}

fn failed(what: impl Into<String>) -> Refusal {
    Refusal::new(
        Code::ProofFailed,
        format!("the startup proof failed: {}", what.into()),
        "`sal proof show` prints the last report; mend the host or the image, then start again",
    )
}

fn own_namespaces() -> Result<std::collections::BTreeMap<String, String>, Refusal> {
    ["pid", "ipc", "uts", "net", "cgroup", "mnt"]
        .iter()
        .map(|name| {
            let path = format!("/proc/self/ns/{name}");
            let link = std::fs::read_link(&path).map_err(|e| {
                Refusal::new(Code::Host, format!("{path}: {e}"), "the kernel needs this namespace")
            })?;
            Ok(((*name).to_owned(), link.to_string_lossy().into_owned()))
        })
        .collect()
}
