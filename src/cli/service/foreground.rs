//! Runs the service in this process.
//!
//! ```text
//! signals caught ─▶ assemble (lock, log, recovery, proof) ─▶ bind ─▶ report ─▶ serve ─▶ shut down
//! ```

use super::assemble::assemble;
use super::options::Options;
use super::report::Report;
use super::{log_file, text};
use crate::api::routes::Api;
use crate::api::wire::{ErrorBody, Status};
use crate::api::{server, socket};
use crate::cli::connect::no_runtime;
use crate::cli::failure::{Done, Failure, OWN_FAILURE};
use crate::cli::output::Output;
use crate::domain::refusal::{Code, Refusal};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Threads of the service's runtime.
const WORKERS: usize = 2;
/// Time for a start that is told to stop to undo what it began.
const GIVE_UP: Duration = Duration::from_secs(30);
/// Time for blocking work to end after the service has shut down.
const LINGER: Duration = Duration::from_secs(5);

/// Runs the service until it is stopped; logs to standard error.
pub(super) fn run(options: &Options, out: Output) -> Done {
    tracing_subscriber::fmt().with_env_filter(filter()).with_writer(std::io::stderr).with_ansi(false).init();
    let ready = |status: &Status| out.either(status, |status| text::full(status, &options.state));
    run_with(options, || Ok(()), ready)
}

/// Runs the service for a parent that waits for its report; logs JSON to standard error, which becomes
/// the log once the state directory is this process's own.
pub(super) fn run_detached(options: &Options) -> Done {
    // Fails only for a group leader, which this child is not unless it was started by hand.
    let _ = nix::unistd::setsid();
    tracing_subscriber::fmt().json().with_env_filter(filter()).with_writer(std::io::stderr).init();
    let ready = |status: &Status| Report::Started(Box::new(status.clone())).send();
    let done = run_with(options, || log_file::take_standard_error(&options.state), ready);
    let Err(failure) = done else { return done };
    let (refusal, _) = failure.explain();
    tracing::error!(code = ?refusal.code, hint = refusal.hint, "{}", refusal.message);
    // After a start this goes to /dev/null; the log has it in any case.
    let _ = Report::Refused(ErrorBody::from(refusal)).send();
    Ok(ExitCode::from(OWN_FAILURE))
}

fn run_with(
    options: &Options,
    locked: impl FnOnce() -> Result<(), Refusal>,
    ready: impl FnOnce(&Status) -> std::io::Result<()>,
) -> Done {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .map_err(|error| no_runtime(&error))?;
    let done = runtime.block_on(serve(options, locked, ready));
    runtime.shutdown_timeout(LINGER);
    done
}

async fn serve(
    options: &Options,
    locked: impl FnOnce() -> Result<(), Refusal>,
    ready: impl FnOnce(&Status) -> std::io::Result<()>,
) -> Done {
    let mut stop = Stop::catch()?;
    let (tell, told) = tokio::sync::watch::channel(false);
    let mut assembling = std::pin::pin!(assemble(options, locked, told));
    let assembled = tokio::select! {
        assembled = &mut assembling => assembled?,
        () = stop.asked() => {
            tell.send_replace(true);
            // A proof under way ends its container first; what it does not manage is left to the next start.
            if let Ok(Ok(assembled)) = tokio::time::timeout(GIVE_UP, assembling).await {
                assembled.service.shutdown(false).await?;
            }
            return Err(Failure::Refused(Refusal::new(
                Code::NotReady,
                "the service was told to stop before it was ready",
                "start it again",
            )));
        }
    };
    let service = assembled.service.clone();
    let bound = socket::bind(&options.state)?;
    let socket = bound.path().display().to_string();
    let api = Api::new(service.clone(), assembled.proof.clone());
    let status = Status::from(service.status());
    // The listening queue holds whoever comes between the report and the first accept.
    ready(&status)?;
    tracing::info!(pid = status.pid, ready = status.ready, socket, "the service accepts clients");
    let (stopping, closing) = (api.clone(), service.clone());
    let on_signal = tokio::spawn(async move {
        stop.asked().await;
        tracing::info!("told to stop; running commands go on under their supervisors");
        // The API is stopped whatever the ledger says: the process ends either way.
        let closed = closing.shutdown(false).await;
        stopping.stop();
        closed
    });
    let served = server::serve(bound, api, server::Peers::own()).await;
    if on_signal.is_finished() {
        on_signal.await.unwrap_or(Ok(()))?;
    } else {
        on_signal.abort();
    }
    served.map_err(|error| {
        Failure::Refused(Refusal::new(
            Code::Internal,
            format!("the control socket {socket} could not be served: {error}"),
            "check the limits on open files (ulimit -n)",
        ))
    })?;
    drop(assembled);
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

fn filter() -> EnvFilter {
    EnvFilter::try_from_env("SAL_LOG").unwrap_or_else(|_| EnvFilter::new("info"))
}

/// The signals that stop a service.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn catch() -> Result<Self, Failure> {
        let catch = |kind| signal(kind).map_err(|error| no_runtime(&error));
        Ok(Self { terminate: catch(SignalKind::terminate())?, interrupt: catch(SignalKind::interrupt())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
