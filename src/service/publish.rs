//! Publishing a planned tree as the next revision. Not built yet.

use super::core::Core;
use crate::domain::change::TreeChange;
use crate::domain::digest::Digest;
use crate::domain::ids::{CallId, SessionId};
use crate::domain::refusal::{Code, Refusal};
use crate::domain::session::Workspace;
use std::sync::Arc;

/// The tool call that a revision is made for.
#[allow(dead_code)]
pub(super) struct Call {
    /// The caller's id.
    pub id: CallId,
    /// Digest of the canonical request.
    pub request: Digest,
}

/// A published revision.
pub(super) struct Published {
    /// The workspace at it.
    pub workspace: Workspace,
}

/// Publishes `change` as the next revision of the session's workspace.
pub(super) async fn publish(
    _core: &Arc<Core>,
    _session: &SessionId,
    _change: TreeChange,
    _call: Option<Call>,
) -> Result<Published, Refusal> {
    Err(not_built())
}

/// What the call has published before; none when its id is new.
pub(super) async fn receipt(
    _core: &Arc<Core>,
    _session: &SessionId,
    _call: &Call,
) -> Result<Option<Published>, Refusal> {
    Err(not_built())
}

fn not_built() -> Refusal {
    Refusal::new(Code::NotBuilt, "patches are not built in this version", "the README lists what is")
}
