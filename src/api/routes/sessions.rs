//! Routes of sessions and their workspaces.

use super::Api;
use crate::api::answer::Failure;
use crate::api::convert::all;
use crate::api::extract::{InBody, InPath};
use crate::api::wire;
use crate::domain::digest::Digest;
use crate::domain::ids::SessionId;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

/// Makes a session; a coding session imports its project first
#[utoipa::path(post, operation_id = "createSession", path = "/v1/sessions", tag = "sessions", request_body = wire::CreateSession, responses(
    (status = 201, description = "The session", body = wire::Session),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn create(
    State(api): State<Api>,
    InBody(asked): InBody<wire::CreateSession>,
) -> Result<(StatusCode, Json<wire::Session>), Failure> {
    let session = api.service.create_session(asked.try_into()?).await?;
    Ok((StatusCode::CREATED, Json(session.into())))
}

/// Lists all sessions
#[utoipa::path(get, operation_id = "listSessions", path = "/v1/sessions", tag = "sessions", responses(
    (status = 200, description = "The list", body = wire::SessionList),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn list(State(api): State<Api>) -> Result<Json<wire::SessionList>, Failure> {
    Ok(Json(wire::SessionList { sessions: all(api.service.sessions().await?) }))
}

/// One session
#[utoipa::path(get, operation_id = "inspectSession", path = "/v1/sessions/{session}", tag = "sessions",
    params(("session" = String, Path, description = "Session id")), responses(
    (status = 200, description = "The session", body = wire::Session),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn inspect(
    State(api): State<Api>,
    InPath(id): InPath<SessionId>,
) -> Result<Json<wire::Session>, Failure> {
    Ok(Json(api.service.session(&id).await?.into()))
}

/// Ends a session; its workspace is kept
#[utoipa::path(post, operation_id = "endSession", path = "/v1/sessions/{session}/end", tag = "sessions",
    params(("session" = String, Path, description = "Session id")), responses(
    (status = 200, description = "The ended session", body = wire::Session),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn end(
    State(api): State<Api>,
    InPath(id): InPath<SessionId>,
) -> Result<Json<wire::Session>, Failure> {
    api.service.end_session(&id).await?;
    Ok(Json(api.service.session(&id).await?.into()))
}

/// Deletes a session, its workspace and its runs
#[utoipa::path(delete, operation_id = "removeSession", path = "/v1/sessions/{session}", tag = "sessions",
    params(("session" = String, Path, description = "Session id")), responses(
    (status = 200, description = "What was removed", body = wire::Removed),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn remove(
    State(api): State<Api>,
    InPath(id): InPath<SessionId>,
) -> Result<Json<wire::Removed>, Failure> {
    api.service.remove_session(&id).await?;
    Ok(Json(wire::Removed { removed: id.into() }))
}

/// The workspace, and how its directory differs from its revision
#[utoipa::path(get, operation_id = "inspectWorkspace", path = "/v1/sessions/{session}/workspace", tag = "sessions",
    params(("session" = String, Path, description = "Session id")), responses(
    (status = 200, description = "The workspace", body = wire::WorkspaceView),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn workspace(
    State(api): State<Api>,
    InPath(id): InPath<SessionId>,
) -> Result<Json<wire::WorkspaceView>, Failure> {
    Ok(Json(api.service.inspect_workspace(&id).await?.into()))
}

/// Adopts reviewed edits of the current root as a new revision
///
/// Only if the root holds exactly what was reviewed; without edits the workspace is answered as it is.
#[utoipa::path(post, operation_id = "refreshWorkspace", path = "/v1/sessions/{session}/workspace/refresh", tag = "sessions",
    params(("session" = String, Path, description = "Session id")), request_body = wire::Refresh, responses(
    (status = 200, description = "The workspace", body = wire::Workspace),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn refresh(
    State(api): State<Api>,
    InPath(id): InPath<SessionId>,
    InBody(asked): InBody<wire::Refresh>,
) -> Result<Json<wire::Workspace>, Failure> {
    let digest = Digest::parse(&asked.digest)
        .map_err(|bad| Failure::invalid(bad.to_string(), "give the observed digest of the workspace"))?;
    Ok(Json(api.service.refresh(&id, asked.revision, &digest).await?.into()))
}
