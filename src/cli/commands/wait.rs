//! Waits for a run that was just started: output, remarks, exit code.

use crate::api::client::Client;
use crate::api::wire::Run;
use crate::cli::failure::{DETACHED, Done, Failure};
use crate::cli::output::{LogSink, Output};
use crate::cli::run_text;
use crate::domain::ids::{RunId, SessionId};
use crate::domain::refusal::{Code, Refusal};
use std::path::Path;
use std::process::ExitCode;

/// Shows the output of `run` until its end and answers the exit code of CMD.1.
///
/// An interrupt leaves the run alone and says how to find it again.
pub(super) async fn wait(
    mut client: Client,
    session: &SessionId,
    run: Run,
    state: &Path,
    out: Output,
) -> Done {
    let Ok(id) = RunId::parse(&run.run_id) else {
        return Err(Failure::Refused(Refusal::new(
            Code::Internal,
            format!("the service names the run '{}', which is no run id", run.run_id),
            "compare sal --version and sal service status",
        )));
    };
    let done = tokio::select! {
        biased;
        done = to_the_end(&mut client, session, &id, out) => done,
        _ = tokio::signal::ctrl_c() => {
            out.note(&detached(session, &id, state));
            return Ok(ExitCode::from(DETACHED));
        }
    };
    let done = match done {
        Ok(done) => done,
        // Losing the service does not end the run. Who closed standard output wants to hear nothing.
        Err(failure) => {
            if matches!(failure, Failure::Refused(_)) && !out.is_json() {
                out.note(&detached(session, &id, state));
            }
            return Err(failure);
        }
    };
    if out.is_json() {
        out.object(&done)?;
    }
    for remark in run_text::remark(&done, state) {
        out.note(&remark);
    }
    Ok(ExitCode::from(done.process_exit_code()))
}

/// Streams the output, unless one JSON object is wanted, and answers the settled run.
async fn to_the_end(
    client: &mut Client,
    session: &SessionId,
    run: &RunId,
    out: Output,
) -> Result<Run, Failure> {
    if !out.is_json() {
        let mut sink = LogSink::stdout();
        let mut log = client.follow(session, run, 0).await?;
        while let Some(bytes) = log.next().await? {
            sink.write(&bytes)?;
        }
        sink.finish()?;
    }
    Ok(client.run(session, run, true).await?.run)
}

fn detached(session: &SessionId, run: &RunId, state: &Path) -> String {
    let state = state.display();
    format!(
        "detached; {run} goes on\n\
         its output: sal commands logs {session} --run-id {run} --follow --state {state}\n\
         cancel it:  sal commands cancel {session} --run-id {run} --state {state}"
    )
}
