//! How the service's state is shown to a person.

use crate::api::wire::Status;
use crate::cli::output::Text;
use std::path::Path;

/// The state in full.
pub(super) fn full(status: &Status, state: &Path) -> Text {
    let ready = match (&status.reason, status.ready) {
        (_, true) => "yes".to_owned(),
        (Some(reason), false) => format!("no: {reason}"),
        (None, false) => "no".to_owned(),
    };
    let text = Text::default()
        .field("ready", ready)
        .field("executor", &status.executor)
        .field("image", status.image.as_deref().unwrap_or("-"))
        .field("proof", status.proof_digest.as_deref().unwrap_or("-"))
        .field("runs", status.runs)
        .field("pid", status.pid)
        .field("version", &status.version);
    text.field("started", &status.started).field("state", state.display())
}
