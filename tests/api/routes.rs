//! What the routes answer.

use crate::rig::{Rig, ask_on};
use salaam::api::{server, socket, wire};
use salaam::domain::ids::RunId;
use salaam::domain::outcome::Cause;
use salaam::domain::refusal::Code;
use salaam::domain::run::RunState;
use salaam::exec::scripted::Play;
use serde_json::json;
use std::time::Duration;
use tokio::net::UnixStream;

fn command(text: &str) -> wire::StartCommand {
    wire::StartCommand { command: text.into(), ..wire::StartCommand::default() }
}

#[tokio::test]
async fn json_every_failure_has_the_one_error_form() {
    let rig = Rig::start().await;
    let session = rig.coding().await;
    let start = format!("/v1/sessions/{session}/commands");
    let none = "ses-00000000000000000000000000000000";
    let run = "run-00000000000000000000000000000000";
    let large = vec![b' '; 1024 * 1024 + 1];
    let vast = vec![b' '; 8 * 1024 * 1024 + 1];
    let unknown = br#"{"command":"true","comand":"false"}"#;
    let stale = format!(r#"{{"revision":9,"digest":"sha256:{}"}}"#, "0".repeat(64));
    let cases: Vec<(&str, String, &[u8], u16, &str)> = vec![
        ("GET", "/nowhere".into(), b"", 404, "not_found"),
        ("PUT", "/v1/status".into(), b"", 405, "invalid"),
        ("POST", start.clone(), b"{", 400, "invalid"),
        ("POST", start.clone(), b"", 400, "invalid"),
        ("POST", start.clone(), unknown, 400, "invalid"),
        ("POST", start.clone(), br#"{"command":"true","step_key":"a b"}"#, 400, "invalid"),
        ("POST", start.clone(), br#"{"command":"true","cwd":"../x"}"#, 400, "invalid"),
        ("POST", start.clone(), br#"{"command":"true","revision":9}"#, 409, "stale_revision"),
        ("POST", start.clone(), &large, 413, "limit_exceeded"),
        ("POST", format!("{start}?wait=perhaps"), br#"{"command":"true"}"#, 400, "invalid"),
        ("POST", format!("{start}?wat=true"), br#"{"command":"true"}"#, 400, "invalid"),
        ("POST", "/v1/sessions".into(), br#"{"kind":"coding","cwd":"relative"}"#, 400, "invalid"),
        ("POST", "/v1/shutdown".into(), br#"{"cancel":true,"now":true}"#, 400, "invalid"),
        ("GET", "/v1/sessions/nonsense".into(), b"", 400, "invalid"),
        ("GET", "/v1/sessions/%ff".into(), b"", 400, "invalid"),
        ("GET", format!("/v1/sessions/{none}"), b"", 404, "not_found"),
        ("GET", format!("{start}/{run}"), b"", 404, "not_found"),
        ("GET", format!("{start}/{run}/logs?follow=true&limit=1"), b"", 400, "invalid"),
        ("GET", "/v1/proof".into(), b"", 404, "not_found"),
        ("GET", format!("/v1/sessions/{session}/workspace/diff?revision=9"), b"", 404, "not_found"),
        ("GET", format!("/v1/sessions/{session}/workspace/diff?revision=x"), b"", 400, "invalid"),
        ("GET", format!("/v1/sessions/{session}/workspace/diff?sumary=true"), b"", 400, "invalid"),
        ("POST", format!("/v1/sessions/{session}/workspace/refresh"), b"", 400, "invalid"),
        (
            "POST",
            format!("/v1/sessions/{session}/workspace/refresh"),
            br#"{"revision":1,"digest":"sha256:0"}"#,
            400,
            "invalid",
        ),
        (
            "POST",
            format!("/v1/sessions/{session}/workspace/refresh"),
            stale.as_bytes(),
            409,
            "stale_revision",
        ),
        ("POST", format!("/v1/sessions/{session}/tools/salaam_files"), b"{}", 400, "invalid"),
        ("POST", format!("/v1/sessions/{session}/tools/salaam_files"), &vast, 413, "limit_exceeded"),
        ("POST", format!("/v1/sessions/{session}/tools/salaam_command"), b"{}", 501, "not_built"),
        ("POST", format!("/v1/sessions/{session}/tools/salaam_rm"), b"{}", 400, "invalid"),
        (
            "POST",
            format!("/v1/sessions/{none}/tools/salaam_files"),
            br#"{"operation":"inspect"}"#,
            404,
            "not_found",
        ),
    ];
    for (method, path, body, status, code) in cases {
        let (got, answer) = rig.ask(method, &path, body).await;
        assert_eq!(got, status, "{method} {path}: {answer}");
        assert_eq!(answer["error"]["code"], code, "{method} {path}: {answer}");
        for part in ["message", "hint"] {
            let text = answer["error"][part].as_str().unwrap();
            assert!(!text.is_empty(), "{method} {path}: {answer}");
        }
        assert_eq!(answer.as_object().unwrap().len(), 1);
    }
    assert_eq!(rig.scripted.launched(), 0, "nothing refused was run");
}

#[tokio::test]
async fn json_a_run_has_the_names_of_the_contract() {
    let rig = Rig::start().await;
    let session = rig.coding().await;
    let (_, made) = rig.ask("GET", &format!("/v1/sessions/{session}"), b"").await;
    assert_eq!(made["kind"], "coding");
    assert_eq!(made["workspace"]["revision"], 1);
    assert_eq!(made["excluded"][0]["reason"], "a test");
    rig.scripted.next(vec![
        Play::Supervising,
        Play::Launching,
        Play::Write(b"one\x1b\xff".to_vec()),
        Play::Exit(3),
        Play::Removed(vec![]),
    ]);
    let path = format!("/v1/sessions/{session}/commands");
    let body = br#"{"command":"x","step_key":"k"}"#;
    let (status, run) = rig.ask("POST", &format!("{path}?wait=true"), body).await;
    assert_eq!(status, 200, "{run}");
    assert_eq!(run["state"], "finished");
    assert_eq!(run["cwd"], ".");
    assert_eq!(run["step_key"], "k");
    assert_eq!(run["cleanup"], "confirmed");
    assert_eq!(run["executor"], "scripted");
    assert_eq!(run["recovery_phase"], json!(null));
    assert_eq!(run["outcome"]["exit_code"], 3);
    assert_eq!(run["outcome"]["signal"], json!(null));
    assert_eq!(run["outcome"]["cause"], "exited");
    assert_eq!(run["output"], json!({"stored_bytes": 5, "total_bytes": 5, "truncated": false}));
    for name in ["memory_peak", "pids_peak", "cpu_ms", "throttled_ms"] {
        assert!(run["headroom"].as_object().unwrap().contains_key(name));
    }
    assert!(run["image"]["manifest"].as_str().unwrap().starts_with("sha256:"));
    let (_, again) = rig.ask("POST", &path, body).await;
    assert_eq!(again, run, "the same key answers the same run");
    let (status, other) = rig.ask("POST", &path, br#"{"command":"y","step_key":"k"}"#).await;
    assert_eq!((status, &other["error"]["code"]), (409, &json!("conflict")));
    let (_, state) = rig.ask("GET", "/v1/status", b"").await;
    assert_eq!(state["ready"], true);
    assert_eq!(state["runs"], 0);
    assert!(state["proof_digest"].as_str().unwrap().starts_with("sha256:"));
}

#[tokio::test]
async fn cmd7_logs_are_raw_bytes_by_offset_and_can_be_followed() {
    let rig = Rig::start().await;
    let session = rig.coding().await;
    rig.scripted.next(vec![
        Play::Supervising,
        Play::Launching,
        Play::Write(b"first\x00\xff".to_vec()),
        Play::Wait(Duration::from_millis(300)),
        Play::Write(b"second".to_vec()),
        Play::Exit(0),
        Play::Removed(vec![]),
    ]);
    let mut client = rig.client().await;
    let run = client.start(&session, &command("x"), false).await.unwrap();
    let id = RunId::parse(&run.run_id).unwrap();
    let mut log = client.follow(&session, &id, 0).await.unwrap();
    let mut seen = Vec::new();
    while let Some(bytes) = log.next().await.unwrap() {
        seen.extend_from_slice(&bytes);
    }
    assert_eq!(seen, b"first\x00\xffsecond");
    let done = client.run(&session, &id, true).await.unwrap().run;
    assert_eq!(done.state, RunState::Finished);
    assert_eq!(done.process_exit_code(), 0);
    let part = client.logs(&session, &id, 5, 3).await.unwrap();
    assert_eq!(&part.bytes[..], b"\x00\xffs");
    assert_eq!((part.output.stored_bytes, part.ended), (13, true));
    assert!(client.logs(&session, &id, 99, 3).await.unwrap().bytes.is_empty());
}

#[tokio::test]
async fn cmd5_a_cancel_answers_the_settled_run() {
    let rig = Rig::start().await;
    let session = rig.coding().await;
    rig.scripted.next(Play::endless());
    let mut client = rig.client().await;
    let run = client.start(&session, &command("sleep 99"), false).await.unwrap();
    let id = RunId::parse(&run.run_id).unwrap();
    assert_eq!(client.start(&session, &command("y"), false).await.unwrap_err().code, Code::Busy);
    let cancelled = client.cancel(&session, &id).await.unwrap();
    assert_eq!(cancelled.run.outcome.as_ref().unwrap().cause, Cause::Cancelled);
    assert_eq!(cancelled.run.process_exit_code(), 137);
    assert!(client.cancel(&session, &id).await.unwrap().already_finished);
}

#[tokio::test]
async fn svc5_shutdown_ends_waits_and_the_server() {
    let rig = Rig::start().await;
    let session = rig.coding().await;
    rig.scripted.next(Play::endless());
    let mut waiting = rig.client().await;
    let mut other = rig.client().await;
    let wait = tokio::spawn(async move { waiting.start(&session, &command("x"), true).await });
    while rig.scripted.launched() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(other.shutdown(false).await.unwrap().stopping);
    let refusal = wait.await.unwrap().unwrap_err();
    assert!(matches!(refusal.code, Code::NotReady | Code::NotRunning), "{refusal:?}");
    let path = rig.state.join(socket::FILE);
    rig.ended().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn svc4_connections_are_bounded_and_the_next_is_told() {
    let rig = Rig::start().await;
    let path = rig.state.join(socket::FILE);
    let mut held = Vec::new();
    for _ in 0..server::MAX_CONNECTIONS {
        held.push(UnixStream::connect(&path).await.unwrap());
    }
    let next = UnixStream::connect(&path).await.unwrap();
    let (status, answer) = ask_on(next, "GET", "/v1/status", b"").await;
    assert_eq!((status, &answer["error"]["code"]), (429, &json!("busy")), "{answer}");
    drop(held);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(rig.ask("GET", "/v1/status", b"").await.0, 200);
}

#[tokio::test]
async fn json_the_interface_describes_itself() {
    let rig = Rig::start().await;
    let (status, document) = rig.ask("GET", "/v1/openapi.json", b"").await;
    assert_eq!(status, 200);
    assert_eq!(document["openapi"], "3.1.0");
}
