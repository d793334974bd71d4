//! One layer as a stream: a thread decompresses and hashes while the caller unpacks.

use super::blob::{CHUNK, open_regular};
use super::error::ImageError;
use super::resolve::{Compression, Layer};
use crate::domain::digest::Digest;
use flate2::read::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Largest window of a zstd frame, as a power of two: 32 MiB. Usual levels write at most 8 MiB, which
/// RFC 8878 (3.1.1.1.2) has every decoder take.
const ZSTD_WINDOW_LOG: u32 = 25;
/// Chunks that may wait between the two threads.
const AHEAD: usize = 16;

/// Uncompressed bytes that an image may still have.
#[derive(Debug)]
pub(super) struct Budget {
    pub limit: u64,
    pub left: u64,
}

impl Budget {
    /// Takes `bytes` of it, for a layer.
    pub fn take(&mut self, bytes: u64, layer: &Digest) -> Result<(), ImageError> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| too_large(layer, self.limit))?;
        Ok(())
    }
}

fn too_large(layer: &Digest, limit: u64) -> ImageError {
    ImageError::Limit { what: format!("the unpacked image, at layer {layer},"), limit, unit: "bytes" }
}

/// The uncompressed layer as the unpacking side reads it. Ends early if decompression fails, which
/// [`unpack`] then reports.
pub(super) struct Chunks {
    from: Receiver<Vec<u8>>,
    chunk: Vec<u8>,
    at: usize,
}

impl Read for Chunks {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.chunk.len() {
            match self.from.recv() {
                Ok(chunk) => (self.chunk, self.at) = (chunk, 0),
                Err(_) => return Ok(0),
            }
        }
        let n = self.chunk.get(self.at..).unwrap_or_default().read(buf)?;
        self.at += n;
        Ok(n)
    }
}

enum Stop {
    Decode(std::io::Error),
    TooLarge,
    /// The unpacking side has failed; its error counts.
    Unheard,
}

/// Hands the uncompressed bytes of the (already verified) blob at `path` to `consume`, then compares
/// their digest with the layer's diff_id.
pub(super) fn unpack(
    path: &Path,
    layer: &Layer,
    budget: &mut Budget,
    consume: impl FnOnce(&mut Chunks) -> Result<(), ImageError>,
) -> Result<(), ImageError> {
    let file = open_regular(path)?;
    let bad = |problem: String| ImageError::Layer { layer: layer.blob.digest.clone(), problem };
    let limit = budget.limit;
    let found = std::thread::scope(|scope| {
        let (to, from) = sync_channel(AHEAD);
        let decoder = std::thread::Builder::new()
            .name("layer".to_owned())
            .spawn_scoped(scope, move || match layer.compression {
                Compression::None => decode(file, &to, budget),
                Compression::Gzip => decode(MultiGzDecoder::new(file), &to, budget),
                Compression::Zstd => {
                    let mut frames = zstd::stream::read::Decoder::new(file).map_err(Stop::Decode)?;
                    frames.window_log_max(ZSTD_WINDOW_LOG).map_err(Stop::Decode)?;
                    decode(frames, &to, budget)
                }
            })
            .map_err(ImageError::io("start a thread to unpack", path))?;
        let mut chunks = Chunks { from, chunk: Vec::new(), at: 0 };
        // What follows the archive's end mark belongs to the digest all the same.
        let consumed = consume(&mut chunks).and_then(|()| {
            std::io::copy(&mut chunks, &mut std::io::sink()).map(|_| ()).map_err(|e| bad(e.to_string()))
        });
        drop(chunks);
        match decoder.join() {
            Ok(Ok(digest)) => consumed.map(|()| digest),
            Ok(Err(Stop::Unheard)) => consumed.and(Err(bad("its reader stopped before the end".to_owned()))),
            Ok(Err(Stop::Decode(e))) => Err(bad(format!("its compressed data is broken ({e})"))),
            Ok(Err(Stop::TooLarge)) => Err(too_large(&layer.blob.digest, limit)),
            Err(_) => Err(bad("its decompressor failed".to_owned())),
        }
    })?;
    if found == layer.diff_id {
        Ok(())
    } else {
        Err(ImageError::DiffId { layer: layer.blob.digest.clone(), expected: layer.diff_id.clone(), found })
    }
}

fn decode(mut from: impl Read, to: &SyncSender<Vec<u8>>, budget: &mut Budget) -> Result<Digest, Stop> {
    let mut hash = Sha256::new();
    loop {
        let mut chunk = vec![0; CHUNK];
        let n = match from.read(&mut chunk) {
            Ok(0) => return Ok(Digest::from_sha256(&hash.finalize())),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(Stop::Decode(e)),
        };
        chunk.truncate(n);
        budget.left = budget.left.checked_sub(n as u64).ok_or(Stop::TooLarge)?;
        hash.update(&chunk);
        to.send(chunk).map_err(|_| Stop::Unheard)?;
    }
}
