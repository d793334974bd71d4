//! HTTP/1.1 with every wait and every answer bounded.
//!
//! Two clients, so that plain HTTP cannot leave this machine whatever is asked of it: one speaks TLS
//! alone, the other connects to loopback addresses alone.

use super::super::error::{ImageError, printable};
use super::access::Patience;
use super::endpoint::Origin;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioExecutor;
use std::error::Error;
use std::future::{Ready, ready};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Why a request brought nothing.
#[derive(Debug)]
pub(super) enum Trouble {
    /// May pass: worth another attempt, perhaps not before the wait.
    Passing(String, Option<Duration>),
    /// Nobody listens there.
    Unreachable(String),
    /// The other side does not speak TLS.
    NotTls,
    /// Will not pass.
    Final(ImageError),
}

/// Names to no other address than this machine's.
#[derive(Clone)]
struct Loopback;

impl tower::Service<Name> for Loopback {
    type Response = std::array::IntoIter<SocketAddr, 2>;
    type Error = std::io::Error;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Name) -> Self::Future {
        ready(Ok([(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()].into_iter()))
    }
}

/// The trust in servers, read once a pull: `SSL_CERT_FILE`, `SSL_CERT_DIR`, or the system's own.
#[derive(Clone)]
pub(super) struct Trust(Arc<rustls::ClientConfig>);

impl Trust {
    /// # Errors
    /// [`ImageError::Registry`] when there is no certificate to trust.
    pub fn system(host: &str) -> Result<Self, ImageError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = rustls::RootCertStore::empty();
        let (good, _) = roots.add_parsable_certificates(found.certs);
        if good == 0 {
            let why = found.errors.first().map(|e| format!(" ({})", printable(&e.to_string())));
            return Err(ImageError::Registry {
                registry: host.to_owned(),
                problem: format!("no CA certificate was found{}", why.unwrap_or_default()),
                hint: "install the package ca-certificates, or name a bundle with SSL_CERT_FILE".to_owned(),
            });
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| ImageError::Registry {
                registry: host.to_owned(),
                problem: format!("TLS cannot be set up ({e})"),
                hint: String::new(),
            })?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }
}

/// The clients of one thread's runtime.
pub(super) struct Http {
    tls: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    plain: Client<HttpConnector<Loopback>, Full<Bytes>>,
    patience: Patience,
}

impl Http {
    pub fn new(trust: &Trust, patience: Patience) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(patience.connect));
        tcp.set_nodelay(true);
        let tls = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config((*trust.0).clone())
            .https_only()
            .enable_http1()
            .wrap_connector(tcp);
        let mut plain = HttpConnector::new_with_resolver(Loopback);
        plain.set_connect_timeout(Some(patience.connect));
        plain.set_nodelay(true);
        Self {
            tls: Client::builder(TokioExecutor::new()).build(tls),
            plain: Client::builder(TokioExecutor::new()).build(plain),
            patience,
        }
    }

    /// Sends a request and waits for the head of its answer.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Trouble> {
        let origin = Origin::of(request.uri())
            .map_err(|problem| Trouble::Passing(format!("the address {problem}"), None))?;
        let sent = async {
            if origin.plain { self.plain.request(request).await } else { self.tls.request(request).await }
        };
        let wait = self.patience.connect + self.patience.stall;
        match tokio::time::timeout(wait, sent).await {
            Err(_) => Err(Trouble::Passing(format!("it does not answer within {} s", wait.as_secs()), None)),
            Ok(Err(error)) => Err(trouble(&error)),
            Ok(Ok(response)) => Ok(response),
        }
    }

    /// The next piece of a body; `None` at its end.
    pub async fn next(&self, body: &mut Incoming) -> Result<Option<Bytes>, Trouble> {
        loop {
            match tokio::time::timeout(self.patience.stall, body.frame()).await {
                Err(_) => {
                    let stall = self.patience.stall.as_secs_f32();
                    return Err(Trouble::Passing(format!("nothing came for {stall} s"), None));
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(trouble(&error)),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// A body of at most `limit` bytes, or its first `limit` and one.
    pub async fn read(&self, body: &mut Incoming, limit: u64) -> Result<Vec<u8>, Trouble> {
        let mut out = Vec::new();
        while let Some(piece) = self.next(body).await? {
            out.extend_from_slice(&piece);
            if out.len() as u64 > limit {
                out.truncate(usize::try_from(limit).unwrap_or(usize::MAX).saturating_add(1));
                break;
            }
        }
        Ok(out)
    }
}

/// Finds in the chain of causes what to do about an error.
fn trouble(error: &(dyn Error + 'static)) -> Trouble {
    let mut causes = Vec::new();
    let (mut handshake, mut io) = (None, None);
    let mut next = Some(error);
    while let Some(cause) = next {
        causes.push(cause.to_string());
        handshake = handshake.or_else(|| cause.downcast_ref::<rustls::Error>());
        let wrapped = cause.downcast_ref::<std::io::Error>();
        io = wrapped.map(std::io::Error::kind).or(io);
        // The source of an I/O error is that of the error which it wraps.
        next = match wrapped.and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => cause.source(),
        };
    }
    causes.dedup();
    let text = printable(&causes.join(": "));
    match (handshake, io) {
        (Some(rustls::Error::InvalidMessage(_)), _) => Trouble::NotTls,
        (Some(rustls::Error::InvalidCertificate(_)), _) => Trouble::Final(ImageError::Registry {
            registry: String::new(),
            problem: format!("its certificate is not trusted ({text})"),
            hint: "name the CA bundle that vouches for it with SSL_CERT_FILE".to_owned(),
        }),
        (_, Some(std::io::ErrorKind::ConnectionRefused)) => Trouble::Unreachable(text),
        _ if causes.iter().any(|c| c.contains("dns error") || c.contains("lookup address")) => {
            Trouble::Unreachable(text)
        }
        _ => Trouble::Passing(text, None),
    }
}
