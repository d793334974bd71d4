//! Which path leads where, and what the handlers share.

use super::{commands, diff, logs, service as own, sessions, tools};
use crate::api::answer::Failure;
use crate::api::extract::MAX_BODY;
use crate::domain::refusal::{Code, Refusal};
use crate::service::Service;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::routing::{delete, get, post};
use std::path::PathBuf;
use tokio::sync::watch;

/// What the handlers share.
#[derive(Clone)]
pub struct Api {
    pub(crate) service: Service,
    pub(crate) proof: PathBuf,
    stop: watch::Sender<bool>,
}

impl Api {
    /// Serves `service`; `proof` is where `executor-proof.json` lies.
    pub fn new(service: Service, proof: PathBuf) -> Self {
        Self { service, proof, stop: watch::Sender::new(false) }
    }

    /// Ends waiting requests and the server. The service itself is shut down by the caller.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Resolves once [`Api::stop`] was called.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.stop.subscribe();
        async move {
            // The sender lives as long as any clone of the Api; without one there is nothing to serve.
            let _ = stop.wait_for(|stopping| *stopping).await;
        }
    }
}

/// Builds the routes.
pub fn router(api: Api) -> Router {
    Router::new()
        .route("/v1/status", get(own::status))
        .route("/v1/shutdown", post(own::shutdown))
        .route("/v1/proof", get(own::proof))
        .route("/v1/openapi.json", get(own::openapi))
        .route("/v1/tools", get(tools::list))
        .route("/v1/sessions", post(sessions::create).get(sessions::list))
        .route("/v1/sessions/{session}", get(sessions::inspect))
        .route("/v1/sessions/{session}", delete(sessions::remove))
        .route("/v1/sessions/{session}/end", post(sessions::end))
        .route("/v1/sessions/{session}/workspace", get(sessions::workspace))
        .route("/v1/sessions/{session}/workspace/diff", get(diff::diff))
        .route("/v1/sessions/{session}/workspace/refresh", post(sessions::refresh))
        .route("/v1/sessions/{session}/tools/{tool}", post(tools::call))
        .route("/v1/sessions/{session}/commands", post(commands::start).get(commands::list))
        .route("/v1/sessions/{session}/commands/{run}", get(commands::inspect))
        .route("/v1/sessions/{session}/commands/{run}/logs", get(logs::logs))
        .route("/v1/sessions/{session}/commands/{run}/cancel", post(commands::cancel))
        .route("/v1/sessions/{session}/commands/{run}/reconcile", post(commands::reconcile))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(api)
}

async fn no_route(uri: Uri) -> Failure {
    Refusal::new(
        Code::NotFound,
        format!("there is no route {}", uri.path()),
        "GET /v1/openapi.json lists the routes",
    )
    .into()
}

async fn no_method(method: Method, uri: Uri) -> Failure {
    Failure::with_status(
        Refusal::new(
            Code::Invalid,
            format!("the route {} does not take {method}", uri.path()),
            "GET /v1/openapi.json lists the routes and their methods",
        ),
        StatusCode::METHOD_NOT_ALLOWED,
    )
}
