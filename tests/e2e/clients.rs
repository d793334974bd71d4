//! Clients of the socket that cancel at the wrong moment, read in tiny steps, ask a hundred times or
//! leave before the answer.

use crate::host::{Host, Image, block_on, cgroups, eventually, leftovers, processes_with};
use salaam::api::client::Client;
use salaam::api::wire::{Run, StartCommand};
use salaam::domain::ids::{RunId, SessionId};
use salaam::domain::outcome::Cause;
use salaam::domain::run::{Cleanup, RunEvent, RunState};
use salaam::ledger::Ledger;
use serde_json::json;
use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

pub const CASES: &[(&str, fn())] = &[
    ("cmd5_r5_cancel_against_exit_has_one_end_in_200_rounds", cancel_against_exit),
    ("cmd7_r6_a_log_read_in_small_steps_is_the_stored_one", small_steps),
    ("cmd5_r7_a_hundred_cancelled_forkers_leave_nothing", forkers),
    ("cmd2_a1_a_dropped_connection_runs_the_command_once", dropped_connection),
];

fn command(text: &str) -> StartCommand {
    StartCommand { command: text.into(), ..StartCommand::default() }
}

/// A session on a project of one file.
fn small_session(host: &Host) -> SessionId {
    SessionId::parse(&host.session(&host.project("p", &[("a.txt", b"a")]))).unwrap()
}

async fn begin(client: &mut Client, session: &SessionId, text: &str) -> RunId {
    let run = client.start(session, &command(text), false).await.unwrap();
    RunId::parse(&run.run_id).unwrap()
}

fn cancel_against_exit() {
    const ROUNDS: u32 = 200;
    let text = "sleep 0.05";
    let host = Host::start(Image::Musl);
    let session = small_session(&host);
    let ends: Vec<Run> = block_on(async {
        let mut client = host.client().await;
        // How long such a run takes here, so that the cancels fall on both sides of its exit.
        let mut longest = Duration::from_millis(100);
        for _ in 0..5 {
            let start = Instant::now();
            client.start(&session, &command(text), true).await.unwrap();
            longest = longest.max(start.elapsed());
        }
        let mut ends = Vec::new();
        for round in 0..ROUNDS {
            let run = begin(&mut client, &session, text).await;
            // 67 and 200 have no common divisor, so each delay comes once, in no order.
            let part = f64::from(round * 67 % ROUNDS) / f64::from(ROUNDS);
            tokio::time::sleep(longest.mul_f64(1.2 * part)).await;
            let reply = client.cancel(&session, &run).await.unwrap();
            let end = &reply.run;
            assert_eq!((end.state, end.cleanup), (RunState::Finished, Cleanup::Confirmed), "{reply:?}");
            let outcome = end.outcome.as_ref().unwrap();
            match outcome.cause {
                Cause::Exited => {
                    assert_eq!((outcome.exit_code, reply.already_finished), (Some(0), true), "{reply:?}");
                }
                Cause::Cancelled => assert!(!reply.already_finished, "{reply:?}"),
                other => panic!("{other:?}: {reply:?}"),
            }
            let again = client.cancel(&session, &run).await.unwrap();
            assert!(again.already_finished, "{again:?}");
            assert_eq!(again.run, *end, "a terminal state changed");
            ends.push(reply.run);
        }
        ends
    });
    let cancelled = ends.iter().filter(|run| run.outcome.as_ref().unwrap().cause == Cause::Cancelled).count();
    println!("{cancelled} cancelled, {} too late", ends.len() - cancelled);
    assert!(cancelled > 0 && cancelled < ends.len(), "{cancelled} of {ROUNDS} rounds were cancelled");
    let listed = || block_on(async { host.client().await.runs(&session).await.unwrap().runs });
    assert!(listed()[5..] == ends, "a terminal state changed");
    host.kill_service();
    host.service_start().ok();
    assert!(listed()[5..] == ends, "a terminal state changed by a restart");
    host.sal(&["service", "stop"]).ok();
    let ledger = Ledger::open(&host.state().join("ledger.db")).unwrap();
    for run in &ends {
        let id = RunId::parse(&run.run_id).unwrap();
        let events = block_on(ledger.events(&id)).unwrap();
        let count = |is: fn(&RunEvent) -> bool| events.iter().filter(|event| is(event)).count();
        let ended = count(|event| matches!(event, RunEvent::Ended { .. } | RunEvent::Lost { .. }));
        let removed = count(|event| matches!(event, RunEvent::Removed));
        assert_eq!((ended, removed), (1, 1), "{events:?}");
    }
    ledger.close();
}

