//! The service's own life: start, readiness, lock, proof, stop (SVC.1–5, PRF.3).

use crate::host::{Host, Image, leftovers};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

pub const CASES: &[(&str, fn())] = &[
    ("svc1_start_status_stop", start_status_stop),
    ("svc3_one_service_a_state_directory", one_winner),
    ("svc3_a_killed_service_is_replaced_and_its_command_adopted", killed),
    ("svc3_several_state_directories_side_by_side", side_by_side),
    ("svc5_stop_leaves_a_running_command_to_its_supervisor", stop_leaves),
    ("svc5_stop_cancel_leaves_nothing", stop_cancel),
    ("prf3_the_proof_is_stored_and_names_the_host", proof),
    ("prf3_a_failed_proof_denies_the_start", failed_proof),
];

fn start_status_stop() {
    let host = Host::prepare(Image::Musl);
    let down = host.sal(&["service", "status", "--json"]);
    assert_eq!((down.code, &down.error()["code"]), (125, &"not_running".into()), "{down:?}");
    let begin = Instant::now();
    host.service_start().ok();
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    let status = host.sal(&["service", "status", "--json"]).ok().json();
    assert_eq!(
        (&status["ready"], &status["executor"], &status["runs"]),
        (&true.into(), &"oci".into(), &0.into()),
        "{status}"
    );
    assert!(status["proof_digest"].as_str().unwrap().starts_with("sha256:"));
    let socket = fs::metadata(host.state().join("control.sock")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(host.state()).unwrap().permissions().mode() & 0o777, 0o700);
    host.sal(&["service", "stop"]).ok();
    assert_eq!(host.sal(&["service", "status"]).code, 125);
    host.service_start().ok();
}

fn one_winner() {
    let host = Host::prepare(Image::Musl);
    let tries: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..6).map(|_| scope.spawn(|| host.service_start_with(&["--json"]))).collect();
        starts.into_iter().map(|s| s.join().unwrap()).collect()
    });
    let (won, lost): (Vec<_>, Vec<_>) = tries.into_iter().partition(|s| s.code == 0);
    assert_eq!(won.len(), 1, "{won:?} {lost:?}");
    for seen in lost {
        assert_eq!((seen.code, &seen.error()["code"]), (125, &"already_running".into()), "{seen:?}");
    }
}

fn pid(host: &Host) -> i32 {
    host.sal(&["service", "status", "--json"]).ok().json()["pid"].as_i64().unwrap() as i32
}

fn killed() {
    let host = Host::start(Image::Musl);
    let session = host.session(&host.project("p", &[("a.txt", b"a")]));
    let command = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done; exit 9";
    let args = ["commands", "start", &session, "--step-key", "s1", "--json", "--command", command];
    let run = host.sal(&args).ok().json();
    std::thread::sleep(Duration::from_millis(700));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid(&host)), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    std::thread::sleep(Duration::from_millis(200));
    host.service_start().ok();
    let mut args = args.to_vec();
    args.retain(|a| *a != "--json");
    args.push("--wait");
    let seen = host.sal(&args);
    assert_eq!((seen.code, seen.stdout.as_str()), (9, "1\n2\n3\n4\n5\n6\n"), "{seen:?}");
    let all = host.sal(&["commands", "list", &session, "--json"]).ok().stdout;
    assert_eq!(
        all.matches(run["run_id"].as_str().unwrap()).count(),
        all.matches("\"run_id\"").count(),
        "{all}"
    );
}

fn side_by_side() {
    let (a, b) = (Host::start(Image::Musl), Host::start(Image::Debian));
    let session = a.session(&a.project("p", &[("a.txt", b"a")]));
    let foreign = b.sal(&["session", "inspect", &session, "--json"]);
    assert_eq!((foreign.code, &foreign.error()["code"]), (125, &"not_found".into()), "{foreign:?}");
    drop(b);
    assert_eq!(a.run(&session, "exit 3").code, 3);
}

fn long_run(host: &Host, seconds: u32) -> (String, String) {
    let session = host.session(&host.project("p", &[("a.txt", b"a")]));
    let command = format!("echo begin; sleep {seconds}; echo end");
    let run = host.sal(&["commands", "start", &session, "--json", "--command", &command]).ok().json();
    std::thread::sleep(Duration::from_millis(300));
    (session, run["run_id"].as_str().unwrap().to_owned())
}

fn stop_leaves() {
    let host = Host::start(Image::Musl);
    let before = leftovers();
    let (session, run) = long_run(&host, 3);
    host.sal(&["service", "stop"]).ok();
    assert!(leftovers().len() > before.len(), "the command did not go on");
    let end = Instant::now() + Duration::from_secs(10);
    while leftovers().iter().any(|l| !before.contains(l)) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(leftovers().iter().all(|l| before.contains(l)), "{:?}", leftovers());
    host.service_start().ok();
    let seen = host.sal(&["commands", "inspect", &session, "--run-id", &run, "--json"]).ok().json();
    assert_eq!((&seen["state"], &seen["outcome"]["exit_code"]), (&"finished".into(), &0.into()), "{seen}");
    let log = host.sal(&["commands", "logs", &session, "--run-id", &run]).ok();
    assert_eq!(log.stdout, "begin\nend\n");
}

fn stop_cancel() {
    let host = Host::start(Image::Musl);
    let before = leftovers();
    let (session, run) = long_run(&host, 20);
    host.sal(&["service", "stop", "--cancel"]).ok();
    assert!(leftovers().iter().all(|l| before.contains(l)), "{:?}", leftovers());
    host.service_start().ok();
    let seen = host.sal(&["commands", "inspect", &session, "--run-id", &run, "--json"]).ok().json();
    assert_eq!(seen["outcome"]["cause"], "cancelled", "{seen}");
    let runs = host.state().join("runs");
    assert_eq!(fs::read_dir(runs).unwrap().count(), 0, "run directories are left");
}

fn proof() {
    let host = Host::start(Image::Debian);
    let path = host.state().join("executor-proof.json");
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.permissions().mode() & 0o777, meta.uid()), (0o600, nix::unistd::getuid().as_raw()));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), salaam::domain::profile::Control::ALL.len());
    assert!(findings.iter().all(|f| f["passed"] == true && f["expected"] != "" && f["observed"] != ""));
    assert!(report["engine"].as_str().unwrap().contains("Linux"), "{}", report["engine"]);
    assert!(host.image.pin().ends_with(report["image"]["manifest"].as_str().unwrap()), "{}", report["image"]);
    let shown = host.sal(&["proof", "show", "--json"]).ok().json();
    assert_eq!(shown["profile_digest"], report["profile_digest"]);
}

/// A host that cannot hold a control: the service itself runs under a lower limit than the profile
/// demands, so that the container's limit cannot be what the profile says.
fn failed_proof() {
    use std::os::unix::process::CommandExt;
    let host = Host::prepare(Image::Musl);
    let (coding, store) = (host.coding(), crate::host::image_store());
    let mut command = host.command(&["service", "start", "--json", "--image", &host.image.pin()]);
    command.arg("--coding-root").arg(coding).arg("--image-store").arg(store);
    // SAFETY: setrlimit is async-signal-safe and touches only the child.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(|| {
            nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0)?;
            nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_FSIZE, 1 << 19, 1 << 19)?;
            Ok(())
        });
    }
    let seen: crate::host::Seen = command.output().unwrap().into();
    assert_eq!(seen.code, 125, "{seen:?}");
    assert!(format!("{}{}", seen.stdout, seen.stderr).contains("file_size"), "{seen:?}");
    assert_eq!(host.sal(&["service", "status"]).code, 125, "a client was accepted");
}
