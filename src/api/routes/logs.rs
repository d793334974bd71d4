//! The route of a run's output: raw bytes by offset, once or followed.

use super::Api;
use crate::api::answer::Failure;
use crate::api::body::fed;
use crate::api::extract::{InPath, InQuery};
use crate::api::wire::{self, ENDED, STORED, TOTAL, TRUNCATED};
use crate::domain::ids::{RunId, SessionId};
use crate::domain::run::{OutputSize, Run};
use crate::service::{LogPart, MAX_LOG_PART};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use hyper::body::Bytes;
use serde::Deserialize;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How often a followed output is looked at while its run reports no change.
const LOOK: Duration = Duration::from_millis(50);

/// Which part of the output.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    #[serde(default)]
    offset: u64,
    limit: Option<usize>,
    #[serde(default)]
    follow: bool,
}

/// Stored output, raw, from a byte offset
///
/// The headers `salaam-output-stored`, `-total`, `-truncated` and `-ended` tell how it stood when the
/// answer began. With `follow=true` the answer lasts until no more output can come.
#[utoipa::path(get, operation_id = "commandLogs", path = "/v1/sessions/{session}/commands/{run}/logs", tag = "commands",
    params(
        ("session" = String, Path, description = "Session id"),
        ("run" = String, Path, description = "Run id"),
        ("offset" = Option<u64>, Query, description = "First byte"),
        ("limit" = Option<u64>, Query, description = "Most bytes; 65536 at the most; not with follow"),
        ("follow" = Option<bool>, Query, description = "Go on until the end"),
    ), responses(
    (status = 200, description = "The bytes", content_type = "application/octet-stream"),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn logs(
    State(api): State<Api>,
    InPath((session, run)): InPath<(SessionId, RunId)>,
    InQuery(part): InQuery<Part>,
) -> Result<Response, Failure> {
    if part.follow && part.limit.is_some() {
        return Err(Failure::invalid("limit and follow exclude each other", "drop one of them"));
    }
    let limit = part.limit.unwrap_or(MAX_LOG_PART).min(MAX_LOG_PART);
    let changes = if part.follow { Some(api.service.follow(&session, &run).await?) } else { None };
    let first = api.service.logs(&session, &run, part.offset, limit).await?;
    let headers = headers(&first.output, first.ended);
    let body = match changes {
        Some(changes) => {
            let (feeder, body) = fed();
            tokio::spawn(async move { feed(api, (session, run), first, changes, feeder).await });
            body
        }
        None => Body::from(first.bytes),
    };
    Ok((headers, body).into_response())
}

/// Sends output as it comes, until it ends, the reader leaves or the server stops.
async fn feed(
    api: Api,
    (session, run): (SessionId, RunId),
    mut part: LogPart,
    mut changes: watch::Receiver<Run>,
    feeder: mpsc::Sender<Bytes>,
) {
    let mut stopped = std::pin::pin!(api.stopped());
    let mut settled = false;
    loop {
        let (next, empty) = (part.offset + part.bytes.len() as u64, part.bytes.is_empty());
        if !empty && feeder.send(Bytes::from(part.bytes)).await.is_err() {
            return;
        }
        if empty && (part.ended || settled) {
            return;
        }
        if empty {
            tokio::select! {
                () = feeder.closed() => return,
                () = stopped.as_mut() => return,
                // An error means that the run is settled: one more look, then the end.
                change = changes.changed() => settled = change.is_err(),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        part = match api.service.logs(&session, &run, next, MAX_LOG_PART).await {
            Ok(part) => part,
            Err(refusal) => {
                tracing::warn!(%run, %refusal, "a followed output broke off");
                return;
            }
        };
    }
}

fn headers(output: &OutputSize, ended: bool) -> HeaderMap {
    let flag = |set| HeaderValue::from_static(if set { "true" } else { "false" });
    HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (HeaderName::from_static(STORED), HeaderValue::from(output.stored_bytes)),
        (HeaderName::from_static(TOTAL), HeaderValue::from(output.total_bytes)),
        (HeaderName::from_static(TRUNCATED), flag(output.truncated)),
        (HeaderName::from_static(ENDED), flag(ended)),
    ])
}
