//! Wires a real service together: the one place that knows all of its parts.

use super::options::{ExecutorKind, Options, Provider};
use crate::domain::refusal::{Code, Refusal};
use crate::service::Service;
use crate::service::startup::Opened;
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
    // WIRING: the oci executor (image bundle, exec::native, proof) and the workspace store of
    // --coding-root enter here, as `choose`'s arguments and `prove` instead of `without_commands`.
    if options.executor == ExecutorKind::Oci || options.coding_root.is_some() {
        return Err(not_built("the oci executor", "leave --coding-root out for ordinary sessions"));
    }
    let opened = Opened::open(&options.state).await?;
    let recovered = opened.choose(None, None)?.recover().await?;
    let service = recovered.without_commands()?.ready();
    Ok(Assembled { service, proof: options.state.join("executor-proof.json") })
}

fn not_built(what: &str, hint: &str) -> Refusal {
    Refusal::new(
        Code::NotBuilt,
        format!("{what} is not built in version {}", env!("CARGO_PKG_VERSION")),
        hint,
    )
}
