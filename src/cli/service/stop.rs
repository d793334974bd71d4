//! `sal service stop`: asks the service to stop and waits until its process is gone.

use crate::cli::args::State;
use crate::cli::connect::with_client;
use crate::cli::failure::{Done, Failure};
use crate::cli::output::{Output, Text};
use crate::domain::refusal::{Code, Refusal};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Time for the process to end once it has agreed to.
const GONE: Duration = Duration::from_secs(30);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// Arguments of `service stop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Stop {
    #[command(flatten)]
    state: State,
    /// Cancel running commands first and leave nothing
    #[arg(long)]
    cancel: bool,
}

impl Stop {
    /// Stops the service.
    pub(crate) fn run(self, out: Output) -> Done {
        let state = self.state.path()?;
        with_client(&state, async |mut client| {
            let pid = client.service_pid();
            let answer = client.shutdown(self.cancel).await?;
            if let Some(pid) = pid {
                wait_gone(pid, &state).await?;
            }
            out.either(&answer, |_| Text::default().line("the service has stopped"))?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

async fn wait_gone(pid: i32, state: &Path) -> Result<(), Failure> {
    let end = Instant::now() + GONE;
    while lives(pid) {
        if Instant::now() > end {
            return Err(Failure::Refused(Refusal::new(
                Code::Internal,
                format!(
                    "the service agreed to stop, but its process {pid} lives on after {} s",
                    GONE.as_secs()
                ),
                format!("look at service.log in {}", state.display()),
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// False once the process has ended, even when nobody has reaped it yet.
fn lives(pid: i32) -> bool {
    if kill(Pid::from_raw(pid), None).is_err() {
        return false;
    }
    // The state follows the parenthesised name, which may hold anything (proc_pid_stat(5)).
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}
