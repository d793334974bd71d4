//! Routes of durable commands.

use super::Api;
use crate::api::answer::Failure;
use crate::api::convert::all;
use crate::api::extract::{InBody, InPath, InQuery};
use crate::api::wire;
use crate::domain::ids::{RunId, SessionId};
use crate::domain::refusal::{Code, Refusal};
use crate::domain::run::Run;
use crate::service::settled;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;

/// Whether to wait for the end.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wait {
    #[serde(default)]
    wait: bool,
}

/// Starts a command, or answers the original run of its step key
///
/// Answers once the intent is committed; with `wait=true`, once the run is at its end or uncertain.
#[utoipa::path(post, operation_id = "startCommand", path = "/v1/sessions/{session}/commands", tag = "commands",
    request_body = wire::StartCommand,
    params(
        ("session" = String, Path, description = "Session id"),
        ("wait" = Option<bool>, Query, description = "Answer when the run is settled"),
    ), responses(
    (status = 200, description = "The run", body = wire::Run),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn start(
    State(api): State<Api>,
    InPath(session): InPath<SessionId>,
    InQuery(wait): InQuery<Wait>,
    InBody(asked): InBody<wire::StartCommand>,
) -> Result<Json<wire::Run>, Failure> {
    let run = api.service.start_command(&session, asked.try_into()?).await?;
    let run =
        if wait.wait && !settled(&run) { end_of(&api, &session, &run.intent.run_id).await? } else { run };
    Ok(Json(run.into()))
}

/// Lists the runs of a session
#[utoipa::path(get, operation_id = "listCommands", path = "/v1/sessions/{session}/commands", tag = "commands",
    params(("session" = String, Path, description = "Session id")), responses(
    (status = 200, description = "The list", body = wire::RunList),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn list(
    State(api): State<Api>,
    InPath(session): InPath<SessionId>,
) -> Result<Json<wire::RunList>, Failure> {
    Ok(Json(wire::RunList { runs: all(api.service.runs(&session).await?) }))
}

/// One run and its history; with `wait=true`, once it is at its end or uncertain
#[utoipa::path(get, operation_id = "inspectCommand", path = "/v1/sessions/{session}/commands/{run}", tag = "commands",
    params(
        ("session" = String, Path, description = "Session id"),
        ("run" = String, Path, description = "Run id"),
        ("wait" = Option<bool>, Query, description = "Answer when the run is settled"),
    ), responses(
    (status = 200, description = "The run and its history", body = wire::Inspected),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn inspect(
    State(api): State<Api>,
    InPath((session, run)): InPath<(SessionId, RunId)>,
    InQuery(wait): InQuery<Wait>,
) -> Result<Json<wire::Inspected>, Failure> {
    if wait.wait {
        end_of(&api, &session, &run).await?;
    }
    // The history first: it may be behind the run that is shown with it, never ahead.
    let history = all(api.service.history(&session, &run).await?);
    let run = api.service.run(&session, &run).await?;
    Ok(Json(wire::Inspected { run: run.into(), history }))
}

/// Cancels a run; answers once it is settled
#[utoipa::path(post, operation_id = "cancelCommand", path = "/v1/sessions/{session}/commands/{run}/cancel", tag = "commands",
    params(
        ("session" = String, Path, description = "Session id"),
        ("run" = String, Path, description = "Run id"),
    ), responses(
    (status = 200, description = "The run after the cancel", body = wire::Cancelled),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn cancel(
    State(api): State<Api>,
    InPath((session, run)): InPath<(SessionId, RunId)>,
) -> Result<Json<wire::Cancelled>, Failure> {
    Ok(Json(api.service.cancel(&session, &run).await?.into()))
}

/// Settles a run whose backend or cleanup is uncertain, from evidence only
#[utoipa::path(post, operation_id = "reconcileCommand", path = "/v1/sessions/{session}/commands/{run}/reconcile", tag = "commands",
    params(
        ("session" = String, Path, description = "Session id"),
        ("run" = String, Path, description = "Run id"),
    ), responses(
    (status = 200, description = "The settled run", body = wire::Run),
    (status = "default", description = "Refused", body = wire::ErrorBody),
))]
pub(crate) async fn reconcile(
    State(api): State<Api>,
    InPath((session, run)): InPath<(SessionId, RunId)>,
) -> Result<Json<wire::Run>, Failure> {
    Ok(Json(api.service.reconcile(&session, &run).await?.into()))
}

/// Waits until a run is settled, or the server stops.
async fn end_of(api: &Api, session: &SessionId, run: &RunId) -> Result<Run, Failure> {
    let mut changes = api.service.follow(session, run).await?;
    let settling = async { changes.wait_for(settled).await.map(|run| run.clone()).ok() };
    let seen = tokio::select! {
        seen = settling => seen,
        () = api.stopped() => return Err(left(run)),
    };
    match seen {
        Some(run) => Ok(run),
        // The driver is gone: it has settled the run, or the service stops.
        None => {
            let last = api.service.run(session, run).await?;
            if settled(&last) { Ok(last) } else { Err(left(run)) }
        }
    }
}

/// The refusal for who waits for a run that goes on without the service.
fn left(run: &RunId) -> Failure {
    Refusal::new(
        Code::NotReady,
        format!("nobody observes {run} any more: the service stops, or could not record its end"),
        "start the service again and inspect the run",
    )
    .into()
}
