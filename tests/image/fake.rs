//! A server that answers as a test wants it to, lies and breaks included. One request a connection.

use crate::oci_layout::blob_path;
use crate::registry::header;
use salaam::domain::digest::Digest;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub head: String,
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }

    /// The first byte that is asked for.
    pub fn from(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// How much of the body is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Send {
    All,
    /// So many bytes, then the connection is closed.
    Cut(usize),
    /// So many bytes, then nothing more comes.
    Stall(usize),
    /// The body again and again, without a length.
    Endless,
}

pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub send: Send,
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), send: Send::All }
    }

    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    pub fn send(self, send: Send) -> Self {
        Self { send, ..self }
    }
}

type Handler = dyn Fn(&Request) -> Reply + std::marker::Send + Sync;

pub struct Fake {
    pub port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Fake {
    /// Serves until the test process ends.
    pub fn serve(handler: impl Fn(&Request) -> Reply + std::marker::Send + Sync + 'static) -> Self {
        Self::serve_on("127.0.0.1", handler)
    }

    pub fn serve_on(
        ip: &str,
        handler: impl Fn(&Request) -> Reply + std::marker::Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, handler): (_, Arc<Handler>) = (Arc::new(Mutex::new(Vec::new())), Arc::new(handler));
        let requests = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (handler, requests) = (Arc::clone(&handler), Arc::clone(&requests));
                std::thread::spawn(move || answer(stream, &*handler, &requests));
            }
        });
        Self { port, seen }
    }

    /// Serves the blobs of a layout, whatever the repository; `first` may answer otherwise.
    pub fn of_layout(
        dir: &Path,
        first: impl Fn(&Request) -> Option<Reply> + std::marker::Send + Sync + 'static,
    ) -> Self {
        let dir = dir.to_owned();
        Self::serve(move |request| first(request).unwrap_or_else(|| from_layout(&dir, request)))
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// How many asked for a path that holds `part`.
    pub fn count(&self, part: &str) -> usize {
        self.seen().iter().filter(|r| r.path.contains(part)).count()
    }
}

/// What a sound registry would answer.
pub fn from_layout(dir: &Path, request: &Request) -> Reply {
    let name = request.path.rsplit('/').next().unwrap_or_default();
    let bytes = Digest::parse(name).ok().and_then(|digest| std::fs::read(blob_path(dir, &digest)).ok());
    let Some(bytes) = bytes else {
        return Reply::new(404, r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#);
    };
    if request.path.contains("/manifests/") {
        let parsed: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let media_type = parsed["mediaType"].as_str().unwrap_or("application/octet-stream").to_owned();
        return Reply::new(200, bytes).with("Content-Type", media_type);
    }
    match request.from() {
        Some(from) if from < bytes.len() => {
            let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
            Reply::new(206, &bytes[from..]).with("Content-Range", range)
        }
        Some(_) => Reply::new(416, ""),
        None => Reply::new(200, bytes),
    }
}

fn answer(mut stream: TcpStream, handler: &Handler, seen: &Mutex<Vec<Request>>) {
    let Some(request) = read(&mut stream) else { return };
    seen.lock().unwrap().push(request.clone());
    let reply = handler(&request);
    let mut head = format!("HTTP/1.1 {} Test\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let given = reply.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    if reply.send != Send::Endless && !given {
        head += &format!("Content-Length: {}\r\n", reply.body.len());
    }
    head += "\r\n";
    // A client that has seen enough closes the connection.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| match reply.send {
        Send::All => stream.write_all(&reply.body),
        Send::Cut(n) => stream.write_all(&reply.body[..n]),
        Send::Stall(n) => stream.write_all(&reply.body[..n]).map(|()| {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
            let _ = stream.read(&mut [0]);
        }),
        Send::Endless => loop {
            stream.write_all(&reply.body)?;
        },
    });
}

fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(0) => return None,
            Ok(_) => bytes.push(byte[0]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
        // The start of a TLS handshake: answered as a server of plain HTTP does.
        if bytes == [0x16] {
            let _ = stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
            return None;
        }
    }
    let head = String::from_utf8(bytes).ok()?;
    let length = header(&head, "content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let mut words = head.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    Some(Request { method, path, head, body: String::from_utf8(body).ok()? })
}
