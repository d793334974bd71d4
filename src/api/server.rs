//! Accepts connections on the control socket and serves them (SVC.4).
//!
//! ```text
//! accept ─▶ peer among Peers? ─no─▶ close, unread
//!              │ yes
//!              ▼
//!        place free of MAX_CONNECTIONS? ─no─▶ answer `busy`, close
//!              │ yes
//!              ▼
//!        HTTP/1.1, headers within HEADER_TIMEOUT ─▶ routes
//! ```

use super::answer::Failure;
use super::routes::{Api, router};
use super::socket::Bound;
use crate::domain::refusal::{Code, Refusal};
use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

/// Most connections served at once.
pub const MAX_CONNECTIONS: usize = 64;
/// Most connections beyond that which are told so; further ones are closed.
const MAX_REFUSALS: usize = 16;
/// Time to receive the headers of a request, idle time between requests included.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that requests get to end once the service stops.
const DRAIN: Duration = Duration::from_secs(5);
/// Most bytes of a request's headers.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// Whose connections are served; the wiring gives [`Peers::own`] and knows no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Those of this user alone.
    Only(u32),
    /// Everybody's: the check taken away, so that its test can show what it stops.
    UncheckedForATest,
}

impl Peers {
    /// This process's own user.
    pub fn own() -> Self {
        Self::Only(nix::unistd::geteuid().as_raw())
    }

    /// Judges a connection by the kernel's word on its peer, before a byte of it is read.
    fn admit(self, stream: &UnixStream) -> bool {
        let Self::Only(own) = self else { return true };
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == own => true,
            Ok(peer) => {
                tracing::warn!(uid = peer.uid(), "refused a connection of another user");
                false
            }
            Err(error) => {
                tracing::warn!(%error, "refused a connection whose user is unknown");
                false
            }
        }
    }
}

/// Serves `api` to `peers` on `bound` until [`Api::stop`] was called, then removes the socket.
///
/// Requests under way get five seconds to end.
///
/// # Errors
/// The system's error when the socket cannot be listened on.
pub async fn serve(bound: Bound, api: Api, peers: Peers) -> std::io::Result<()> {
    let listener = UnixListener::from_std(bound.listener()?)?;
    let mut stop = std::pin::pin!(api.stopped());
    let app = router(api.clone());
    let (places, refusals) = (Arc::new(Semaphore::new(MAX_CONNECTIONS)), Semaphore::new(MAX_REFUSALS));
    let refusals = Arc::new(refusals);
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            biased;
            () = stop.as_mut() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        if !peers.admit(&stream) {
            continue;
        }
        let (permit, app) = if let Ok(permit) = places.clone().try_acquire_owned() {
            (permit, app.clone())
        } else if let Ok(permit) = refusals.clone().try_acquire_owned() {
            (permit, full())
        } else {
            continue;
        };
        let stop = api.stopped();
        connections.spawn(async move {
            serve_one(stream, app, stop).await;
            drop(permit);
        });
    }
    drop(listener);
    bound.remove();
    let drained =
        tokio::time::timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(left = connections.len(), "connections were cut at the end");
    }
    Ok(())
}

async fn serve_one(stream: UnixStream, app: Router, stop: impl Future<Output = ()>) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let app = app.clone();
        async move { Ok::<Response, Infallible>(answer(app, request.map(Body::new)).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn answer(app: Router, request: hyper::Request<Body>) -> Response {
    match app.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// The routes of a connection beyond the bound: one answer to everything.
fn full() -> Router {
    Router::new().fallback(|| async {
        Failure::from(Refusal::new(
            Code::Busy,
            format!("the service already serves {MAX_CONNECTIONS} connections, its limit"),
            "close some (followed logs, waiting starts) and try again",
        ))
        .into_response()
    })
}
