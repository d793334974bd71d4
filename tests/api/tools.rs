//! The tools behind the socket and on the command line.

use crate::rig::{Rig, ask_on};
use salaam::api::socket;
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use tokio::net::UnixStream;

fn call(rig: &Rig, session: &str, more: &[&str], request: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sal"))
        .args(["tool", "call", session, "salaam_files"])
        .args(more)
        .env_clear()
        .env("SAL_STATE", &rig.state)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    tokio::task::block_in_place(|| {
        // A request over the limit is not read to its end.
        let _ = input.write_all(request);
        drop(input);
        child.wait_with_output()
    })
    .unwrap()
}

#[tokio::test]
async fn ft1_an_agent_is_told_of_the_tool_by_its_schema() {
    let rig = Rig::start().await;
    let (status, answer) = rig.ask("GET", "/v1/tools", b"").await;
    assert_eq!(status, 200);
    let tool = &answer["tools"][0];
    assert_eq!(tool["name"], "salaam_files");
    assert_eq!(tool["input_schema"]["type"], "object");
    assert_eq!(tool["input_schema"]["required"], json!(["operation"]));
    assert!(tool["description"].as_str().unwrap().contains("Lines end at a line feed only"), "{tool}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ft1_tool_call_prints_the_answer_and_refuses_as_every_verb_does() {
    let rig = Rig::start().await;
    let session = rig.coding().await.to_string();
    let out = call(&rig, &session, &["--call-id", "c-1"], br#"{"operation":"inspect"}"#);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let shown = String::from_utf8(out.stdout).unwrap();
    let answer: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&answer["operation"], &answer["revision"]), (&json!("inspect"), &json!(1)));
    assert_eq!(answer["excluded"][0]["reason"], "a test");
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "a terminal is never steered: {shown}");
    let large = vec![b' '; 8 * 1024 * 1024 + 1];
    for (request, code) in [
        (&b"{"[..], "invalid"),
        (b"", "invalid"),
        (br#"{"operation":"list","all":1}"#, "invalid"),
        (br#"{"operation":"search","text":"\ud800"}"#, "invalid"),
        (br#"{"operation":"read","path":"none"}"#, "not_found"),
        (br#"{"operation":"patch","revision":2,"files":[]}"#, "stale_revision"),
        (br#"{"operation":"patch","revision":1,"files":[]}"#, "patch_refused"),
        (&large, "limit_exceeded"),
    ] {
        let out = call(&rig, &session, &["--json"], request);
        assert_eq!(out.status.code(), Some(125), "{code}");
        assert!(out.stdout.is_empty());
        let error: Value = serde_json::from_slice(&out.stderr).unwrap();
        assert_eq!(error["error"]["code"], code, "{error}");
    }
}

#[tokio::test]
async fn ft3_a_call_id_is_one_header_of_printable_ascii() {
    let rig = Rig::start().await;
    let session = rig.coding().await;
    // Headers go in by the path, which the rig writes into the head as it is.
    for (headers, status) in [
        ("salaam-call-id: c-1", 200),
        ("salaam-call-id: a b", 400),
        ("salaam-call-id: \u{e9}", 400),
        ("salaam-call-id: a\r\nsalaam-call-id: b", 400),
    ] {
        let path = format!("/v1/sessions/{session}/tools/salaam_files HTTP/1.1\r\n{headers}\r\nx-rest:");
        let stream = UnixStream::connect(rig.state.join(socket::FILE)).await.unwrap();
        let (got, answer) = ask_on(stream, "POST", &path, br#"{"operation":"inspect"}"#).await;
        assert_eq!(got, status, "{headers}: {answer}");
    }
}
