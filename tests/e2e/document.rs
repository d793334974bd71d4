//! The commands of the user's document, verbatim but for paths and ids, as far as they are built.

use crate::host::{Host, Image, fixture};

pub const CASES: &[(&str, fn())] = &[("document_commands_verbatim", verbatim)];

fn verbatim() {
    let host = Host::prepare(Image::Debian);
    let state = host.state();
    let state = state.to_str().unwrap();
    let (coding, store) = (host.coding(), crate::host::image_store());
    let sal = |line: &str| -> crate::host::Seen {
        let words = split(line);
        assert_eq!(words[0], "sal");
        std::process::Command::new(crate::host::SAL).args(&words[1..]).output().unwrap().into()
    };
    // The provider and the socket of the document are issues of their own.
    sal(&format!(
        "sal service start --state {state} --provider none --coding-root {} --image-store {} --image {}",
        coding.display(),
        store.display(),
        host.image.pin()
    ))
    .ok();
    let made = sal(&format!(
        "sal session create --state {state} --cwd {} --coding",
        fixture("error-4.3.0").display()
    ))
    .ok();
    let session = made.stdout.split_whitespace().find(|w| w.starts_with("ses-")).unwrap().to_owned();
    let seen = sal(&format!("sal workspace inspect {session} --state {state}")).ok();
    assert!(seen.stdout.contains("sha256:"), "{seen:?}");
    let started = sal(&format!(
        "sal commands start {session} --state {state} --step-key test-v1 --command 'node --test' --revision 1"
    ))
    .ok();
    let run = started.stdout.split_whitespace().find(|w| w.starts_with("run-")).unwrap().to_owned();
    let of_run = |verb: &str| sal(&format!("sal commands {verb} {session} --state {state} --run-id {run}"));
    let end = std::time::Instant::now() + std::time::Duration::from_secs(40);
    while !of_run("inspect").ok().stdout.contains("finished") {
        assert!(std::time::Instant::now() < end, "{:?}", of_run("inspect"));
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let log = sal(&format!("sal commands logs {session} --state {state} --run-id {run} --offset 0")).ok();
    assert!(log.stdout.contains("pass 36"), "{log:?}");
    let late = of_run("cancel");
    assert!(format!("{}{}", late.stdout, late.stderr).contains("already finished"), "{late:?}");
    // Nothing about it is uncertain: it is answered as it is.
    let reconcile = of_run("reconcile").ok();
    assert!(reconcile.stdout.contains("finished"), "{reconcile:?}");
}

/// Splits as a shell would, with single quotes only.
fn split(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|w| !w.is_empty());
    words
}
