//! The route of a workspace's diff: the patch as it is, or a summary of it.

use super::Api;
use crate::api::answer::Failure;
use crate::api::extract::{InPath, InQuery};
use crate::api::wire::{self, LEFT_OUT, LOST};
use crate::domain::diff::Content;
use crate::domain::ids::SessionId;
use axum::Json;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

/// Which diff, and in which form.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    revision: Option<u32>,
    #[serde(default)]
    summary: bool,
}

/// What changed in the workspace since the import: a patch for `git apply`, or a summary of it
///
/// Binary changes, and changes whose published bytes an editor has overwritten, are named in comments. The
/// header `salaam-diff-left-out` counts them all, `salaam-diff-lost` the latter. Both forms are bounded by
/// the limits of a workspace. A revision that is named in both requests makes them fit together.
#[utoipa::path(get, operation_id = "diffWorkspace", path = "/v1/sessions/{session}/workspace/diff", tag = "sessions",
    params(
        ("session" = String, Path, description = "Session id"),
        ("revision" = Option<u32>, Query, description = "The revision to compare the import with; the current one if absent"),
        ("summary" = Option<bool>, Query, description = "Answer the files and figures as JSON instead of the patch"),
    ), responses(
    (status = 200, description = "The patch, or with summary=true its summary", content(
        (String = "text/x-diff"),
        (wire::WorkspaceDiff = "application/json"),
    )),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn diff(
    State(api): State<Api>,
    InPath(session): InPath<SessionId>,
    InQuery(asked): InQuery<Asked>,
) -> Result<Response, Failure> {
    let found = api.service.diff(&session, asked.revision).await?;
    Ok(if asked.summary {
        Json(wire::WorkspaceDiff::from(found)).into_response()
    } else {
        let named = found.diff.files.iter().filter(|file| !file.in_patch);
        let lost = named.clone().filter(|file| file.content == Content::Lost).count();
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static("text/x-diff; charset=utf-8")),
            (HeaderName::from_static(LEFT_OUT), HeaderValue::from(named.count())),
            (HeaderName::from_static(LOST), HeaderValue::from(lost)),
        ];
        (headers, found.diff.patch).into_response()
    })
}
