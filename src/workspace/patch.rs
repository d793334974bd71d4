//! Planning a patch: a request and a published tree become the next tree, or nothing (FT.2).
//!
//! ```text
//!  revision ─▶ each file: path, once, hash, change ─▶ the whole tree by the rules of an import ─▶ TreeChange
//! ```
//! Nothing here writes. Contents are asked for one file at a time, and only for files with edits.

use super::admission;
use super::edit::{self, Misfit};
use super::exclusion;
use super::policy::Limits;
use super::problem::{Problem, Problems, by_itself};
use super::refused::{Kind, Refused};
use crate::domain::change::{Base, TreeChange};
use crate::domain::digest::Digest;
use crate::domain::files::request::{Edit, FilePatch, Patch};
use crate::domain::files::shown;
use crate::domain::manifest::{FileEntry, TreeManifest};
use crate::domain::refusal::{Code, Refusal};
use crate::domain::relpath::RelPath;
use std::collections::{BTreeMap, BTreeSet};

/// A published revision that a patch is made from, and how the content of one of its files is had.
pub struct Published<'a, R> {
    /// Its number and digest.
    pub base: Base,
    /// What it holds.
    pub tree: &'a TreeManifest,
    /// Gives the content of a file of `tree`.
    pub read: R,
}

/// Plans a patch.
///
/// # Errors
/// `stale_revision`, `invalid`, `patch_refused` or `limit_exceeded`, naming each file (up to a bound) and
/// the limit, or what `read` refuses. Nothing is changed then.
pub fn plan<R>(from: &Published<'_, R>, patch: &Patch, limits: &Limits) -> Result<TreeChange, Refusal>
where
    R: Fn(&FileEntry) -> Result<Vec<u8>, Refusal>,
{
    let most = limits.files.saturating_mul(2);
    if patch.files.len() as u64 > most {
        return Err(crowded(patch.files.len(), most));
    }
    if patch.revision != from.base.revision {
        return Err(stale(from, patch));
    }
    let files = from.tree.files().iter().map(|file| (file.path.clone(), file.clone()));
    let mut next = Next { files: files.collect(), contents: BTreeMap::new(), named: BTreeSet::new() };
    let mut problems = Problems::default();
    for file in &patch.files {
        match next.change(from, file, limits)? {
            Ok(()) => {}
            Err(problem) => problems.push(problem),
        }
    }
    let target = next.tree(from.tree);
    let refused = admission::judge(&target, limits);
    if problems.is_empty() {
        problems = Problems::of(&refused);
    } else {
        // Without the files that do not fit, the tree as a whole says nothing; what one name or one file
        // may not be is true by itself.
        refused
            .listed()
            .iter()
            .filter(|one| by_itself(&one.kind))
            .for_each(|one| problems.push(Problem::of(one)));
    }
    if problems.is_empty() && target.files() == from.tree.files() {
        let said = "the patch changes no file".to_owned();
        let hint = "nothing is left to do, or the patch lacks what is to be changed";
        problems.push(Problem { code: Code::PatchRefused, hint, said });
    }
    problems.check()?;
    Ok(TreeChange { base: from.base.clone(), written: next.written(from.tree), target })
}

/// The tree that comes to be.
struct Next {
    files: BTreeMap<RelPath, FileEntry>,
    contents: BTreeMap<RelPath, Vec<u8>>,
    named: BTreeSet<RelPath>,
}

impl Next {
    /// Makes the change of one file. The outer error ends the planning: a content that cannot be had.
    fn change<R>(
        &mut self,
        from: &Published<'_, R>,
        asked: &FilePatch,
        limits: &Limits,
    ) -> Result<Result<(), Problem>, Refusal>
    where
        R: Fn(&FileEntry) -> Result<Vec<u8>, Refusal>,
    {
        let name = shown(&asked.path);
        let invalid = |said: &str| Problem::invalid(format!("'{name}': {said}"));
        let unfit = |said: &str| Problem::unfit(format!("'{name}' {said}"));
        let path = match RelPath::parse(&asked.path) {
            Ok(path) if path.is_root() => return Ok(Err(invalid("this is the root, and not a file"))),
            Ok(path) => path,
            Err(bad) => return Ok(Err(invalid(&bad.to_string()))),
        };
        if !self.named.insert(path.clone()) {
            return Ok(Err(invalid(TWICE)));
        }
        let change = match Change::of(asked) {
            Ok(change) => change,
            Err(said) => return Ok(Err(invalid(said))),
        };
        let current = match (from.tree.file(&path), &asked.expected_hash) {
            (None, None) => None,
            (None, Some(_)) => {
                let now = from.base.revision;
                if let Some(reason) = exclusion::of_path(&path) {
                    let excluded = Refused { path: name.clone(), kind: Kind::Excluded { reason } };
                    return Ok(Err(Problem::of(&excluded)));
                }
                let said =
                    if applied(from, asked)? { APPLIED } else { "; to create it, expect the hash null" };
                let said = format!("is not in revision {now}{said}");
                return Ok(Err(unfit(&said)));
            }
            (Some(file), Some(hash)) if file.content.as_str() == hash => Some(file),
            (Some(file), hash) => {
                let found = &file.content;
                let said = match hash {
                    None => format!("exists already, with the hash {found}"),
                    Some(hash) if Digest::parse(hash).is_ok() => {
                        format!("has the hash {found}; the patch expects {hash}")
                    }
                    Some(hash) => {
                        let said =
                            format!("'{}' is no hash: 'sha256:' and 64 lowercase hex digits", shown(hash));
                        return Ok(Err(invalid(&said)));
                    }
                };
                let done = if applied(from, asked)? { APPLIED } else { "" };
                return Ok(Err(unfit(&format!("{said}{done}"))));
            }
        };
        let mut executable = asked.executable.unwrap_or(current.is_some_and(|file| file.executable));
        let content = match (change, current) {
            (Change::Write(content), _) => content.as_bytes().to_vec(),
            (Change::Delete, Some(_)) => {
                self.files.remove(&path);
                return Ok(Ok(()));
            }
            (Change::Mode(wanted), Some(file)) => {
                executable = wanted;
                let entry = FileEntry { executable, ..file.clone() };
                self.files.insert(path, entry);
                return Ok(Ok(()));
            }
            (Change::Edit(edits), Some(file)) => {
                let Ok(text) = String::from_utf8((from.read)(file)?) else {
                    return Ok(Err(unfit("is not UTF-8 text; give its whole content, or delete it")));
                };
                match edit::apply(&text, edits, usize::try_from(limits.file_bytes).unwrap_or(usize::MAX)) {
                    Ok(text) => text.into_bytes(),
                    Err(Misfit::Text(said)) => return Ok(Err(unfit(&format!("does not fit: {said}")))),
                    Err(Misfit::Length(said)) => {
                        return Ok(Err(Problem::limit(format!("'{name}': {said}"))));
                    }
                }
            }
            (Change::Delete, None) => return Ok(Err(unfit("is not there to be deleted"))),
            (Change::Edit(_) | Change::Mode(_), None) => {
                return Ok(Err(invalid("a file is created by its whole content")));
            }
        };
        let entry = FileEntry {
            path: path.clone(),
            executable,
            length: content.len() as u64,
            content: Digest::of(&content),
        };
        self.files.insert(path.clone(), entry);
        self.contents.insert(path, content);
        Ok(Ok(()))
    }

    /// The whole tree: the files, and the directories of `before` that still hold nothing.
    fn tree(&self, before: &TreeManifest) -> TreeManifest {
        let filled = |dir: &RelPath| {
            let first = self.files.range(dir.clone()..).map(|(path, _)| path);
            // Names such as `a-b` sort between `a` and `a/b`.
            first
                .take_while(|path| path.as_str().starts_with(dir.as_str()))
                .any(|path| path != dir && path.is_within(dir))
        };
        let empty = before.empty_dirs().iter().filter(|dir| !filled(dir)).cloned().collect();
        TreeManifest::new(self.files.values().cloned().collect(), empty)
    }

    fn written(self, before: &TreeManifest) -> Vec<(RelPath, Vec<u8>)> {
        let known = |path: &RelPath| before.file(path).map(|file| &file.content);
        let files = &self.files;
        let is_new = |path: &RelPath| known(path) != files.get(path).map(|file| &file.content);
        self.contents.into_iter().filter(|(path, _)| is_new(path)).collect()
    }
}

/// What becomes of one file.
enum Change<'a> {
    Write(&'a str),
    Delete,
    Edit(&'a [Edit]),
    Mode(bool),
}

impl<'a> Change<'a> {
    fn of(asked: &'a FilePatch) -> Result<Self, &'static str> {
        match (&asked.content, &asked.edits, asked.executable) {
            (Some(_), Some(_), _) => Err("give content or edits, not both"),
            (Some(None), None, Some(_)) => Err("a deleted file has no executable bit"),
            (Some(None), None, None) => Ok(Self::Delete),
            (Some(Some(content)), None, _) => Ok(Self::Write(content)),
            (None, Some(edits), _) if edits.len() > MAX_EDITS => Err(TOO_MANY),
            (None, Some(edits), _) if !edits.is_empty() => Ok(Self::Edit(edits)),
            (None, _, Some(executable)) => Ok(Self::Mode(executable)),
            (None, _, None) => Err("nothing is asked for it: give content, edits or executable"),
        }
    }
}

/// Most edits of one file in one patch; each costs a search through the file.
const MAX_EDITS: usize = 100;
const TOO_MANY: &str = "it has more than 100 edits, the limit; give the whole content";
const TWICE: &str = "the patch names it twice";
const APPLIED: &str = "; the patch is already applied to it";

/// Whether one file already is what the patch makes of it: exactly, by content and by taking edits back.
fn applied<R>(from: &Published<'_, R>, asked: &FilePatch) -> Result<bool, Refusal>
where
    R: Fn(&FileEntry) -> Result<Vec<u8>, Refusal>,
{
    let file = RelPath::parse(&asked.path).ok().and_then(|path| from.tree.file(&path));
    let (Ok(change), expected) = (Change::of(asked), asked.expected_hash.as_deref()) else {
        return Ok(false);
    };
    let Some(file) = file else {
        let was_there = expected.is_some_and(|hash| Digest::parse(hash).is_ok());
        return Ok(matches!(change, Change::Delete) && was_there);
    };
    let mode = asked.executable.is_none_or(|wanted| wanted == file.executable);
    let content = match change {
        Change::Delete => false,
        Change::Write(content) => Digest::of(content.as_bytes()) == file.content,
        Change::Mode(_) => expected == Some(file.content.as_str()),
        Change::Edit(edits) => String::from_utf8((from.read)(file)?)
            .ok()
            .and_then(|text| edit::undo(&text, edits))
            .is_some_and(|before| expected == Some(Digest::of(before.as_bytes()).as_str())),
    };
    Ok(content && mode)
}

/// More files than a patch can need: a whole tree that is deleted, and another in its place.
fn crowded(files: usize, most: u64) -> Refusal {
    Refusal::new(
        Code::LimitExceeded,
        format!("nothing was changed: the patch names {files} files; the limit for one patch is {most}"),
        "make several patches of it, each for the revision that the last one made",
    )
}

fn stale<R>(from: &Published<'_, R>, patch: &Patch) -> Refusal
where
    R: Fn(&FileEntry) -> Result<Vec<u8>, Refusal>,
{
    let now = from.base.revision;
    let mut named = BTreeSet::new();
    if let Some(twice) = patch.files.iter().find(|file| !named.insert(file.path.as_str())) {
        return Refusal::new(
            Code::Invalid,
            format!("nothing was changed: '{}': {TWICE}", shown(&twice.path)),
            "correct the request and send it whole",
        );
    }
    // A content that cannot be had says nothing about what is applied.
    let done = patch.files.iter().all(|file| applied(from, file).unwrap_or(false)) && !patch.files.is_empty();
    let done = if done { "; the patch is already applied to every file that it names" } else { "" };
    Refusal::new(
        Code::StaleRevision,
        format!("the patch is for revision {}; the workspace is at {now}{done}", patch.revision),
        "read the files of the current revision, then send the patch for it",
    )
}
