//! One archive entry: what is read from its headers, how much of them is read, and why it is refused.

use super::error::{ImageError, path_text};
use crate::domain::digest::Digest;
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;
use tar::{Entry, Header};

/// Bytes of headers, long names and PAX records that one entry may have.
pub(super) const METADATA: u64 = 1024 * 1024;

/// Why an entry was not made.
pub(super) enum Problem {
    /// The image is at fault.
    Refused(String),
    /// The host or its disk is.
    Host(io::Error),
    /// A bound is exceeded.
    Limit(ImageError),
}

pub(super) type Done<T = ()> = Result<T, Problem>;

pub(super) fn refused<T>(problem: impl Into<String>) -> Done<T> {
    Err(Problem::Refused(problem.into()))
}

impl From<Errno> for Problem {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOTDIR => Self::Refused("lies below something that is not a directory".to_owned()),
            Errno::LOOP => Self::Refused("lies below symlinks that lead in a circle".to_owned()),
            Errno::NAMETOOLONG => Self::Refused("has a name longer than 255 bytes".to_owned()),
            other => Self::Host(other.into()),
        }
    }
}

pub(super) fn limit(what: &str, limit: u64, unit: &'static str) -> Problem {
    Problem::Limit(ImageError::Limit { what: what.to_owned(), limit, unit })
}

pub(super) fn named(problem: Problem, layer: &Digest, path: &[u8]) -> ImageError {
    let entry = path_text(path.get(..300).unwrap_or(path));
    match problem {
        Problem::Refused(problem) => ImageError::Entry { layer: layer.clone(), entry, problem },
        Problem::Host(source) => ImageError::Io { doing: "unpack", path: entry.into(), source },
        Problem::Limit(error) => error,
    }
}

/// Sparse files unpack to more than the stream holds, past its bound; image builders write none.
pub(super) fn refuse_sparse<R: Read>(entry: &mut Entry<'_, R>) -> Done {
    let mut sparse = entry.header().entry_type().is_gnu_sparse();
    if let Some(records) = entry.pax_extensions().map_err(Problem::Host)? {
        for record in records {
            match record {
                Ok(record) => sparse |= record.key_bytes().starts_with(b"GNU.sparse."),
                Err(_) => return refused("has PAX records that cannot be read"),
            }
        }
    }
    if sparse { refused("is a sparse file") } else { Ok(()) }
}

/// Owner, mode and time of an entry.
pub(super) struct Meta {
    pub uid: Uid,
    pub gid: Gid,
    pub mode: u32,
    pub mtime: i64,
}

impl Meta {
    pub fn of(header: &Header, mask: u32) -> Done<Self> {
        let number = |n: io::Result<u64>| match n.map(u32::try_from) {
            Ok(Ok(n)) if n != u32::MAX => Ok(n),
            _ => refused("has an owner that is no 32-bit number"),
        };
        let mode = header.mode().or_else(|_| refused("has a mode that is no number"))? & mask;
        let mtime = header.mtime().ok().and_then(|t| i64::try_from(t).ok()).unwrap_or(0);
        let (uid, gid) = (number(header.uid())?, number(header.gid())?);
        Ok(Self { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid), mode, mtime })
    }
}

/// A reader that gives no more than the allowance.
pub(super) struct Metered<R> {
    pub from: R,
    pub allowance: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.allowance.get()).unwrap_or(usize::MAX);
        if left == 0 && !buf.is_empty() {
            return Err(io::Error::other("an entry's name and PAX records exceed the limit of 1 MiB"));
        }
        let most = buf.len().min(left);
        let n = self.from.read(buf.get_mut(..most).unwrap_or_default())?;
        self.allowance.set(self.allowance.get() - n as u64);
        Ok(n)
    }
}
