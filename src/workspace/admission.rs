//! Whether a planned tree may become a revision: the rules of an import over a manifest (WS.3), for
//! patches and refreshes.

use super::exclusion;
use super::policy::{Limits, collision_key, printable};
use super::refused::{Kind, LimitName, Refusals};
use crate::domain::manifest::TreeManifest;
use crate::domain::relpath::RelPath;
use std::collections::{HashMap, HashSet};

/// Judges a whole tree: exclusions, collisions (a file where a directory is needed among them) and
/// every limit. An imported tree is always admitted.
pub fn judge(tree: &TreeManifest, limits: &Limits) -> Refusals {
    let mut judge = Judge {
        limits,
        refused: Refusals::default(),
        seen: HashMap::new(),
        twins: HashSet::new(),
        entries: 0,
    };
    let mut bytes = 0u64;
    for (index, file) in tree.files().iter().enumerate() {
        judge.path(&file.path, false);
        judge.limit(&file.path, LimitName::FileBytes, file.length, limits.file_bytes);
        if index as u64 == limits.files {
            judge.limit(&file.path, LimitName::Files, tree.files().len() as u64, limits.files);
        }
        let before = bytes;
        bytes = bytes.saturating_add(file.length);
        if before <= limits.total_bytes {
            let total = if bytes > limits.total_bytes { tree.total_bytes() } else { bytes };
            judge.limit(&file.path, LimitName::TotalBytes, total, limits.total_bytes);
        }
    }
    for directory in tree.empty_dirs() {
        judge.path(directory, true);
    }
    let entries = judge.entries;
    judge.limit(&RelPath::default(), LimitName::Entries, entries, limits.entries);
    judge.refused
}

struct Judge<'a> {
    limits: &'a Limits,
    refused: Refusals,
    /// By the keys of its components: how an entry is spelled, and whether it is a directory.
    seen: HashMap<String, (String, bool)>,
    /// Names that were refused as twins: once each, whatever lies below.
    twins: HashSet<String>,
    entries: u64,
}

impl Judge<'_> {
    fn path(&mut self, path: &RelPath, directory: bool) {
        if let Some(reason) = exclusion::of_path(path) {
            self.refuse(path, Kind::Excluded { reason });
        }
        let components = path.as_str().split('/').count();
        self.limit(path, LimitName::Components, components as u64, self.limits.components as u64);
        let ends = path.as_str().match_indices('/').map(|(end, _)| (end, true));
        let mut key = String::new();
        let mut start = 0;
        for (end, is_directory) in ends.chain([(path.as_str().len(), directory)]) {
            key.push_str(&collision_key(&path.as_str()[start..end]));
            let spelled = &path.as_str()[..end];
            match self.seen.get(&key) {
                None => {
                    self.entries += 1;
                    self.seen.insert(key.clone(), (spelled.to_owned(), is_directory));
                }
                Some((twin, twin_is_directory)) => {
                    if twin != spelled || !(is_directory && *twin_is_directory) {
                        if self.twins.insert(spelled.to_owned()) {
                            let twin = printable(twin.as_bytes());
                            self.refused.push(printable(spelled.as_bytes()), Kind::Collision { twin });
                        }
                        return;
                    }
                }
            }
            key.push('/');
            start = end + 1;
        }
    }

    fn limit(&mut self, path: &RelPath, name: LimitName, figure: u64, limit: u64) {
        if figure > limit {
            self.refuse(path, Kind::Limit { name, figure, at_least: false, limit });
        }
    }

    fn refuse(&mut self, path: &RelPath, kind: Kind) {
        self.refused.push(printable(path.to_string().as_bytes()), kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::digest::Digest;
    use crate::domain::manifest::FileEntry;

    fn tree(files: &[(&str, u64)]) -> TreeManifest {
        let entry = |(path, length): &(&str, u64)| FileEntry {
            path: RelPath::parse(path).unwrap(),
            executable: false,
            length: *length,
            content: Digest::of(b""),
        };
        TreeManifest::new(files.iter().map(entry).collect(), vec![])
    }

    fn kinds(files: &[(&str, u64)]) -> Vec<Kind> {
        judge(&tree(files), &Limits::fixed()).listed().iter().map(|r| r.kind.clone()).collect()
    }

    #[test]
    fn ws3_a_tree_at_its_limits_is_admitted_and_one_past_each_is_not() {
        let names: Vec<String> = (0..513).map(|i| format!("d{i}/f")).collect();
        let files = |n: usize, length| names[..n].iter().map(|n| (n.as_str(), length)).collect::<Vec<_>>();
        assert_eq!(kinds(&files(512, 8_192)), []);
        let only = |got: Vec<Kind>, want: LimitName, at: u64| {
            assert!(
                matches!(&got[..], [Kind::Limit { name, figure, .. }] if *name == want && *figure == at),
                "{got:?}"
            );
        };
        only(kinds(&files(513, 0)), LimitName::Files, 513);
        only(kinds(&files(511, 8_300)), LimitName::TotalBytes, 511 * 8_300);
        only(kinds(&[("a", 262_145)]), LimitName::FileBytes, 262_145);
        assert_eq!(kinds(&[("a", 262_144)]), []);
        let deep: Vec<String> =
            (0..180).map(|i| format!("{}/{i}", vec![i.to_string(); 12].join("/"))).collect();
        only(kinds(&deep.iter().map(|d| (d.as_str(), 0)).collect::<Vec<_>>()), LimitName::Entries, 180 * 13);
    }

    #[test]
    fn a19_twins_and_files_in_the_place_of_directories_are_refused() {
        let twin = |t: &str| vec![Kind::Collision { twin: t.to_owned() }];
        assert_eq!(kinds(&[("A/x", 0), ("a/y", 0)]), twin("A"));
        assert_eq!(kinds(&[("A/x", 0), ("a/y", 0), ("a/z", 0), ("a/z/b", 0)]), twin("A"), "once");
        assert_eq!(kinds(&[("a", 0), ("a/b", 0)]), twin("a"));
        assert_eq!(kinds(&[("\u{e9}", 0), ("e\u{301}", 0)]), twin("e\u{301}"));
        assert_eq!(kinds(&[("a/x", 0), ("a/y", 0), ("ab", 0)]), []);
    }

    #[test]
    fn a21_excluded_names_are_refused_in_any_case() {
        for path in [".GIT/config", "src/.Env", "a/Node_Modules/b.js"] {
            assert!(matches!(&kinds(&[(path, 0)])[..], [Kind::Excluded { .. }]), "{path}");
        }
    }
}
