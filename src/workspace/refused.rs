//! What may not enter a workspace, and what is said about it (WS.2, WS.3).

/// A limit by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitName {
    /// [`super::policy::Limits::files`].
    Files,
    /// [`super::policy::Limits::entries`].
    Entries,
    /// [`super::policy::Limits::total_bytes`].
    TotalBytes,
    /// [`super::policy::Limits::file_bytes`].
    FileBytes,
    /// [`super::policy::Limits::components`].
    Components,
    /// Longest file name, 255 bytes (NAME_MAX in limits.h(0p)).
    NameBytes,
}

/// A file that is neither regular, a directory nor a symlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A type that the system does not name.
    Unknown,
}

/// Why a path is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A symbolic link.
    Symlink,
    /// A regular file with more than one name.
    Hardlink {
        /// Its link count.
        links: u64,
    },
    /// A pipe, socket or device.
    Special(Special),
    /// It would lead out of the tree.
    Traversal,
    /// Its name is one with another by case folding or Unicode normalisation.
    Collision {
        /// The other path, [`super::policy::printable`].
        twin: String,
    },
    /// The name is not UTF-8.
    NotUtf8,
    /// The name holds a control character other than tab.
    ControlCharacter,
    /// The system would not let it be read.
    Unreadable {
        /// The system's error.
        error: String,
    },
    /// The system failed, which says nothing about the path.
    Fault {
        /// The system's error.
        error: String,
    },
    /// It changed, or was replaced, while it was read.
    Changed,
    /// It is an excluded name, which may not be made in a workspace.
    Excluded {
        /// The reason of the exclusion.
        reason: &'static str,
    },
    /// It is over a limit, or the first that is.
    Limit {
        /// Which limit.
        name: LimitName,
        /// The figure that was met.
        figure: u64,
        /// True when counting stopped at that figure.
        at_least: bool,
        /// The limit.
        limit: u64,
    },
}

/// A path that may not enter a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The path below the root, [`super::policy::printable`]; `.` for the root.
    pub path: String,
    /// Why.
    pub kind: Kind,
}

impl Refused {
    /// What the person can do about it, as an imperative clause.
    pub fn advice(&self) -> &'static str {
        match &self.kind {
            Kind::Symlink => "replace it with a copy of what it points to, or move it out of the project",
            Kind::Hardlink { .. } => "replace it with a copy of its own (cp it aside and mv it back)",
            Kind::Special(_) => "remove it or move it out of the project",
            Kind::Traversal => "give a path below the project's root",
            Kind::Collision { .. } => "rename one of the two",
            Kind::NotUtf8 => "rename it to a UTF-8 name",
            Kind::ControlCharacter => "rename it without control characters",
            Kind::Unreadable { .. } => "make it readable to you, or move it out of the project",
            Kind::Fault { .. } => "check the disk and the limit of open files, then try again",
            Kind::Changed => "stop what writes to the project and try again",
            Kind::Excluded { .. } => "use another name",
            Kind::Limit { name, .. } => match name {
                LimitName::Components | LimitName::NameBytes => "shorten the path",
                LimitName::FileBytes => "move large files out of the project, or split them",
                _ => "import a smaller directory of the project",
            },
        }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = &self.path;
        match &self.kind {
            Kind::Symlink => write!(f, "'{path}' is a symlink"),
            Kind::Hardlink { links } => write!(f, "'{path}' is a hardlink: the file has {links} names"),
            Kind::Special(special) => write!(f, "'{path}' is {}", special.noun()),
            Kind::Traversal => write!(f, "'{path}' leads out of the tree (traversal)"),
            Kind::Collision { twin } if twin == path => {
                write!(f, "'{path}' would be both a file and a directory")
            }
            Kind::Collision { twin } => {
                write!(f, "'{path}' and '{twin}' collide: they are one name where case or Unicode form ")?;
                write!(f, "is ignored (spelled '{}' and '{}')", ascii(path), ascii(twin))
            }
            Kind::NotUtf8 => write!(f, "the name '{path}' is not UTF-8"),
            Kind::ControlCharacter => write!(f, "the name '{path}' holds a control character"),
            Kind::Unreadable { error } => write!(f, "'{path}' is unreadable: {error}"),
            Kind::Fault { error } => write!(f, "'{path}' could not be read: {error}"),
            Kind::Changed => write!(f, "'{path}' changed while it was read"),
            Kind::Excluded { reason } => write!(f, "'{path}' is an excluded name ({reason})"),
            Kind::Limit { name, figure, at_least, limit } => {
                let least = if *at_least { "at least " } else { "" };
                match name {
                    LimitName::Files => {
                        write!(
                            f,
                            "the tree holds {least}{figure} files; the limit is {limit}, passed at '{path}'"
                        )
                    }
                    LimitName::Entries => write!(
                        f,
                        "the tree holds {least}{figure} entries; the limit is {limit}, passed in '{path}'"
                    ),
                    LimitName::TotalBytes => write!(
                        f,
                        "the tree holds {least}{figure} bytes; the limit is {limit}, passed at '{path}'"
                    ),
                    LimitName::FileBytes => {
                        write!(f, "'{path}' has {figure} bytes; the limit for one file is {limit}")
                    }
                    LimitName::Components => {
                        write!(f, "'{path}' has {least}{figure} path components; the limit is {limit}")
                    }
                    LimitName::NameBytes => {
                        write!(f, "a name in '{path}' has {figure} bytes; the limit is {limit}")
                    }
                }
            }
        }
    }
}

