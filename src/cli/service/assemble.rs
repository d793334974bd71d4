//! Wires a real service together: the one place that knows all of its parts.

use super::options::{ExecutorKind, Options, Provider};
use super::workspaces::Workspaces;
use crate::domain::job::Bundle;
use crate::domain::refusal::{Code, Refusal};
use crate::exec::ExecError;
use crate::exec::native::NativeExecutor;
use crate::image::{ImageError, Reference, Store, shipped};
use crate::proof::report::REPORT_FILE;
use crate::service::ports::WorkspacePort;
use crate::service::prove::ContainerProver;
use crate::service::startup::Opened;
use crate::service::{Backend, Service};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// A started service and what must live as long as it does.
pub(super) struct Assembled {
    /// The service.
    pub(super) service: Service,
    /// Where its proof lies.
    pub(super) proof: PathBuf,
}

/// Starts a service as `options` say: state directory and its lock, workspaces, image, ledger and
/// recovery, proof. It accepts no client yet. `locked` is called as soon as the state directory is this
/// process's own; before that nothing in it is touched. Once `stop` holds true the proof is given up.
///
/// # Errors
/// The refusal of the phase that failed; what it had made is undone.
pub(super) async fn assemble(
    options: &Options,
    locked: impl FnOnce() -> Result<(), Refusal>,
    stop: watch::Receiver<bool>,
) -> Result<Assembled, Refusal> {
    if options.provider != Provider::None {
        return Err(not_built("a provider", "start with --provider none for operator use"));
    }
    if options.executor == ExecutorKind::Docker {
        return Err(not_built("the docker executor", "leave --coding-socket out for the oci executor"));
    }
    let opened = Opened::open(&options.state).await?;
    locked()?;
    let workspaces = match &options.coding_root {
        None => None,
        Some(root) => {
            let root = root.clone();
            Some(Arc::new(off_thread(move || Workspaces::open(&root)).await?) as Arc<dyn WorkspacePort>)
        }
    };
    let state = opened.state().root().to_owned();
    let backend = match options.executor {
        ExecutorKind::Oci => Some(native(options, &state, opened.state().runs()).await?),
        ExecutorKind::Docker | ExecutorKind::None => None,
    };
    let recovered = opened.choose(backend.clone(), workspaces)?.recover().await?;
    let proved = match backend {
        Some(backend) => {
            let prover = ContainerProver::new(backend, state.clone()).stopped_by(stop);
            recovered.prove(&prover).await?
        }
        None => recovered.without_commands()?,
    };
    Ok(Assembled { service: proved.ready(), proof: state.join(REPORT_FILE) })
}

/// The native executor with the image that the operator pinned, checked.
async fn native(options: &Options, state: &Path, runs: PathBuf) -> Result<Backend, Refusal> {
    let (dir, asked) = (options.image_store.clone(), options.image.clone());
    let (state, left) = (state.to_owned(), runs.clone());
    let bundle = off_thread(move || bundle(&dir, asked.as_deref(), &state, &left)).await?;
    let probe = std::env::current_exe().map_err(|e| {
        Refusal::new(Code::Host, format!("our own executable cannot be found: {e}"), "mount /proc")
    })?;
    let executor = NativeExecutor::new(PathBuf::from("/proc/self/exe"), runs);
    executor.settle().await.map_err(|e| match e {
        ExecError::Host { what, hint } => Refusal::new(Code::Host, what, hint),
        other => Refusal::new(Code::Host, other.to_string(), "see the service's log"),
    })?;
    Ok(Backend { executor: Arc::new(executor), bundle, probe })
}

/// The image, marked as used by `state`, whose unsettled runs lie in `runs`.
fn bundle(store: &Path, asked: Option<&str>, state: &Path, runs: &Path) -> Result<Bundle, Refusal> {
    let store = Store::open(store)?;
    let reference = match asked {
        Some(text) => Reference::parse(text).map_err(ImageError::from)?,
        None => match store.default()? {
            Some(set) => set,
            None => shipped_in(&store)?,
        },
    };
    // Marked before it is looked at, so that nobody removes it in between. Without unsettled runs nothing
    // here needs an image of before.
    let alone = std::fs::read_dir(runs).is_ok_and(|mut runs| runs.next().is_none());
    store.mark(state, &reference, alone)?;
    store.check(&reference)?;
    Ok(store.bundle(&reference)?)
}

/// The shipped pin, which is the default until the operator sets another (IMG.1).
fn shipped_in(store: &Store) -> Result<Reference, Refusal> {
    let reference = shipped()?;
    match store.inspect(&reference) {
        Ok(_) => Ok(reference),
        Err(ImageError::NotFound { .. }) => Err(Refusal::new(
            Code::Image,
            format!(
                "the default image is the shipped {reference}, and the store {} does not hold it",
                store.dir().display()
            ),
            "import it as the README says, set another with `sal image default REF`, or give --image REF",
        )),
        Err(other) => Err(other.into()),
    }
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| Refusal::new(Code::Internal, format!("start-up was broken off: {e}"), "see the log"))?
}

fn not_built(what: &str, hint: &str) -> Refusal {
    Refusal::new(
        Code::NotBuilt,
        format!("{what} is not built in version {}", env!("CARGO_PKG_VERSION")),
        hint,
    )
}
