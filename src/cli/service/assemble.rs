//! Wires a real service together: the one place that knows all of its parts.

use super::options::{ExecutorKind, Options, Provider};
use crate::domain::refusal::{Code, Refusal};
use crate::service::Service;
use std::path::PathBuf;

/// A started service and what must live as long as it does.
pub(super) struct Assembled {
    /// The service.
    pub(super) service: Service,
    /// Where its proof lies.
    pub(super) proof: PathBuf,
}

/// Starts a service as `options` say: state directory and its lock, ledger and recovery, image,
/// proof. It accepts no client yet.
///
/// # Errors
/// The refusal of the phase that failed; what it had made is undone.
pub(super) async fn assemble(options: &Options) -> Result<Assembled, Refusal> {
    if options.provider != Provider::None {
        return Err(not_built("a provider", "start with --provider none for operator use"));
    }
    if options.executor == ExecutorKind::Docker {
        return Err(not_built("the docker executor", "leave --coding-socket out for the oci executor"));
    }
    // WIRING: Service::start(state, ledger, workspaces, executor, prover, image) goes here.
    Err(not_built("the service", "see the README for what is"))
}

fn not_built(what: &str, hint: &str) -> Refusal {
    Refusal::new(
        Code::NotBuilt,
        format!("{what} is not built in version {}", env!("CARGO_PKG_VERSION")),
        hint,
    )
}
