//! The child process: the real service over the native executor, driven by JSON lines on its standard
//! input, one answer a line on its standard output.

use crate::workspaces::Workspaces;
use crate::world::{Plain, Proof};
use salaam::domain::digest::Digest;
use salaam::domain::files::Request;
use salaam::domain::ids::{CallId, RunId, SessionId};
use salaam::domain::job::Bundle;
use salaam::domain::refusal::Refusal;
use salaam::domain::relpath::RelPath;
use salaam::domain::run::{Run, RunState};
use salaam::domain::session::SessionKind;
use salaam::exec::native::NativeExecutor;
pub use salaam::service::ports;
use salaam::service::ports::WorkspacePort;
use salaam::service::startup::Opened;
use salaam::service::{Backend, Call, CreateSession, Graces, Service, StartCommand, settled};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// What the child is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    pub state: PathBuf,
    pub coding: PathBuf,
    pub bundle: Bundle,
    pub boot: String,
    pub deadline_ms: u64,
    pub removal_ms: u64,
    pub reopen_ms: u64,
    /// Workspaces in the real store, not as plain directories.
    #[serde(default)]
    pub real: bool,
}

/// What the child is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Ask {
    Session {
        project: PathBuf,
    },
    Start {
        session: SessionId,
        key: String,
        command: String,
    },
    Running {
        session: SessionId,
        run: RunId,
    },
    Settled {
        session: SessionId,
        run: RunId,
    },
    Run {
        session: SessionId,
        run: RunId,
    },
    Runs {
        session: SessionId,
    },
    Cancel {
        session: SessionId,
        run: RunId,
    },
    Reconcile {
        session: SessionId,
        run: RunId,
    },
    /// Publishes the tree of `patch_rows` as the next revision.
    Publish {
        session: SessionId,
        call: String,
    },
    /// Removes the session.
    Remove {
        session: SessionId,
    },
    /// Every session that is listed.
    Sessions,
    /// Calls the file tool.
    Call {
        session: SessionId,
        call: Option<String>,
        request: Value,
    },
    /// Adopts what lies in the current root.
    Refresh {
        session: SessionId,
    },
    /// The session's workspace.
    Workspace {
        session: SessionId,
    },
    Status,
    /// Moves the wall clock that the ledger sees.
    Jump {
        hours: i64,
    },
    /// Allocates until the kernel ends the process.
    Hog,
    Stop,
}

pub fn main(setup: &OsStr) -> ExitCode {
    let setup: Setup = serde_json::from_slice(setup.as_encoded_bytes()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match runtime.block_on(serve(setup)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            say(&json!({ "denied": refusal }));
            ExitCode::FAILURE
        }
    }
}

fn say(value: &Value) {
    println!("{value}");
}

async fn serve(setup: Setup) -> Result<(), Refusal> {
    let opened = Opened::open(&setup.state).await?;
    let executor = NativeExecutor::new(PathBuf::from("/proc/self/exe"), opened.state().runs());
    executor.settle().await.unwrap();
    let hours = Arc::new(AtomicI64::new(0));
    let wall = {
        let hours = Arc::clone(&hours);
        move || jiff::Timestamp::now() + jiff::SignedDuration::from_hours(hours.load(Ordering::SeqCst))
    };
    let backend =
        Backend { executor: Arc::new(executor), bundle: setup.bundle, probe: "/proc/self/exe".into() };
    let graces = Graces {
        deadline: Duration::from_millis(setup.deadline_ms),
        removal: Duration::from_millis(setup.removal_ms),
        reopen: Duration::from_millis(setup.reopen_ms),
    };
    let port: Arc<dyn WorkspacePort> = if setup.real {
        Arc::new(Workspaces::open(&setup.coding)?)
    } else {
        Arc::new(Plain::new(setup.coding))
    };
    let chosen = opened.with_graces(graces).with_clock(Arc::new(wall)).choose_in_boot(
        Some(backend),
        Some(port),
        setup.boot,
    );
    let service = chosen.recover().await?.prove(&Proof).await?.ready();
    say(&json!({ "ready": service.status().ready, "reason": service.status().reason }));
    let stopping = service.clone();
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    tokio::spawn(async move {
        terminate.recv().await;
        let done = stopping.shutdown(false).await;
        std::process::exit(i32::from(done.is_err()));
    });
    let (tell, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(Result::ok).try_for_each(|l| tell.send(l))
    });
    while let Some(line) = lines.recv().await {
        let ask: Ask = serde_json::from_str(&line).unwrap();
        if let Ask::Jump { hours: to } = ask {
            hours.store(to, Ordering::SeqCst);
            say(&json!({}));
            continue;
        }
        let stop = matches!(ask, Ask::Stop);
        say(&match answer(&service, ask).await {
            Ok(value) => value,
            Err(refusal) => json!({ "error": refusal }),
        });
        if stop {
            break;
        }
    }
    Ok(())
}

