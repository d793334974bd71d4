//! libcontainer's traps that no other suite walks into (ARCHITECTURE.md, "Supervisor").

use crate::host::{Host, Image, Seen, eventually, image_store, leftovers};
use crate::weak::{Bench, own_bundle};
use salaam::domain::profile::Profile;
use std::process::Command;

pub const CASES: &[(&str, fn())] = &[
    ("exe_the_groups_of_the_service_do_not_reach_a_command", groups),
    ("b18_a_killed_supervisor_takes_its_container_along", killed_supervisor),
    ("exe_a_shell_that_cannot_be_executed_is_told", no_shell),
];

/// Empty additional groups in a spec keep the caller's.
fn groups() {
    let host = Host::prepare(Image::Musl);
    let mut command = Command::new("setpriv");
    command.args(["--groups", "4,24", crate::host::SAL, "service", "start", "--state"]).arg(host.state());
    command.arg("--coding-root").arg(host.coding()).arg("--image-store").arg(image_store());
    let seen: Seen = command.args(["--image", &host.image.pin()]).output().unwrap().into();
    seen.ok();
    let session = host.session(&host.project("p", &[("a.txt", b"a")]));
    let ran = host.run(&session, "grep ^Groups: /proc/self/status | tr -d ' \\t'");
    assert_eq!(ran.output, "Groups:\n", "{ran:?}");
}

fn supervisors() -> Vec<i32> {
    leftovers().iter().filter_map(|l| l.strip_prefix("supervisor ")?.parse().ok()).collect()
}

fn killed_supervisor() {
    let host = Host::start(Image::Musl);
    let before = supervisors();
    let session = host.session(&host.project("p", &[("a.txt", b"a")]));
    let run = host.begin(&session, "k", "sleep 25");
    let state = || host.inspect(&session, &run);
    eventually(|| state()["state"] == "running");
    // The container's first process looks like its supervisor, so all of them are ours to see go.
    if let Some(pid) = supervisors().into_iter().filter(|pid| !before.contains(pid)).min() {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    eventually(|| state()["state"] != "running");
    let seen = state();
    assert_eq!((&seen["state"], &seen["cleanup"]), (&"interrupted".into(), &"confirmed".into()), "{seen}");
    assert_eq!(seen["outcome"]["exit_code"], serde_json::Value::Null, "an invented status: {seen}");
    assert!(supervisors().iter().all(|pid| before.contains(pid)), "{:?}", leftovers());
    assert_eq!(host.run(&session, "exit 3").code, 3);
}

fn no_shell() {
    let bench = Bench::new(|dir| {
        let bundle = own_bundle(Image::Musl, dir);
        std::fs::remove_file(bundle.lower[0].join("bin/sh")).unwrap();
        bundle
    });
    let seen = bench.run(&Profile::fixed(), "true");
    assert_eq!((seen.code(), seen.left.len()), (Some(127), 0), "{seen:?}");
    assert!(seen.outcome.as_ref().unwrap().detail.contains("/bin/sh"), "{seen:?}");
}
