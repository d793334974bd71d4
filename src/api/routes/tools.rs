//! Routes of the tools that a coding session gives to a model.

use super::Api;
use crate::api::answer::Failure;
use crate::api::extract::{InBytes, InPath};
use crate::api::wire::{self, CALL_ID};
use crate::domain::files::{self, Answer, Request, request::MAX_REQUEST, schema};
use crate::domain::ids::{CallId, SessionId};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;

/// The tools, each with the JSON Schema of its input
#[utoipa::path(get, operation_id = "listTools", path = "/v1/tools", tag = "tools", responses(
    (status = 200, description = "The tools", body = schema::ToolList),
))]
pub(crate) async fn list() -> Json<schema::ToolList> {
    Json(schema::tools())
}

/// Calls a tool
///
/// The same call id with the same patch answers what the patch made the first time; with another patch it
/// is refused. A body may have 8 MiB.
#[utoipa::path(post, operation_id = "callTool", path = "/v1/sessions/{session}/tools/{tool}", tag = "tools",
    params(
        ("session" = String, Path, description = "Session id"),
        ("tool" = String, Path, description = "`salaam_files`"),
        ("salaam-call-id" = Option<String>, Header, description = "The caller's id of this call"),
    ), request_body = Request, responses(
    (status = 200, description = "The answer", body = Answer),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn call(
    State(api): State<Api>,
    InPath((session, tool)): InPath<(SessionId, String)>,
    headers: HeaderMap,
    InBytes(body): InBytes<MAX_REQUEST>,
) -> Result<Json<Answer>, Failure> {
    match tool.as_str() {
        files::NAME => {}
        "salaam_command" => return Err(Failure::not_built(&tool)),
        other => {
            let message = format!("there is no tool '{}'", files::shown(other));
            return Err(Failure::invalid(message, "GET /v1/tools lists the tools"));
        }
    }
    let call = call_id(&headers)?;
    Ok(Json(api.service.files(&session, call, Request::parse(&body)?).await?))
}

fn call_id(headers: &HeaderMap) -> Result<Option<CallId>, Failure> {
    let mut given = headers.get_all(CALL_ID).iter();
    let (Some(one), None) = (given.next(), given.next()) else {
        return match headers.contains_key(CALL_ID) {
            false => Ok(None),
            true => Err(Failure::invalid(format!("the header {CALL_ID} is given twice"), "give it once")),
        };
    };
    let text = String::from_utf8_lossy(one.as_bytes());
    match CallId::parse(&text) {
        Ok(id) => Ok(Some(id)),
        Err(bad) => Err(Failure::invalid(bad.to_string(), "choose another call id")),
    }
}
