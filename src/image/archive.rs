//! A tar archive as a set of named files that are read where they lie: nothing is unpacked.
//!
//! One pass over the headers notes where each file's bytes are; what is asked for is then read from
//! there. Links inside the archive are resolved by name, never by the file system.

use super::blob::{Blob, open_regular};
use super::entry::{METADATA, Metered};
use super::error::{ImageError, path_text, printable};
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tar::{Archive, EntryType};

/// Members of an archive; an image of 128 layers has some 600.
const MEMBERS: usize = 16_384;
/// Links from one name to the next.
const LINKS: usize = 4;
/// Compressed archives by their first bytes (RFC 1952; RFC 8878; xz and bzip2 file formats).
const COMPRESSED: [&[u8]; 4] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh"];

enum Member {
    File { at: u64, size: u64 },
    Link(String),
}

/// The files of an archive.
pub(super) struct Members {
    file: File,
    path: PathBuf,
    names: HashMap<String, Member>,
}

impl Members {
    /// Reads the headers of the archive at `path`, a regular file.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let resolved = path.canonicalize().map_err(ImageError::io("open", path))?;
        let file = open_regular(&resolved)?;
        let names = index(&file, path)?;
        Ok(Self { file, path: path.to_owned(), names })
    }

    /// Whether there is a file of that name.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The length of a file.
    pub fn size(&self, name: &str) -> Option<u64> {
        self.find(name).map(|(_, size)| size)
    }

    /// A small file that no digest covers.
    pub fn document(&self, name: &str, limit: u64) -> Result<Vec<u8>, ImageError> {
        let (at, size) = self.find(name).ok_or_else(|| self.wrong(format!("holds no file '{name}'")))?;
        if size > limit {
            let what = format!("'{name}' in {}", self.path.display());
            return Err(ImageError::Limit { what, limit, unit: "bytes" });
        }
        let mut bytes = Vec::new();
        self.window(at, size).read_to_end(&mut bytes).map_err(ImageError::io("read", &self.path))?;
        if bytes.len() as u64 == size { Ok(bytes) } else { Err(self.wrong(format!("ends within '{name}'"))) }
    }

    /// Copies the file `name`, which must be `blob`, to `out`.
    pub fn blob(&self, blob: &Blob, name: &str, out: &mut impl Write) -> Result<(), ImageError> {
        let path = self.path.join(name);
        let Some((at, size)) = self.find(name) else {
            return Err(ImageError::BlobMissing { blob: blob.digest.clone(), path });
        };
        if size != blob.size {
            let (blob, expected) = (blob.digest.clone(), blob.size);
            return Err(ImageError::BlobSize { blob, path, expected, found: size });
        }
        blob.receive(self.window(at, size), &path, out)
    }

    /// An error that names the archive.
    pub fn wrong(&self, problem: String) -> ImageError {
        ImageError::Layout { path: self.path.clone(), problem: format!("{problem}; save the image again") }
    }

    fn window(&self, at: u64, left: u64) -> Window<'_> {
        Window { file: &self.file, at, left }
    }

    fn find(&self, name: &str) -> Option<(u64, u64)> {
        let mut name = name.to_owned();
        for _ in 0..=LINKS {
            match self.names.get(&name)? {
                Member::File { at, size } => return Some((*at, *size)),
                Member::Link(to) => name.clone_from(to),
            }
        }
        None
    }
}

/// A part of a file, read without moving its offset, so that several threads can.
struct Window<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Window<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.file.read_at(buf.get_mut(..most).unwrap_or_default(), self.at)?;
        self.at += n as u64;
        self.left -= n as u64;
        Ok(n)
    }
}

fn index(file: &File, path: &Path) -> Result<HashMap<String, Member>, ImageError> {
    let wrong = |problem: String| ImageError::Layout { path: path.to_owned(), problem };
    // The crate's errors hold bytes of the archive.
    let broken = |e: io::Error| {
        let why = printable(&e.to_string());
        wrong(format!("is not a sound tar archive ({why}); save the image again"))
    };
    let mut start = [0; 6];
    let n = file.read_at(&mut start, 0).map_err(ImageError::io("read", path))?;
    let start = start.get(..n).unwrap_or_default();
    if COMPRESSED.iter().any(|magic| start.starts_with(magic)) {
        return Err(wrong("is compressed; decompress it first (its layers may stay compressed)".to_owned()));
    }
    let mut names = HashMap::new();
    let allowance = Rc::new(Cell::new(METADATA));
    let mut archive = Archive::new(Metered { from: file, allowance: Rc::clone(&allowance) });
    let mut entries = archive.entries_with_seek().map_err(broken)?;
    loop {
        // The crate reads names and PAX records whole, so they are bounded here.
        allowance.set(METADATA);
        let Some(entry) = entries.next() else { return Ok(names) };
        let entry = entry.map_err(broken)?;
        let kind = entry.header().entry_type();
        if kind.is_dir() || kind == EntryType::XGlobalHeader {
            continue;
        }
        let raw = entry.path_bytes();
        let shown = path_text(raw.get(..200).unwrap_or(&raw));
        let name =
            plain(&raw, "").ok_or_else(|| wrong(format!("holds a file with the unsafe name '{shown}'")))?;
        let member = match kind {
            EntryType::Regular | EntryType::Continuous => {
                Member::File { at: entry.raw_file_position(), size: entry.size() }
            }
            EntryType::Symlink | EntryType::Link => {
                let target = entry.link_name_bytes().unwrap_or_default();
                let base = if kind == EntryType::Link {
                    ""
                } else {
                    name.rsplit_once('/').map_or("", |(dir, _)| dir)
                };
                let target = plain(&target, base)
                    .ok_or_else(|| wrong(format!("holds a link '{shown}' to outside of it")))?;
                Member::Link(target)
            }
            _ => return Err(wrong(format!("holds '{shown}', which is neither a file nor a link"))),
        };
        if names.insert(name, member).is_some() {
            return Err(wrong(format!("holds '{shown}' twice; save the image again")));
        }
        if names.len() > MEMBERS {
            return Err(ImageError::Limit {
                what: format!("the number of files in {}", path.display()),
                limit: MEMBERS as u64,
                unit: "files",
            });
        }
    }
}

/// The name `raw`, read from the directory `base`, with `.` and `..` resolved; `None` if it is no text,
/// is absolute, or leads out.
fn plain(raw: &[u8], base: &str) -> Option<String> {
    let text = std::str::from_utf8(raw).ok()?;
    if text.starts_with('/') || text.contains('\0') {
        return None;
    }
    let mut parts: Vec<&str> = base.split('/').filter(|p| !p.is_empty()).collect();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            // Within the archive's own links alone.
            ".." if !base.is_empty() => {
                parts.pop()?;
            }
            ".." => return None,
            name => parts.push(name),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

impl<R: Seek> Seek for Metered<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.from.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn img3_names_in_an_archive_are_resolved_by_name_alone() {
        for (raw, base, name) in [
            ("./a//b", "", Some("a/b")),
            ("../x/layer.tar", "y", Some("x/layer.tar")),
            ("../../etc/passwd", "y", None),
            ("../x", "", None),
            ("a/../../x", "", None),
            ("/etc/passwd", "y", None),
            ("", "", None),
            (".", "", None),
            ("a\0b", "", None),
        ] {
            assert_eq!(plain(raw.as_bytes(), base).as_deref(), name, "{raw}");
        }
        assert_eq!(plain(b"\xff", ""), None);
    }
}
