//! One blob into a file that outlives a broken download.
//!
//! `partial/<hex>` holds a prefix of the blob. It is hashed again before it is gone on with, so what a
//! crash or a liar left there costs a new download at most.

use super::super::blob::{Blob, CHUNK};
use super::super::error::ImageError;
use super::access::{Patience, Progress};
use super::http::{Http, Trouble};
use super::session::{Ask, Session};
use crate::domain::digest::Digest;
use hyper::StatusCode;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Times that a download may break off in all.
const BREAKS: u32 = 100;
/// Bytes between two reports.
const STEP: u64 = 256 * 1024;

/// A blob on its way.
pub(super) struct Download<'a> {
    pub blob: &'a Blob,
    pub path: &'a Path,
    pub patience: Patience,
    pub progress: &'a dyn Progress,
    /// Set when nobody waits for it any more.
    pub stop: &'a AtomicBool,
}

/// The prefix that is here, and its hash so far.
struct Part {
    file: File,
    hash: Sha256,
    at: u64,
}

impl Part {
    fn open(path: &Path, most: u64) -> Result<Self, ImageError> {
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(path)
            .map_err(ImageError::io("open", path))?;
        let (mut hash, mut at, mut chunk) = (Sha256::new(), 0u64, vec![0; CHUNK]);
        let read = |e| ImageError::io("read", path)(e);
        while at <= most {
            let n = file.read(&mut chunk).map_err(read)?;
            if n == 0 {
                return Ok(Self { file, hash, at });
            }
            hash.update(chunk.get(..n).unwrap_or_default());
            at += n as u64;
        }
        let mut part = Self { file, hash, at };
        part.restart(path)?;
        Ok(part)
    }

    fn restart(&mut self, path: &Path) -> Result<(), ImageError> {
        self.file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .map_err(ImageError::io("truncate", path))?;
        (self.hash, self.at) = (Sha256::new(), 0);
        Ok(())
    }

    fn digest(&self) -> Digest {
        Digest::from_sha256(&self.hash.clone().finalize())
    }
}

impl Download<'_> {
    /// Sees that all of the blob, verified, lies at the path.
    pub async fn run(&self, http: &Http, session: &Session) -> Result<(), ImageError> {
        let (digest, size) = (&self.blob.digest, self.blob.size);
        let mut part = Part::open(self.path, size)?;
        let found_here = part.at > 0;
        self.progress.layer(digest, part.at, size);
        self.fill(http, session, &mut part).await?;
        if part.digest() != *digest && found_here {
            // What was here may have been the bad part.
            part.restart(self.path)?;
            self.fill(http, session, &mut part).await?;
        }
        let found = part.digest();
        if found == *digest {
            self.progress.done(digest, size);
            return Ok(());
        }
        part.restart(self.path)?;
        Err(session.error(
            format!("it sent blob {digest} with content {found}; what it serves is damaged or was changed"),
            "try again, or pull from another registry or mirror",
        ))
    }

    /// Appends until the size is reached.
    async fn fill(&self, http: &Http, session: &Session, part: &mut Part) -> Result<(), ImageError> {
        let (mut tries, mut all) = (0, 0);
        while part.at < self.blob.size {
            let before = part.at;
            let (why, wait) = match self.attempt(http, session, part).await {
                Ok(()) => continue,
                Err(Trouble::Final(error)) => return Err(error),
                Err(Trouble::Passing(why, wait)) => (why, wait),
                Err(Trouble::Unreachable(why)) => (why, None),
                Err(Trouble::NotTls) => ("it stopped speaking TLS".to_owned(), None),
            };
            (tries, all) = (if part.at > before { 1 } else { tries + 1 }, all + 1);
            if tries >= self.patience.attempts || all >= BREAKS {
                return Err(session.error(
                    format!(
                        "blob {} broke off at byte {} of {}: {why}",
                        self.blob.digest, part.at, self.blob.size
                    ),
                    "try again: the pull goes on from there",
                ));
            }
            let pause = wait.unwrap_or_default().max(self.patience.pause(tries));
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// One request. On an error the part may have grown.
    async fn attempt(&self, http: &Http, session: &Session, part: &mut Part) -> Result<(), Trouble> {
        let path = format!("blobs/{}", self.blob.digest);
        let ask = Ask { path: &path, accept: "*/*", from: part.at };
        let mut response = session.get(http, ask).await?;
        if part.at > 0 && !goes_on(response.status(), response.headers(), part.at, self.blob.size) {
            // Also after a 416: what is here is then worth nothing.
            part.restart(self.path).map_err(Trouble::Final)?;
            if response.status() != StatusCode::OK {
                return Err(Trouble::Passing("it does not go on from where it broke off".to_owned(), None));
            }
        }
        let wrong_size = |found: &str| {
            Trouble::Final(session.error(
                format!(
                    "blob {} has {found} bytes, its descriptor says {}",
                    self.blob.digest, self.blob.size
                ),
                "the image is damaged there: pull from another registry or mirror",
            ))
        };
        if let Some(length) = length(response.headers())
            && length != self.blob.size - part.at
        {
            return Err(wrong_size(&(part.at.saturating_add(length)).to_string()));
        }
        let mut told = part.at;
        while let Some(piece) = http.next(response.body_mut()).await? {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Trouble::Final(session.error("the pull has failed already", "")));
            }
            if piece.len() as u64 > self.blob.size - part.at {
                return Err(wrong_size("more"));
            }
            part.file.write_all(&piece).map_err(|e| Trouble::Final(ImageError::io("write", self.path)(e)))?;
            part.hash.update(&piece);
            part.at += piece.len() as u64;
            if part.at - told >= STEP {
                told = part.at;
                self.progress.layer(&self.blob.digest, part.at, self.blob.size);
            }
        }
        if part.at < self.blob.size {
            return Err(Trouble::Passing("it ended early".to_owned(), None));
        }
        Ok(())
    }
}

/// Whether an answer is the rest from `at` on (RFC 9110, 14.4).
fn goes_on(status: StatusCode, headers: &HeaderMap, at: u64, size: u64) -> bool {
    let range = headers.get(CONTENT_RANGE).and_then(|r| r.to_str().ok());
    status == StatusCode::PARTIAL_CONTENT
        && range.is_some_and(|r| {
            r == format!("bytes {at}-{}/{size}", size - 1) || r == format!("bytes {at}-{}/*", size - 1)
        })
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
