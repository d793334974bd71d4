//! A typed client of the control socket: one process, one connection, kept alive between requests.

use super::socket;
use super::wire::{self, CALL_ID, ENDED, LEFT_OUT, LOST, STORED, TOTAL, TRUNCATED};
use crate::domain::ids::{CallId, RunId, SessionId};
use crate::domain::refusal::{Code, Refusal};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for an ordinary answer.
const ANSWER: Duration = Duration::from_secs(30);
/// Time for an answer that waits for a run, an import or a cleanup; a run's deadline is 30 s.
const LONG_ANSWER: Duration = Duration::from_secs(180);
/// Largest answer that is read whole.
const MAX_ANSWER: usize = 32 * 1024 * 1024;

/// A connection to the service of one state directory.
#[derive(Debug)]
pub struct Client {
    state: PathBuf,
    sender: SendRequest<Full<Bytes>>,
    service_pid: Option<i32>,
}

/// A part of a run's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// The bytes from the asked offset.
    pub bytes: Bytes,
    /// The whole output when the answer began.
    pub output: wire::Output,
    /// True when no more bytes will be stored.
    pub ended: bool,
}

/// A patch as it comes.
#[derive(Debug)]
pub struct Patch {
    /// Changes that it only names.
    pub left_out: u64,
    /// Those of them whose published bytes are lost.
    pub lost: u64,
    /// Its bytes.
    pub bytes: ByteStream,
}

/// Bytes as they come; the connection is free again once it has ended.
#[derive(Debug)]
pub struct ByteStream {
    body: Incoming,
    state: PathBuf,
}

impl ByteStream {
    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// `not_running` when the service goes away, `internal` after three minutes of silence.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            match within(LONG_ANSWER, &self.state, self.body.frame()).await? {
                None => return Ok(None),
                Some(Err(_)) => return Err(cut(&self.state)),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

impl Client {
    /// Connects to the service of the state directory `state`.
    ///
    /// # Errors
    /// See [`socket::connect`].
    pub async fn connect(state: &Path) -> Result<Self, Refusal> {
        let (sender, service_pid) = open(state).await?;
        Ok(Self { state: state.to_owned(), sender, service_pid })
    }

    /// Process id of the service, as the caller's kernel numbers it.
    pub fn service_pid(&self) -> Option<i32> {
        self.service_pid
    }

    /// `GET /v1/status`.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn status(&mut self) -> Result<wire::Status, Refusal> {
        self.call(Method::GET, "/v1/status", None::<&()>, ANSWER).await
    }

