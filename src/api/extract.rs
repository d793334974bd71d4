//! Reads the parts of a request, so that each failure has the one error form.

use super::answer::Failure;
use crate::domain::refusal::{Code, Refusal};
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Bytes;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Most bytes of a request body.
pub(crate) const MAX_BODY: usize = 1024 * 1024;
/// Time to receive a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Parts of the path.
pub(crate) struct InPath<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for InPath<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(bad) => Err(Failure::invalid(bad.body_text(), "take ids from the answers that name them")),
        }
    }
}

/// The query string.
pub(crate) struct InQuery<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for InQuery<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(bad) => Err(Failure::invalid(bad.body_text(), "see GET /v1/openapi.json")),
        }
    }
}

/// A JSON body of at most [`MAX_BODY`] bytes.
pub(crate) struct InBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for InBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Failure> {
        let bytes = read(request.into_body(), MAX_BODY).await?;
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Self(value)),
            Err(bad) => Err(Failure::invalid(
                format!("the request body is not what this route takes: {bad}"),
                "see GET /v1/openapi.json",
            )),
        }
    }
}

/// A body of at most `MOST` bytes, as it came.
pub(crate) struct InBytes<const MOST: usize>(pub(crate) Bytes);

impl<S: Send + Sync, const MOST: usize> FromRequest<S> for InBytes<MOST> {
    type Rejection = Failure;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Failure> {
        read(request.into_body(), MOST).await.map(Self)
    }
}

async fn read(body: Body, most: usize) -> Result<Bytes, Failure> {
    let reading = Limited::new(body, most).collect();
    let Ok(done) = tokio::time::timeout(BODY_TIMEOUT, reading).await else {
        let message = format!("the request body did not arrive within {} s", BODY_TIMEOUT.as_secs());
        return Err(Failure::with_status(
            Refusal::new(Code::LimitExceeded, message, "send it at once"),
            StatusCode::REQUEST_TIMEOUT,
        ));
    };
    match done {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Failure::with_status(
            Refusal::new(
                Code::LimitExceeded,
                format!("the request body is larger than {most} bytes, the limit"),
                "send less at a time",
            ),
            StatusCode::PAYLOAD_TOO_LARGE,
        )),
        Err(error) => Err(Failure::invalid(format!("the request body broke off: {error}"), "send it again")),
    }
}
