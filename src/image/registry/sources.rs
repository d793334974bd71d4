//! Where an image is asked for: the mirror, if one is set, then the registry of its name.

use super::super::blob::Blob;
use super::super::error::ImageError;
use super::super::reference::Reference;
use super::access::{Access, Progress};
use super::download::Download;
use super::endpoint::Host;
use super::http::{Http, Trouble, Trust};
use super::session::{Ask, Session};
use crate::domain::digest::Digest;
use hyper::header::CONTENT_TYPE;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use tokio::runtime::Runtime;

/// Media types of manifests and indexes, in both tongues.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.docker.distribution.manifest.v2+json";

/// A manifest or an index, verified, and what the registry calls it.
#[derive(Debug)]
pub(super) struct Document {
    pub bytes: Vec<u8>,
    pub media_type: String,
}

/// The registries of one pull, the first to be asked first.
pub(super) struct Sources<'a> {
    sessions: Vec<Session>,
    trust: Trust,
    access: &'a Access,
    progress: &'a dyn Progress,
}

/// One thread's way to the registries.
pub(super) struct Line<'a> {
    sources: &'a Sources<'a>,
    http: Http,
    runtime: Runtime,
}

impl<'a> Sources<'a> {
    pub fn new(
        reference: &Reference,
        access: &'a Access,
        progress: &'a dyn Progress,
    ) -> Result<Self, ImageError> {
        let (domain, repository) = reference.parts();
        let named = Host::of_domain(domain);
        let trust = Trust::system(domain)?;
        let mirror = access.mirror.iter().filter(|mirror| **mirror != named).cloned();
        let session = |host| Session::new(host, repository, &access.logins, access.patience);
        let sessions = mirror.chain([named.clone()]).map(session).collect();
        Ok(Self { sessions, trust, access, progress })
    }

    /// A line for the calling thread.
    pub fn line(&'a self) -> Result<Line<'a>, ImageError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ImageError::io("start a runtime for", Path::new("the registry")))?;
        // The clients look for the runtime as they are made.
        let http = {
            let _entered = runtime.enter();
            Http::new(&self.trust, self.access.patience)
        };
        Ok(Line { sources: self, http, runtime })
    }
}

impl Line<'_> {
    /// A manifest or an index of at most `limit` bytes.
    pub fn manifest(&self, digest: &Digest, limit: u64) -> Result<Document, ImageError> {
        self.each(|session| {
            self.runtime.block_on(self.document(session, &format!("manifests/{digest}"), digest, limit))
        })
    }

    /// A small blob, verified.
    pub fn blob(&self, blob: &Blob) -> Result<Vec<u8>, ImageError> {
        let path = format!("blobs/{}", blob.digest);
        let document = self
            .each(|session| self.runtime.block_on(self.document(session, &path, &blob.digest, blob.size)))?;
        Ok(document.bytes)
    }

    /// A blob of any size to `path`, going on from what is there.
    pub fn download(&self, blob: &Blob, path: &Path, stop: &AtomicBool) -> Result<(), ImageError> {
        let (patience, progress) = (self.sources.access.patience, self.sources.progress);
        let download = Download { blob, path, patience, progress, stop };
        self.each(|session| self.runtime.block_on(download.run(&self.http, session)))
    }

    /// Asks one after the other until one has it; the error is that of the last.
    fn each<T>(&self, ask: impl Fn(&Session) -> Result<T, ImageError>) -> Result<T, ImageError> {
        let mut sessions = self.sources.sessions.iter().peekable();
        while let Some(session) = sessions.next() {
            match (ask(session), sessions.peek()) {
                (Err(ImageError::Registry { registry, problem, .. }), Some(next)) => {
                    let next = next.host();
                    self.sources.progress.note(&format!("{registry}: {problem}; asking {next}"));
                }
                (done, _) => return done,
            }
        }
        Err(ImageError::Registry {
            registry: String::new(),
            problem: "there is nobody to ask".to_owned(),
            hint: String::new(),
        })
    }

    async fn document(
        &self,
        session: &Session,
        path: &str,
        digest: &Digest,
        limit: u64,
    ) -> Result<Document, ImageError> {
        let patience = self.sources.access.patience;
        let mut tries = 0;
        loop {
            tries += 1;
            let (why, wait) = match self.attempt(session, path, digest, limit).await {
                Ok(document) => return Ok(document),
                Err(Trouble::Final(error)) => return Err(error),
                Err(Trouble::Unreachable(why)) => {
                    return Err(session.error(
                        format!("it cannot be reached ({why})"),
                        "see that its name and port are right and that the network is up",
                    ));
                }
                Err(Trouble::Passing(why, wait)) => (why, wait),
                Err(Trouble::NotTls) => ("it stopped speaking TLS".to_owned(), None),
            };
            if tries >= patience.attempts {
                return Err(session.error(format!("{why}; tried {tries} times"), "try again later"));
            }
            tokio::time::sleep(wait.unwrap_or_default().max(patience.pause(tries))).await;
        }
    }

    async fn attempt(
        &self,
        session: &Session,
        path: &str,
        digest: &Digest,
        limit: u64,
    ) -> Result<Document, Trouble> {
        let mut response = session.get(&self.http, Ask { path, accept: ACCEPT, from: 0 }).await?;
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|t| t.to_str().ok());
        let media_type = media_type.and_then(|t| t.split(';').next()).unwrap_or_default().trim().to_owned();
        let bytes = self.http.read(response.body_mut(), limit).await?;
        if bytes.len() as u64 > limit {
            return Err(Trouble::Final(ImageError::Limit {
                what: format!("{path} of {}", session.host()),
                limit,
                unit: "bytes",
            }));
        }
        let found = Digest::of(&bytes);
        if found != *digest {
            return Err(Trouble::Final(session.error(
                format!("it answers {path} with content {found}; what it serves is damaged or was changed"),
                "try again, or pull from another registry or mirror",
            )));
        }
        Ok(Document { bytes, media_type })
    }
}