    /// `GET /v1/proof`: the report as it was written.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn proof(&mut self) -> Result<serde_json::Value, Refusal> {
        self.call(Method::GET, "/v1/proof", None::<&()>, ANSWER).await
    }

    /// `POST /v1/shutdown`.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn shutdown(&mut self, cancel: bool) -> Result<wire::Stopping, Refusal> {
        self.call(Method::POST, "/v1/shutdown", Some(&wire::Shutdown { cancel }), LONG_ANSWER).await
    }

    /// `POST /v1/sessions`.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn create_session(&mut self, asked: &wire::CreateSession) -> Result<wire::Session, Refusal> {
        self.call(Method::POST, "/v1/sessions", Some(asked), LONG_ANSWER).await
    }

    /// `GET /v1/sessions`.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn sessions(&mut self) -> Result<wire::SessionList, Refusal> {
        self.call(Method::GET, "/v1/sessions", None::<&()>, ANSWER).await
    }

    /// `GET /v1/sessions/{id}`.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn session(&mut self, id: &SessionId) -> Result<wire::Session, Refusal> {
        self.call(Method::GET, &format!("/v1/sessions/{id}"), None::<&()>, ANSWER).await
    }

    /// `POST /v1/sessions/{id}/end`.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn end_session(&mut self, id: &SessionId) -> Result<wire::Session, Refusal> {
        self.call(Method::POST, &format!("/v1/sessions/{id}/end"), None::<&()>, ANSWER).await
    }

    /// `DELETE /v1/sessions/{id}`.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn remove_session(&mut self, id: &SessionId) -> Result<wire::Removed, Refusal> {
        self.call(Method::DELETE, &format!("/v1/sessions/{id}"), None::<&()>, LONG_ANSWER).await
    }

    /// `GET /v1/sessions/{id}/workspace`.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn workspace(&mut self, id: &SessionId) -> Result<wire::WorkspaceView, Refusal> {
        self.call(Method::GET, &format!("/v1/sessions/{id}/workspace"), None::<&()>, ANSWER).await
    }

    /// `POST /v1/sessions/{id}/tools/{tool}`: calls a tool with `request` as it is.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn call_tool(
        &mut self,
        id: &SessionId,
        tool: &str,
        call: Option<&CallId>,
        request: Vec<u8>,
    ) -> Result<serde_json::Value, Refusal> {
        let path = format!("/v1/sessions/{id}/tools/{tool}");
        let header = call.map(|call| (CALL_ID, call.as_str()));
        let response = self.exchange(Method::POST, &path, header, request, LONG_ANSWER).await?;
        let bytes = whole(response.into_body(), &self.state, ANSWER).await?;
        serde_json::from_slice(&bytes).map_err(|error| not_understood(&error.to_string()))
    }

    /// `POST /v1/sessions/{id}/workspace/refresh`.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn refresh(
        &mut self,
        id: &SessionId,
        asked: &wire::Refresh,
    ) -> Result<wire::Workspace, Refusal> {
        let path = format!("/v1/sessions/{id}/workspace/refresh");
        self.call(Method::POST, &path, Some(asked), LONG_ANSWER).await
    }

    /// `POST /v1/sessions/{id}/commands`, with `wait` until the run is settled.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn start(
        &mut self,
        id: &SessionId,
        asked: &wire::StartCommand,
        wait: bool,
    ) -> Result<wire::Run, Refusal> {
        let path = format!("/v1/sessions/{id}/commands?wait={wait}");
        self.call(Method::POST, &path, Some(asked), if wait { LONG_ANSWER } else { ANSWER }).await
    }

    /// `GET /v1/sessions/{id}/commands`.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn runs(&mut self, id: &SessionId) -> Result<wire::RunList, Refusal> {
        self.call(Method::GET, &format!("/v1/sessions/{id}/commands"), None::<&()>, ANSWER).await
    }

    /// `GET /v1/sessions/{id}/commands/{run}`, with `wait` once the run is settled.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn run(&mut self, id: &SessionId, run: &RunId, wait: bool) -> Result<wire::Inspected, Refusal> {
        let path = format!("/v1/sessions/{id}/commands/{run}?wait={wait}");
        self.call(Method::GET, &path, None::<&()>, if wait { LONG_ANSWER } else { ANSWER }).await
    }

    /// `POST …/cancel`.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn cancel(&mut self, id: &SessionId, run: &RunId) -> Result<wire::Cancelled, Refusal> {
        let path = format!("/v1/sessions/{id}/commands/{run}/cancel");
        self.call(Method::POST, &path, None::<&()>, LONG_ANSWER).await
    }

    /// `POST …/reconcile`.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn reconcile(&mut self, id: &SessionId, run: &RunId) -> Result<wire::Run, Refusal> {
        let path = format!("/v1/sessions/{id}/commands/{run}/reconcile");
        self.call(Method::POST, &path, None::<&()>, LONG_ANSWER).await
    }

    /// `GET …/logs`: stored output from `offset`, at most `limit` bytes.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn logs(
        &mut self,
        id: &SessionId,
        run: &RunId,
        offset: u64,
        limit: usize,
    ) -> Result<LogPart, Refusal> {
        let path = format!("/v1/sessions/{id}/commands/{run}/logs?offset={offset}&limit={limit}");
        let response = self.send(Method::GET, &path, None::<&()>, ANSWER).await?;
        let (output, ended) = sizes(response.headers());
        let bytes = whole(response.into_body(), &self.state, ANSWER).await?;
        Ok(LogPart { bytes, output, ended })
    }

    /// `GET …/logs?follow=true`: output from `offset` to its end.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn follow(&mut self, id: &SessionId, run: &RunId, offset: u64) -> Result<ByteStream, Refusal> {
        let path = format!("/v1/sessions/{id}/commands/{run}/logs?offset={offset}&follow=true");
        let response = self.send(Method::GET, &path, None::<&()>, ANSWER).await?;
        Ok(ByteStream { body: response.into_body(), state: self.state.clone() })
    }

    /// `GET …/workspace/diff?summary=true`: the files that differ, and figures.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn diff_summary(
        &mut self,
        id: &SessionId,
        revision: Option<u32>,
    ) -> Result<wire::WorkspaceDiff, Refusal> {
        let path = format!("/v1/sessions/{id}/workspace/diff?summary=true{}", and_revision(revision));
        self.call(Method::GET, &path, None::<&()>, LONG_ANSWER).await
    }

    /// `GET …/workspace/diff`: the patch.
    ///
    /// # Errors
    /// The service's refusal, or that of the connection.
    pub async fn diff(&mut self, id: &SessionId, revision: Option<u32>) -> Result<Patch, Refusal> {
        let path = format!("/v1/sessions/{id}/workspace/diff?summary=false{}", and_revision(revision));
        let response = self.send(Method::GET, &path, None::<&()>, LONG_ANSWER).await?;
        let count = |name| text(response.headers(), name).parse().unwrap_or_default();
        let (left_out, lost) = (count(LEFT_OUT), count(LOST));
        Ok(Patch {
            left_out,
            lost,
            bytes: ByteStream { body: response.into_body(), state: self.state.clone() },
        })
    }

    async fn call<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        limit: Duration,
    ) -> Result<T, Refusal> {
        let response = self.send(method, path, body, limit).await?;
        let bytes = whole(response.into_body(), &self.state, ANSWER).await?;
        serde_json::from_slice(&bytes).map_err(|error| not_understood(&error.to_string()))
    }

    /// Sends a request and gives its answer if that is a success.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        limit: Duration,
    ) -> Result<Response<Incoming>, Refusal> {
        let body = match body {
            Some(value) => serde_json::to_vec(value).map_err(|e| unmade(&e))?,
            None => Vec::new(),
        };
        self.exchange(method, path, None, body, limit).await
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        header: Option<(&str, &str)>,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<Response<Incoming>, Refusal> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "salaam")
            .header(CONTENT_TYPE, "application/json");
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| unmade(&e))?;
        // The service closes idle connections; nothing of this request has been sent yet.
        if self.sender.ready().await.is_err() {
            (self.sender, self.service_pid) = open(&self.state).await?;
        }
        let response = within(limit, &self.state, self.sender.send_request(request)).await?;
        let response = response.map_err(|_| cut(&self.state))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let bytes = whole(response.into_body(), &self.state, ANSWER).await?;
        Err(refusal_of(status, &bytes))
    }
}

