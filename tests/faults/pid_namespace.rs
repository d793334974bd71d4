//! B15: the process id of a dead supervisor is given to a foreign process, which must get no signal.
//!
//! Ids are forced in a PID namespace of the test's own (`ns_last_pid`, proc(5)), whose first process is
//! this program again.

use crate::cells::start;
use crate::child::{LONG, Place};
use crate::report::Cell;
use crate::service::Ask;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use salaam::domain::record::Record;
use salaam::exec::Executor;
use salaam::exec::native::NativeExecutor;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

pub fn reuse() -> Cell {
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
        .arg(std::env::current_exe().unwrap())
        .args(["pid-namespace", "go"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("the foreign process lives"), "{said}");
    Cell::Swept { strikes: 1, end: "no signal".into() }
}

/// The first process of the namespace.
pub fn inside(_: &OsStr) -> ExitCode {
    let mut place = Place::new();
    let mut service = place.healthy();
    let session = service.session(&place);
    let run = service.run(&start(&session, LONG)).unwrap().unwrap().intent.run_id;
    place.acknowledged.push(run.clone());
    service.run(&Ask::Running { session: session.clone(), run: run.clone() }).unwrap().unwrap();
    let path = place.setup.state.join("runs").join(run.as_str()).join("records");
    let line = fs::read_to_string(&path).unwrap().lines().next().unwrap().to_owned();
    let Record::Supervising { pid, .. } = serde_json::from_str(&line).unwrap() else { panic!("{line}") };
    service.kill();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    // As the first process, this one has to reap what is left to it.
    let end = Instant::now() + Duration::from_secs(10);
    while fs::exists(format!("/proc/{pid}")).unwrap() {
        let _ = waitpid(None, Some(WaitPidFlag::WNOHANG));
        assert!(Instant::now() < end, "the supervisor stays");
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut foreign = with_id(pid);
    // The order of a cancel, which goes to the recorded process.
    let executor = NativeExecutor::new("/proc/self/exe".into(), place.setup.state.join("runs"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(executor.cancel(&run)).unwrap();
    // And a whole recovery.
    let mut service = place.healthy();
    let last = service.run(&Ask::Settled { session, run }).unwrap().unwrap();
    assert!(last.state.is_terminal(), "{last:?}");
    service.stop();
    assert!(foreign.try_wait().unwrap().is_none(), "the foreign process got a signal");
    let findings = crate::checker::check(&place);
    assert!(findings.is_clean(), "{findings:#?}");
    println!("the foreign process lives");
    let _ = foreign.kill();
    let _ = foreign.wait();
    ExitCode::SUCCESS
}

/// Starts a process that has this id and ignores nothing.
fn with_id(pid: i32) -> std::process::Child {
    for _ in 0..200 {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
        let mut child = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        if i32::try_from(child.id()).unwrap() == pid {
            return child;
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    panic!("the id {pid} could not be had");
}
