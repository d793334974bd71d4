//! Runs a verb against the service: one thread, one connection.

use super::failure::{Done, Failure};
use crate::api::client::Client;
use crate::domain::refusal::{Code, Refusal};
use std::path::Path;

/// Connects to the service of `state` and runs `verb` with the connection.
pub(crate) fn with_client(state: &Path, verb: impl AsyncFnOnce(Client) -> Done) -> Done {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| no_runtime(&error))?;
    runtime.block_on(async { verb(Client::connect(state).await?).await })
}

/// The failure of a runtime that could not be built.
pub(crate) fn no_runtime(error: &std::io::Error) -> Failure {
    Failure::Refused(Refusal::new(
        Code::Host,
        format!("the event loop could not be set up: {error}"),
        "check the limits on open files and processes (ulimit -n, ulimit -u)",
    ))
}
