//! Routes of the service itself: status, proof, shutdown and the description of the interface.

use super::Api;
use crate::api::answer::Failure;
use crate::api::extract::InBody;
use crate::api::{openapi, wire};
use crate::domain::refusal::{Code, Refusal};
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use tokio::io::AsyncReadExt as _;

/// Largest proof that is served.
const MAX_PROOF: u64 = 4 * 1024 * 1024;

/// What the service says about itself
#[utoipa::path(get, operation_id = "status", path = "/v1/status", tag = "service", responses(
    (status = 200, description = "The state", body = wire::Status),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn status(State(api): State<Api>) -> Json<wire::Status> {
    Json(api.service.status().into())
}

/// Stops the service
///
/// Running commands go on under their supervisors, unless `cancel` is set.
#[utoipa::path(post, operation_id = "shutdown", path = "/v1/shutdown", tag = "service", request_body = wire::Shutdown, responses(
    (status = 200, description = "It stops", body = wire::Stopping),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn shutdown(
    State(api): State<Api>,
    InBody(asked): InBody<wire::Shutdown>,
) -> Result<Json<wire::Stopping>, Failure> {
    // A task of its own: who asked may leave, and a stop that has begun must come to its end.
    let stopping = tokio::spawn(async move {
        let done = api.service.shutdown(asked.cancel).await;
        // The ledger is closed either way, so there is nothing left to serve.
        api.stop();
        done
    });
    stopping.await.unwrap_or_else(|e| {
        Err(Refusal::new(Code::Internal, format!("the stop was broken off: {e}"), "see the service's log"))
    })?;
    Ok(Json(wire::Stopping { stopping: true }))
}

/// The startup proof, `executor-proof.json`
#[utoipa::path(get, operation_id = "proof", path = "/v1/proof", tag = "service", responses(
    (status = 200, description = "The report as it was written", body = Object),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn proof(State(api): State<Api>) -> Result<Response, Failure> {
    let fault = |error: std::io::Error| {
        let path = api.proof.display();
        if error.kind() == std::io::ErrorKind::NotFound {
            Refusal::new(Code::NotFound, format!("there is no proof at {path}"), "start with an executor")
        } else {
            Refusal::new(Code::Internal, format!("{path}: {error}"), "check the state directory")
        }
    };
    let file = tokio::fs::File::open(&api.proof).await.map_err(fault)?;
    let mut report = Vec::new();
    file.take(MAX_PROOF).read_to_end(&mut report).await.map_err(fault)?;
    Ok(([(CONTENT_TYPE, "application/json")], report).into_response())
}

/// This description
#[utoipa::path(get, operation_id = "openapi", path = "/v1/openapi.json", tag = "service", responses(
    (status = 200, description = "An OpenAPI document", body = Object),
))]
pub(crate) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], openapi::document()).into_response()
}
