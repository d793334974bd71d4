//! Published contents in memory (FT.1): a file that is the one whose content was verified is not read and
//! hashed again.
//!
//! ```text
//!  stat of the name ─▶ as when it was verified, long after its last change? ─ yes ─▶ the verified bytes
//!                                                                        └─ no ──▶ read, hash, remember
//! ```
//! What is given is always what was hashed, so the published bytes, whatever an editor does meanwhile. The
//! stat only decides how soon an editor's change is named: device, inode, size, mtime and ctime, which
//! nobody sets, tell one. A change within the file system's clock tick of the one before it would not
//! show, so a file is remembered only [`SETTLED`] after its last (git's "racily clean" entries). Stores
//! through a shared mapping that was written to before may not show until the kernel writes them back.

use super::beneath::{self, Stack};
use super::observe::ObserveError;
use super::{contents, published};
use crate::domain::digest::Digest;
use crate::domain::files::FileContent;
use crate::domain::manifest::FileEntry;
use crate::domain::relpath::RelPath;
use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The coarsest tick of a file system's times (FAT's); ext4, xfs and btrfs have the kernel's.
const SETTLED: Duration = Duration::from_secs(2);
/// Most revisions, since a tree of empty files has no bytes to be bounded by.
const ROOTS: usize = 64;

/// What was read of published revisions, bounded; the revision that was asked for longest ago goes first.
#[derive(Debug)]
pub struct Remembered {
    /// Most bytes of contents.
    most: u64,
    /// By revision; the one that was asked for last is the last.
    roots: Mutex<Vec<Root>>,
}

#[derive(Debug)]
struct Root {
    path: PathBuf,
    files: Arc<Files>,
}

type Files = HashMap<RelPath, Known>;

#[derive(Clone, Debug)]
struct Known {
    seen: Seen,
    digest: Digest,
    content: Arc<[u8]>,
}

/// Which file it is, and its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    dev: u64,
    ino: u64,
    size: i64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl Seen {
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)] // Other widths on other systems.
    fn of(stat: &Stat) -> Self {
        Self {
            dev: stat.st_dev as u64,
            ino: stat.st_ino.into(),
            size: stat.st_size.into(),
            mtime: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }

    /// True when another change at `now` would show. A time to come says nothing.
    fn is_settled(&self, now: Duration) -> bool {
        let (Ok(secs), Ok(nanos)) = (u64::try_from(self.ctime.0), u32::try_from(self.ctime.1)) else {
            return false;
        };
        Duration::new(secs, nanos) + SETTLED <= now
    }
}

impl Remembered {
    /// Remembers at most `most` bytes of contents, of 64 revisions.
    pub fn new(most: u64) -> Self {
        Self { most, roots: Mutex::default() }
    }

    /// Gives what [`published::read`] gives.
    ///
    /// # Errors
    /// [`ObserveError`] when `root` itself cannot be opened.
    pub fn read(&self, root: &Path, files: &[FileEntry]) -> Result<Vec<FileContent>, ObserveError> {
        let open = beneath::revision(root).map_err(|errno| ObserveError::of(root, errno))?;
        let mut below = Stack::new(open);
        let known = self.of(root);
        let held: Vec<Option<Arc<[u8]>>> = files
            .iter()
            .map(|file| {
                let known = known.get(&file.path).filter(|known| known.digest == file.content)?;
                let now = stat(&mut below, &file.path).ok()?;
                (Seen::of(&now) == known.seen).then(|| known.content.clone())
            })
            .collect();
        drop(known);
        let missing = files.iter().zip(&held).filter(|(_, held)| held.is_none());
        let missing: Vec<&FileEntry> = missing.map(|(file, _)| file).collect();
        // Before the first is looked at: what changes from here on has a later ctime.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut read = contents::each(root, &missing)?.into_iter();
        let mut new = Vec::new();
        let all = files.iter().zip(held).map(|(file, held)| match (held, &mut read) {
            (Some(content), _) => Ok(content),
            (None, read) => {
                let (content, stat) = read
                    .next()
                    .unwrap_or_else(|| Err("it could not be read".to_owned()))
                    .map_err(|why| published::changed(&file.path, &why))?;
                let (seen, content) = (Seen::of(&stat), Arc::<[u8]>::from(content));
                if seen.is_settled(now) {
                    let (digest, content) = (file.content.clone(), content.clone());
                    new.push((file.path.clone(), Known { seen, digest, content }));
                }
                Ok(content)
            }
        });
        let all = all.collect();
        if !new.is_empty() {
            self.keep(root, new);
        }
        Ok(all)
    }

    fn of(&self, root: &Path) -> Arc<Files> {
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = roots.iter().position(|one| one.path == root) else { return Arc::default() };
        let found = roots.remove(at);
        let files = found.files.clone();
        roots.push(found);
        files
    }

    fn keep(&self, root: &Path, new: Vec<(RelPath, Known)>) {
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        let at = roots.iter().position(|one| one.path == root);
        let mut own = at
            .map(|at| roots.remove(at))
            .unwrap_or_else(|| Root { path: root.to_owned(), files: Arc::default() });
        Arc::make_mut(&mut own.files).extend(new);
        roots.push(own);
        while roots.len() > ROOTS || roots.iter().map(Root::bytes).sum::<u64>() > self.most {
            roots.remove(0);
        }
    }
}

impl Root {
    fn bytes(&self) -> u64 {
        self.files.values().map(|known| known.content.len() as u64).sum()
    }
}