fn small_steps() {
    let host = Host::start(Image::Debian);
    let session = small_session(&host);
    // One byte of the arrow is within the bound.
    let arrow = "head -c 65535 /dev/zero | tr '\\0' a; printf '\\342\\206\\222'";
    let ran = host.run(session.as_str(), arrow);
    assert_eq!((ran.code, ran.cause()), (0, "exited"), "{ran:?}");
    let sizes = json!({ "stored_bytes": 65_536, "total_bytes": 65_538, "truncated": true });
    assert_eq!(ran.run["output"], sizes);
    let id = ran.run["run_id"].as_str().unwrap();
    let mut want = vec![b'a'; 65_535];
    want.push(0xe2);
    assert!(fs::read(host.state().join("outputs").join(id)).unwrap() == want, "stored otherwise");
    let run = RunId::parse(id).unwrap();
    for step in [1, 7] {
        let glued = block_on(async {
            let (mut client, mut glued) = (host.client().await, Vec::<u8>::new());
            loop {
                let part = client.logs(&session, &run, glued.len() as u64, step).await.unwrap();
                assert!(part.ended && part.bytes.len() <= step, "{part:?}");
                if part.bytes.is_empty() {
                    break glued;
                }
                glued.extend_from_slice(&part.bytes);
            }
        });
        assert!(glued == want, "steps of {step}: {} bytes, or other ones", glued.len());
    }
    for (offset, want) in
        [(65_534, &b"a\xe2"[..]), (65_535, &b"\xe2"[..]), (65_536, &b""[..]), (u64::MAX, &b""[..])]
    {
        assert_eq!(host.log(session.as_str(), id, offset), want, "from {offset}");
    }
}

fn forkers() {
    let host = Host::start(Image::Debian);
    let session = small_session(&host);
    let before = leftovers();
    let text = "i=0; while [ $i -lt 20 ]; do sleep 7654 & i=$((i+1)); done; echo up; wait";
    let runs = block_on(async {
        let mut client = host.client().await;
        for round in 0..100 {
            let run = begin(&mut client, &session, text).await;
            let mut looks = 0;
            while client.logs(&session, &run, 0, 8).await.unwrap().bytes.is_empty() {
                looks += 1;
                assert!(looks < 2_000, "round {round} did not come up");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if round == 0 {
                assert!(eventually(|| processes_with("7654").len() == 20), "{:?}", processes_with("7654"));
            }
            let reply = client.cancel(&session, &run).await.unwrap();
            // At once: the answer says that all of it is gone.
            assert_eq!(processes_with("7654"), Vec::<i32>::new(), "round {round}");
            let left: Vec<String> = cgroups().into_iter().filter(|path| !before.contains(path)).collect();
            assert!(left.is_empty(), "round {round}: {left:?}");
            let end = &reply.run;
            assert_eq!((end.state, end.cleanup), (RunState::Finished, Cleanup::Confirmed), "{reply:?}");
            assert_eq!(end.outcome.as_ref().unwrap().cause, Cause::Cancelled, "{reply:?}");
        }
        client.runs(&session).await.unwrap().runs
    });
    assert_eq!(runs.len(), 100);
    // Supervisors end, and run directories go, right after the answer.
    let gone = || leftovers().iter().all(|left| before.contains(left));
    assert!(eventually(gone), "{:?}", leftovers());
    let directories = || fs::read_dir(host.state().join("runs")).unwrap().count();
    assert!(eventually(|| directories() == 0), "{} run directories", directories());
}

fn dropped_connection() {
    let host = Host::start(Image::Musl);
    let session = host.session(&host.project("p", &[("sub/a.txt", b"a")]));
    let text = "echo once; sleep 1; exit 4";
    let ask = |key: &str| {
        let body = json!({ "command": text, "step_key": key }).to_string();
        let mut stream = UnixStream::connect(host.state().join("control.sock")).unwrap();
        write!(
            stream,
            "POST /v1/sessions/{session}/commands?wait=true HTTP/1.1\r\nhost: x\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        stream
    };
    let of_key = |key: &str| host.runs(&session).into_iter().filter(|run| run["step_key"] == key).count();
    let start = |key: &str, command: &str, cwd: &str| {
        let args = ["commands", "start", &session, "--step-key", key, "--command", command, "--cwd", cwd];
        host.sal(&[&args[..], &["--wait", "--json"]].concat())
    };
    for (key, stays) in [("gone-at-once", false), ("gone-while-it-runs", true)] {
        let stream = ask(key);
        if stays {
            assert!(eventually(|| of_key(key) == 1), "{key}: not started");
        }
        drop(stream);
        let first = start(key, text, ".");
        let again = start(key, text, ".");
        assert_eq!((first.code, again.code), (4, 4), "{key}: {first:?} {again:?}");
        assert_eq!(first.json(), again.json(), "{key}: another reply");
        let run = first.json()["run_id"].as_str().unwrap().to_owned();
        assert_eq!(host.log(&session, &run, 0), b"once\n", "{key}");
        for other in [start(key, "echo twice", "."), start(key, text, "sub")] {
            assert_eq!((other.code, &other.error()["code"]), (125, &"conflict".into()), "{key}: {other:?}");
        }
        assert_eq!(of_key(key), 1, "{key}: executed more than once");
    }
}
