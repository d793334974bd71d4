//! How a session is shown to a person.

use crate::api::wire::Session;
use crate::cli::output::{Text, name};

/// A session in full; what was left out comes first (WS.1).
pub(super) fn full(session: &Session) -> Text {
    let mut text = Text::default()
        .lines(&session.excluded, |left_out| format!("excluded   {}  ({})", left_out.path, left_out.reason))
        .field("session", &session.session_id)
        .field("kind", name(&session.kind))
        .field("state", state(session))
        .field("project", &session.cwd);
    if let Some(workspace) = &session.workspace {
        text = text
            .field("workspace", &workspace.id)
            .field("revision", workspace.revision)
            .field("digest", &workspace.digest)
            .field("root", &workspace.root);
    }
    text
}

/// A session on one line.
pub(super) fn brief(session: &Session) -> String {
    let revision = session.workspace.as_ref().map_or("-".to_owned(), |w| format!("revision {}", w.revision));
    let (kind, state) = (name(&session.kind), state(session));
    format!("{}  {kind:<8}  {state:<6}  {revision:<11}  {}", session.session_id, session.cwd)
}

fn state(session: &Session) -> &'static str {
    if session.ended { "ended" } else { "active" }
}
