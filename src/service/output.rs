//! Reading kept output: bounded, by byte offset, never past what is stored (CMD.7).

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::Path;

/// Bytes stored in `path` so far, at most `most`; 0 when the file is not there yet. Blocks.
pub fn stored(path: &Path, most: u64) -> u64 {
    path.symlink_metadata().map_or(0, |meta| meta.len().min(most))
}

/// The output that is kept now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The bytes from the first.
    pub bytes: Vec<u8>,
    /// Most bytes that are ever kept.
    pub most: u64,
}

/// What is kept in `path` now, at most `most` bytes of it; a missing file holds nothing. Blocks.
///
/// # Errors
/// The system's error: then it is not known what the file holds.
pub fn found(path: &Path, most: u64) -> std::io::Result<Kept> {
    let limit = usize::try_from(most).unwrap_or(usize::MAX);
    Ok(Kept { bytes: read(path, 0, limit, stored(path, most))?, most })
}

/// Reads at most `limit` bytes from `offset`, none at or past `end`. A missing file is empty. Blocks.
///
/// # Errors
/// The system's error; a symlink in the file's place is one, whatever it leads to (A24).
pub fn read(path: &Path, offset: u64, limit: usize, end: u64) -> std::io::Result<Vec<u8>> {
    let want = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).min(limit);
    if want == 0 {
        return Ok(Vec::new());
    }
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut bytes = vec![0; want];
    let mut got = 0;
    while got < want {
        match file.read_at(&mut bytes[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(got);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cmd7_reads_are_bounded_by_limit_and_stored_end() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("out");
        assert_eq!((stored(&path, 9), read(&path, 0, 9, 9).unwrap()), (0, vec![]));
        std::fs::write(&path, b"0123456789").unwrap();
        assert_eq!(stored(&path, 4), 4);
        assert_eq!(read(&path, 2, 3, 10).unwrap(), b"234");
        assert_eq!(read(&path, 2, 30, 4).unwrap(), b"23");
        assert_eq!(read(&path, 8, 30, 99).unwrap(), b"89");
        assert!(read(&path, 10, 30, 10).unwrap().is_empty());
        assert!(read(&path, u64::MAX, 30, 10).unwrap().is_empty());
    }
}