fn unmade(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(Code::Internal, format!("the request could not be made: {error}"), "report this")
}

fn and_revision(revision: Option<u32>) -> String {
    revision.map_or_else(String::new, |revision| format!("&revision={revision}"))
}

async fn open(state: &Path) -> Result<(SendRequest<Full<Bytes>>, Option<i32>), Refusal> {
    let stream = socket::connect(state).await?;
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|_| cut(state))?;
    // Ends with the sender or the socket; its error reaches the request that meets it.
    tokio::spawn(connection);
    Ok((sender, pid))
}

/// Gives the refusal that a failed answer carries.
fn refusal_of(status: StatusCode, bytes: &[u8]) -> Refusal {
    match serde_json::from_slice::<wire::ErrorBody>(bytes) {
        Ok(body) => body.into(),
        Err(error) => not_understood(&format!("{status}, {error}")),
    }
}

fn sizes(headers: &HeaderMap) -> (wire::Output, bool) {
    let output = wire::Output {
        stored_bytes: text(headers, STORED).parse().unwrap_or_default(),
        total_bytes: text(headers, TOTAL).parse().unwrap_or_default(),
        truncated: text(headers, TRUNCATED) == "true",
    };
    (output, text(headers, ENDED) == "true")
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

async fn whole(body: Incoming, state: &Path, limit: Duration) -> Result<Bytes, Refusal> {
    match within(limit, state, Limited::new(body, MAX_ANSWER).collect()).await? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Refusal::new(
            Code::LimitExceeded,
            format!("the answer is larger than {MAX_ANSWER} bytes, the limit"),
            "ask for less at a time",
        )),
        Err(_) => Err(cut(state)),
    }
}

async fn within<T>(limit: Duration, state: &Path, work: impl Future<Output = T>) -> Result<T, Refusal> {
    tokio::time::timeout(limit, work).await.map_err(|_| {
        Refusal::new(
            Code::Internal,
            format!("the service on {} did not answer within {} s", state.display(), limit.as_secs()),
            "its process may be stopped or stuck; look at service.log in the state directory",
        )
    })
}

fn cut(state: &Path) -> Refusal {
    Refusal::new(
        Code::NotRunning,
        format!("the service on {} closed the connection", state.display()),
        format!("see whether it still runs: sal service status --state {}", state.display()),
    )
}

fn not_understood(why: &str) -> Refusal {
    Refusal::new(
        Code::Internal,
        format!("the service's answer was not understood: {why}"),
        "the service may be of another version: compare sal --version and sal service status",
    )
}
