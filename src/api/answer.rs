//! The one error form as an HTTP answer.

use super::wire::{ErrorBody, ErrorDetail};
use crate::domain::refusal::{Code, Refusal};
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

/// A refusal on its way to the client.
#[derive(Debug)]
pub(crate) struct Failure {
    refusal: Refusal,
    status: StatusCode,
}

impl Failure {
    /// A refusal whose HTTP status says more than its code does.
    pub(crate) fn with_status(refusal: Refusal, status: StatusCode) -> Self {
        Self { refusal, status }
    }

    /// A malformed request.
    pub(crate) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Refusal::new(Code::Invalid, message, hint).into()
    }

    /// Something that the documentation names and this version lacks.
    pub(crate) fn not_built(what: &str) -> Self {
        Refusal::new(
            Code::NotBuilt,
            format!("{what} is not built in version {}", env!("CARGO_PKG_VERSION")),
            "the README lists what is",
        )
        .into()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let status = status_of(refusal.code);
        Self { refusal, status }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody::from(self.refusal))).into_response()
    }
}

impl From<Refusal> for ErrorBody {
    fn from(refusal: Refusal) -> Self {
        let Refusal { code, message, hint } = refusal;
        Self { error: ErrorDetail { code, message, hint } }
    }
}

impl From<ErrorBody> for Refusal {
    fn from(body: ErrorBody) -> Self {
        let ErrorDetail { code, message, hint } = body.error;
        Self { code, message, hint }
    }
}

/// The HTTP status of a code: 4xx when another request could succeed, 5xx when only the service
/// or its host can change the answer.
pub(crate) fn status_of(code: Code) -> StatusCode {
    match code {
        Code::Invalid => StatusCode::BAD_REQUEST,
        Code::Forbidden => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Conflict
        | Code::StaleRevision
        | Code::WorkspaceChanged
        | Code::PatchRefused
        | Code::AlreadyRunning => StatusCode::CONFLICT,
        Code::ImportRefused | Code::LimitExceeded | Code::UnsafePath | Code::Image => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        Code::Busy => StatusCode::TOO_MANY_REQUESTS,
        Code::NotBuilt => StatusCode::NOT_IMPLEMENTED,
        Code::NotReady | Code::ProofFailed | Code::NotRunning | Code::Host => StatusCode::SERVICE_UNAVAILABLE,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
