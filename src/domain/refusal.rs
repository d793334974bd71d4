//! The one error form that a client sees: what went wrong, said once, with the next step.

use serde::{Deserialize, Serialize};

/// Machine-readable kinds of refusal. Scripts may rely on these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request is not well formed.
    Invalid,
    /// No such session, run, image or workspace.
    NotFound,
    /// Named in the documentation, not built yet.
    NotBuilt,
    /// Not allowed for this session, user or executor.
    Forbidden,
    /// The admission places are taken (CMD.3).
    Busy,
    /// The key or id is in use with other arguments (CMD.2).
    Conflict,
    /// The revision is not the current one (CMD.2).
    StaleRevision,
    /// The workspace's directory is not what the revision says (CMD.3).
    WorkspaceChanged,
    /// The project cannot be imported as it is (WS.1–3).
    ImportRefused,
    /// A patch does not fit the current files, or may not make what it asks for (FT.2).
    PatchRefused,
    /// A named limit is exceeded.
    LimitExceeded,
    /// The service does not grant new runs now; the message says why (CMD.9).
    NotReady,
    /// The startup proof failed; the message names the control (PRF.3).
    ProofFailed,
    /// The image or the layout is wrong or missing (IMG).
    Image,
    /// A path has the wrong owner, mode, type or place (SVC.2).
    UnsafePath,
    /// Another service holds the state directory (SVC.3).
    AlreadyRunning,
    /// No service answers on the state directory.
    NotRunning,
    /// The host lacks something that the profile needs (EXE).
    Host,
    /// A fault of the service or its disk.
    Internal,
}

/// A refusal: code, one sentence naming the thing and the limit, and the next step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind.
    pub code: Code,
    /// What is wrong, naming the thing and the limit.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

impl Refusal {
    /// Makes a refusal.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: hint.into() }
    }
}
