//! Safe relative paths: what may name a file or directory inside a workspace.

use serde::{Deserialize, Serialize};

/// Most components of a path (WS.3).
pub const MAX_COMPONENTS: usize = 16;
/// Most bytes of one component (Linux NAME_MAX).
pub const MAX_COMPONENT_BYTES: usize = 255;

/// A relative path of normal UTF-8 components joined by `/`; empty means the root itself.
///
/// Holds no `.` or `..`, no empty component, no NUL, no control character other than tab, and at
/// most [`MAX_COMPONENTS`] components.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelPath(String);

/// Why a text is no [`RelPath`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// Starts with `/`.
    #[error("the path is absolute; give it relative to the workspace root")]
    Absolute,
    /// Has `..`, `.` or an empty component.
    #[error("the path has an empty, '.' or '..' component; give it in its plain form")]
    Traversal,
    /// Has a NUL or a control character other than tab.
    #[error("the path holds a control character")]
    Control,
    /// More components than [`MAX_COMPONENTS`].
    #[error("the path has more than 16 components")]
    TooDeep,
    /// A component longer than [`MAX_COMPONENT_BYTES`].
    #[error("a name in the path is longer than 255 bytes")]
    NameTooLong,
}

/// Checks one file name by the rules of [`RelPath`].
///
/// # Errors
/// The [`BadPath`] that applies.
pub fn check_name(name: &str) -> Result<(), BadPath> {
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        return Err(BadPath::Traversal);
    }
    if name.chars().any(|c| c.is_control() && c != '\t') {
        return Err(BadPath::Control);
    }
    if name.len() > MAX_COMPONENT_BYTES {
        return Err(BadPath::NameTooLong);
    }
    Ok(())
}

impl RelPath {
    /// Parses a path; `""` and `"."` are the root.
    ///
    /// # Errors
    /// The [`BadPath`] that applies.
    pub fn parse(text: &str) -> Result<Self, BadPath> {
        if text.is_empty() || text == "." {
            return Ok(Self(String::new()));
        }
        if text.starts_with('/') {
            return Err(BadPath::Absolute);
        }
        text.split('/').try_for_each(check_name)?;
        if text.split('/').count() > MAX_COMPONENTS {
            return Err(BadPath::TooDeep);
        }
        Ok(Self(text.to_owned()))
    }

    /// The path below this one named `name`.
    ///
    /// # Errors
    /// The [`BadPath`] that applies.
    pub fn join(&self, name: &str) -> Result<Self, BadPath> {
        check_name(name)?;
        if self.0.is_empty() { Self::parse(name) } else { Self::parse(&format!("{}/{name}", self.0)) }
    }

    /// The text form; empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for `other` itself and for everything below it.
    pub fn is_within(&self, other: &Self) -> bool {
        let below = self.0.strip_prefix(&other.0);
        other.is_root() || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// True for the root itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Display for RelPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "." } else { &self.0 })
    }
}

impl TryFrom<String> for RelPath {
    type Error = BadPath;
    fn try_from(text: String) -> Result<Self, BadPath> {
        Self::parse(&text)
    }
}

impl From<RelPath> for String {
    fn from(path: RelPath) -> Self {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_relative_paths_pass() {
        assert_eq!(RelPath::parse("a/b.js").unwrap().as_str(), "a/b.js");
        assert!(RelPath::parse(".").unwrap().is_root());
        assert_eq!(RelPath::parse("/a"), Err(BadPath::Absolute));
        for bad in ["..", "a/..", "a//b", "./a", "a/./b", "a/"] {
            assert_eq!(RelPath::parse(bad), Err(BadPath::Traversal), "{bad}");
        }
        assert_eq!(RelPath::parse("a\u{1b}"), Err(BadPath::Control));
        assert_eq!(RelPath::parse("a\u{9b}"), Err(BadPath::Control));
        assert!(RelPath::parse("a\tb").is_ok());
        assert!(RelPath::parse(&vec!["d"; 16].join("/")).is_ok());
        assert_eq!(RelPath::parse(&vec!["d"; 17].join("/")), Err(BadPath::TooDeep));
        assert_eq!(RelPath::parse(&"n".repeat(256)), Err(BadPath::NameTooLong));
        let path = |text| RelPath::parse(text).unwrap();
        assert!(path("a/b").is_within(&path("a")) && path("a").is_within(&path("a")));
        assert!(path("a").is_within(&path("")) && !path("ab").is_within(&path("a")));
    }
}