async fn answer(service: &Service, ask: Ask) -> Result<Value, Refusal> {
    let value = |run: Run| serde_json::to_value(run).unwrap();
    Ok(match ask {
        Ask::Session { project } => {
            let made = CreateSession { kind: SessionKind::Coding, cwd: project };
            json!({ "session": service.create_session(made).await?.id })
        }
        Ask::Start { session, key, command } => {
            let step_key = Some(salaam::domain::ids::StepKey::parse(&key).unwrap());
            let req = StartCommand { step_key, command, cwd: RelPath::default(), revision: None };
            value(service.start_command(&session, req).await?)
        }
        Ask::Running { session, run } => {
            let past = |run: &Run| run.state == RunState::Running || settled(run);
            value(until(service, &session, &run, past).await?)
        }
        Ask::Settled { session, run } => value(until(service, &session, &run, settled).await?),
        Ask::Run { session, run } => value(service.run(&session, &run).await?),
        Ask::Runs { session } => serde_json::to_value(service.runs(&session).await?).unwrap(),
        Ask::Cancel { session, run } => value(service.cancel(&session, &run).await?.run),
        Ask::Reconcile { session, run } => value(service.reconcile(&session, &run).await?),
        Ask::Publish { session, call } => {
            let workspace = service.session(&session).await?.workspace.unwrap();
            let call = Call { id: CallId::parse(&call).unwrap(), request: Digest::of(b"the request") };
            let change = crate::patch_rows::change(&workspace);
            serde_json::to_value(service.publish(&session, change, Some(call)).await?.workspace).unwrap()
        }
        Ask::Remove { session } => {
            service.remove_session(&session).await?;
            json!({ "removed": true })
        }
        Ask::Sessions => serde_json::to_value(service.sessions().await?).unwrap(),
        Ask::Call { session, call, request } => {
            let request = Request::parse(request.to_string().as_bytes())?;
            let call = call.map(|id| CallId::parse(&id).unwrap());
            serde_json::to_value(service.files(&session, call, request).await?).unwrap()
        }
        Ask::Refresh { session } => {
            let view = service.inspect_workspace(&session).await?;
            let adopted = service.refresh(&session, view.workspace.revision, &view.observed_digest).await?;
            serde_json::to_value(adopted).unwrap()
        }
        Ask::Workspace { session } => {
            serde_json::to_value(service.session(&session).await?.workspace).unwrap()
        }
        Ask::Status => {
            let status = service.status();
            json!({ "ready": status.ready, "reason": status.reason })
        }
        Ask::Hog => {
            let mut hoard: Vec<Vec<u8>> = Vec::new();
            loop {
                hoard.push(vec![1; 1 << 20]);
                tokio::task::yield_now().await;
            }
        }
        Ask::Jump { .. } => json!({}),
        Ask::Stop => {
            service.shutdown(false).await?;
            json!({ "stopped": true })
        }
    })
}

async fn until(
    service: &Service,
    session: &SessionId,
    run: &RunId,
    done: impl Fn(&Run) -> bool,
) -> Result<Run, Refusal> {
    loop {
        let mut watch = service.follow(session, run).await?;
        let seen = watch.wait_for(&done).await.map(|run| run.clone());
        match seen {
            Ok(run) => return Ok(run),
            // Its driver ended, or waits for the ledger.
            Err(_) => {
                let now = service.run(session, run).await?;
                if done(&now) {
                    return Ok(now);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}
