//! A service on the scripted executor, a project that is never read, and raw HTTP for what the typed
//! client would not send.

#[path = "../fixtures/plain.rs"]
#[allow(dead_code)]
mod plain;

use plain::{Import, Plain};
use salaam::api::routes::Api;
use salaam::api::{server, socket};
use salaam::domain::digest::Digest;
use salaam::domain::ids::SessionId;
use salaam::domain::job::{Bundle, ImagePin};
use salaam::domain::refusal::Refusal;
use salaam::domain::session::Excluded;
use salaam::exec::Fut;
use salaam::exec::scripted::Scripted;
use salaam::service::ports::{ProofSummary, Prover};
use salaam::service::startup::Opened;
use salaam::service::{Backend, Service};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

/// A served service.
pub struct Rig {
    pub state: PathBuf,
    pub scripted: Scripted,
    pub service: Service,
    pub api: Api,
    serving: JoinHandle<std::io::Result<()>>,
    _dir: tempfile::TempDir,
}

/// Imports nothing, and leaves out a name that would steer a terminal.
fn no_project(_: &Path, _: &Path) -> Result<Vec<Excluded>, Refusal> {
    Ok(vec![Excluded { path: "odd\u{202e}\u{1b}[2J".into(), reason: "a test".into() }])
}

struct Proved;

impl Prover for Proved {
    fn prove(&self) -> Fut<'_, Result<ProofSummary, Refusal>> {
        Box::pin(async { Ok(ProofSummary { digest: Digest::of(b"proof"), engine: "scripted".into() }) })
    }
}

impl Rig {
    /// Starts and serves in `name` below a fresh private directory.
    pub async fn at(name: &str) -> Self {
        Self::importing(name, no_project).await
    }

    /// [`Rig::at`] with an import of its own.
    pub async fn importing(name: &str, import: Import) -> Self {
        Self::slow(name, import, Duration::ZERO).await
    }

    /// [`Rig::importing`] whose imports and diffs take so long at least.
    pub async fn slow(name: &str, import: Import, takes: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut workspaces = Plain::importing(dir.path().join("coding"), import);
        workspaces.takes = takes;
        let workspaces = Arc::new(workspaces);
        let state = dir.path().join(name);
        let scripted = Scripted::new();
        let pin = ImagePin {
            reference: "example.invalid/node@sha256:0".into(),
            index: None,
            manifest: Digest::of(b"manifest"),
            config: Digest::of(b"config"),
            diff_ids: vec![],
        };
        let bundle = Bundle { pin, lower: vec!["/nowhere".into()], etc: "/nowhere".into() };
        let backend =
            Backend { executor: Arc::new(scripted.clone()), bundle, probe: "/proc/self/exe".into() };
        let opened = Opened::open(&state).await.unwrap();
        let chosen = opened.choose(Some(backend), Some(workspaces)).unwrap();
        let service = chosen.recover().await.unwrap().prove(&Proved).await.unwrap().ready();
        let bound = socket::bind(&state).unwrap();
        let api = Api::new(service.clone(), state.join("executor-proof.json"));
        let serving = tokio::spawn(server::serve(bound, api.clone(), server::Peers::own()));
        Self { state, scripted, service, api, serving, _dir: dir }
    }

    /// [`Rig::at`] where nothing about the path matters.
    pub async fn start() -> Self {
        Self::at("state").await
    }

    /// A typed client.
    pub async fn client(&self) -> salaam::api::client::Client {
        salaam::api::client::Client::connect(&self.state).await.unwrap()
    }

    /// A fresh coding session.
    pub async fn coding(&self) -> SessionId {
        let asked = salaam::api::wire::CreateSession {
            kind: salaam::domain::session::SessionKind::Coding,
            cwd: "/project".into(),
        };
        SessionId::parse(&self.client().await.create_session(&asked).await.unwrap().session_id).unwrap()
    }

    /// Sends one request and answers status and body.
    pub async fn ask(&self, method: &str, path: &str, body: &[u8]) -> (u16, serde_json::Value) {
        let stream = UnixStream::connect(self.state.join(socket::FILE)).await.unwrap();
        ask_on(stream, method, path, body).await
    }

    /// Waits until the server has ended.
    pub async fn ended(self) {
        self.serving.await.unwrap().unwrap();
    }
}

/// Sends one request on `stream` and answers status and body.
pub async fn ask_on(
    mut stream: UnixStream,
    method: &str,
    path: &str,
    body: &[u8],
) -> (u16, serde_json::Value) {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // A body beyond the limit may be refused before it is read to its end.
    let _ = stream.write_all(body).await;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {text}")))
}
