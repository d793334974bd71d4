//! Removes whatever still bears a container's id after its supervisor is gone.

use super::cgroup::{Groups, Host};
use std::path::Path;
use std::process::ExitCode;

/// Kills and removes by name, then prints the JSON list of what is left.
pub fn main(run_dir: &Path, container: &str) -> ExitCode {
    let left = match Host::detect() {
        Ok(host) => {
            let groups = Groups::of(host, container);
            groups.kill_all();
            groups.remove()
        }
        Err(e) => vec![e.to_string()],
    };
    // Bundle state only; records stay until the service forgets the run.
    let _ = std::fs::remove_dir_all(run_dir.join("oci"));
    println!("{}", serde_json::to_string(&left).unwrap_or_else(|_| "[\"unknown\"]".into()));
    ExitCode::SUCCESS
}