/// What lies under the name of `path`, not followed.
fn stat(below: &mut Stack, path: &RelPath) -> Result<Stat, Errno> {
    let mut names: Vec<_> = path.as_str().split('/').collect();
    let name = names.pop().unwrap_or_default();
    rustix::fs::statat(below.find(&names)?, name, AtFlags::SYMLINK_NOFOLLOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    fn entry(path: &str, content: &[u8]) -> FileEntry {
        FileEntry {
            path: RelPath::parse(path).unwrap(),
            executable: false,
            length: content.len() as u64,
            content: Digest::of(content),
        }
    }

    /// Lets the changes of files be long ago: only a wait does, since nobody sets a ctime.
    fn settle() {
        std::thread::sleep(SETTLED + Duration::from_millis(100));
    }

    fn kept(remembered: &Remembered) -> Vec<(PathBuf, usize)> {
        let roots = remembered.roots.lock().unwrap();
        roots.iter().map(|root| (root.path.clone(), root.files.len())).collect()
    }

    #[test]
    fn ft1_a_settled_file_is_remembered_and_any_change_of_it_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("r1");
        fs::create_dir_all(root.join("d")).unwrap();
        let names = ["d/edited", "d/replaced", "fresh", "gone", "kept", "raced"];
        let files: Vec<FileEntry> = names.iter().map(|name| entry(name, b"as published")).collect();
        let at = |name: &str| root.join(name);
        names
            .iter()
            .filter(|name| **name != "fresh")
            .for_each(|name| fs::write(at(name), b"as published").unwrap());
        settle();
        fs::write(at("fresh"), b"as published").unwrap();
        let remembered = Remembered::new(1 << 20);
        let read = || remembered.read(&root, &files).unwrap();
        assert!(read().iter().all(|one| one.as_ref().is_ok_and(|bytes| **bytes == *b"as published")));
        assert_eq!(kept(&remembered), [(root.clone(), 5)], "all but the fresh one");

        // An edit that keeps the length and puts the mtime back, as an editor may; the ctime tells it.
        let before = fs::metadata(at("d/edited")).unwrap();
        fs::write(at("d/edited"), b"AS PUBLISHED").unwrap();
        let file = fs::File::options().write(true).open(at("d/edited")).unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
        let after = fs::metadata(at("d/edited")).unwrap();
        assert_eq!((before.mtime_nsec(), before.len()), (after.mtime_nsec(), after.len()));
        fs::write(at("d/other"), b"AS PUBLISHED").unwrap();
        fs::rename(at("d/other"), at("d/replaced")).unwrap();
        fs::write(at("fresh"), b"AS PUBLISHED").unwrap();
        fs::remove_file(at("gone")).unwrap();
        // The same bytes behind a symlink are not the file.
        fs::rename(at("raced"), dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), at("raced")).unwrap();
        for (file, one) in files.iter().zip(read()) {
            match file.path.as_str() {
                "kept" => assert_eq!(*one.unwrap(), *b"as published"),
                _ => assert!(one.unwrap_err().message.contains("was changed"), "{}", file.path),
            }
        }
    }

    #[test]
    fn ft1_a_remembered_file_is_not_read_and_answers_only_for_its_digest() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), b"one").unwrap();
        settle();
        let remembered = Remembered::new(1 << 20);
        let file = entry("a", b"one");
        let read =
            |file: &FileEntry| remembered.read(dir.path(), std::slice::from_ref(file)).unwrap().remove(0);
        assert_eq!(*read(&file).unwrap(), *b"one");
        // Other bytes are put in memory: what is answered from there was not read.
        let known = Known {
            content: b"memory".as_slice().into(),
            ..remembered.of(dir.path()).get(&file.path).unwrap().clone()
        };
        remembered.keep(dir.path(), vec![(file.path.clone(), known)]);
        assert_eq!(*read(&file).unwrap(), *b"memory");
        let other = entry("a", b"two");
        assert!(read(&other).unwrap_err().message.contains("holds something else"));
    }

    #[test]
    fn ft1_what_is_remembered_is_bounded_and_the_oldest_root_goes_first() {
        let known = |length: usize| Known {
            seen: Seen { dev: 0, ino: 0, size: 0, mtime: (0, 0), ctime: (0, 0) },
            digest: Digest::of(b""),
            content: vec![0; length].into(),
        };
        let remembered = Remembered::new(10);
        let keep = |root: &str, name: &str, length| {
            remembered.keep(Path::new(root), vec![(RelPath::parse(name).unwrap(), known(length))]);
        };
        let roots = || kept(&remembered).into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        keep("a", "x", 4);
        keep("b", "x", 4);
        keep("a", "y", 2);
        assert_eq!(roots(), [Path::new("b"), Path::new("a")]);
        remembered.of(Path::new("b"));
        keep("c", "x", 1);
        assert_eq!(roots(), [Path::new("b"), Path::new("c")]);
        keep("d", "x", 11);
        assert!(roots().is_empty(), "what is over the bound by itself is not kept");
        (0..=ROOTS).for_each(|n| keep(&n.to_string(), "empty", 0));
        assert_eq!((roots().len(), roots()[0].as_path()), (ROOTS, Path::new("1")));
    }

    #[test]
    fn ft1_a_change_is_settled_when_the_next_one_would_show() {
        let seen = |ctime| Seen { dev: 0, ino: 0, size: 0, mtime: (0, 0), ctime };
        let now = Duration::new(100, 5);
        for (ctime, want) in
            [((98, 5), true), ((98, 6), false), ((101, 0), false), ((-1, 0), false), ((0, 0), true)]
        {
            assert_eq!(seen(ctime).is_settled(now), want, "{ctime:?}");
        }
    }
}