/// Spells what is not ASCII, so that twins that look alike can be told apart.
fn ascii(path: &str) -> String {
    let spell = |c: char| if c.is_ascii() { c.to_string() } else { c.escape_default().to_string() };
    path.chars().map(spell).collect()
}

impl Special {
    fn noun(self) -> &'static str {
        match self {
            Self::Fifo => "a FIFO (named pipe)",
            Self::Socket => "a socket",
            Self::CharacterDevice => "a character device",
            Self::BlockDevice => "a block device",
            Self::Unknown => "a special file of unknown type",
        }
    }
}

/// The refused paths of one walk: the first [`Refusals::LISTED`], and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    listed: Vec<Refused>,
    total: u64,
    /// Path and error of the first [`Kind::Fault`], listed or not.
    fault: Option<(String, String)>,
}

impl Refusals {
    /// Most paths that are listed.
    pub const LISTED: usize = 20;

    /// Adds one.
    pub fn push(&mut self, path: impl Into<String>, kind: Kind) {
        let path = path.into();
        self.total += 1;
        if let (Kind::Fault { error }, None) = (&kind, &self.fault) {
            self.fault = Some((path.clone(), error.clone()));
        }
        if self.listed.len() < Self::LISTED {
            self.listed.push(Refused { path, kind });
        }
    }

    /// Path and error of the first that was refused because the system failed.
    pub fn fault(&self) -> Option<(&str, &str)> {
        self.fault.as_ref().map(|(path, error)| (path.as_str(), error.as_str()))
    }

    /// The paths that are listed, in the order in which they were met.
    pub fn listed(&self) -> &[Refused] {
        &self.listed
    }

    /// How many there are, listed or not.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// True when nothing was refused.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// True when every listed refusal is a limit.
    pub fn only_limits(&self) -> bool {
        self.listed.iter().all(|r| matches!(r.kind, Kind::Limit { .. }))
    }
}

impl std::fmt::Display for Refusals {
    /// One refusal a line, each with its advice.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, refused) in self.listed.iter().enumerate() {
            let line = if index == 0 { "" } else { "\n" };
            write!(f, "{line}{refused}; {}", refused.advice())?;
        }
        let more = self.total - self.listed.len() as u64;
        if more > 0 {
            write!(f, "\n{more} more are not listed")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ws2_the_list_is_bounded_and_says_how_many_there_are() {
        let mut refusals = Refusals::default();
        for i in 0..25 {
            refusals.push(format!("l{i}"), Kind::Symlink);
        }
        assert_eq!((refusals.listed().len(), refusals.total()), (20, 25));
        assert!(refusals.to_string().ends_with("5 more are not listed"));
    }
}
