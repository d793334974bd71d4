//! What `salaam_files` is asked. Unknown fields are refused, so that a misspelt one is never dropped.
//!
//! The comments of the types and fields are what a model reads: [`super::schema`] is made from them.

use super::shown;
use crate::domain::digest::Digest;
use crate::domain::refusal::{Code, Refusal};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// Most bytes of a request: the largest tree (4 MiB) as JSON text, with room for escapes.
pub const MAX_REQUEST: usize = 8 * 1024 * 1024;

/// A request, named by its `operation`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case")]
pub enum Request {
    /// What the workspace is.
    Inspect(Inspect),
    /// Which files it holds.
    List(List),
    /// Where a text stands.
    Search(Search),
    /// A file's lines.
    Read(Read),
    /// A new revision.
    Patch(Patch),
}

/// Shows the workspace's revision and digest, its limits, and which names of the project were left out
/// and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Inspect {
    /// Goes on with the list of left-out names: the `next_cursor` of the answer before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cursor: Option<String>,
}

/// Lists files with their lengths and hashes, sorted by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// A directory or file; absent means everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub path: Option<String>,
    /// Goes on where the answer before was cut: its `next_cursor`. It holds within one revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cursor: Option<String>,
    /// Most files in the answer; at most 500, 200 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub limit: Option<u32>,
}

/// Finds lines that hold a text, literally and in its letter case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// The text: 1 to 1,024 bytes without a line feed.
    pub text: String,
    /// A directory or file to search in; absent means everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub path: Option<String>,
    /// Goes on where the answer before was cut: its `next_cursor`. It holds within one revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cursor: Option<String>,
    /// Most lines in the answer; at most 500, 200 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub limit: Option<u32>,
}

/// Reads lines of a UTF-8 file. Lines end at a line feed only; a carriage return or byte order mark stays
/// in its line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Read {
    /// The file.
    pub path: String,
    /// The first line, counted from 1; absent means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub line: Option<u64>,
    /// The first character of that line, counted from 1; absent means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub column: Option<u64>,
    /// Most lines in the answer; at most 2,000, which is also what absent means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub lines: Option<u64>,
}

/// Changes files. All of them become one new revision, or nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// The workspace's current revision.
    pub revision: u32,
    /// The files, each at most once.
    #[schema(inline)]
    pub files: Vec<FilePatch>,
}

/// What becomes of one file: `content`, `edits` or `executable` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FilePatch {
    /// The file.
    pub path: String,
    /// The hash of its current content, as list and read show it; null for a file to be created.
    #[serde(deserialize_with = "given")]
    #[schema(required)]
    pub expected_hash: Option<String>,
    /// The whole new content; null deletes the file.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub content: Option<Option<String>>,
    /// Changes to its content, each made to the result of those before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline, nullable = false)]
    pub edits: Option<Vec<Edit>>,
    /// Whether it may be executed; absent keeps it as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub executable: Option<bool>,
}

/// Replaces a text that the file holds exactly once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// The exact text, line feeds and carriage returns included.
    pub old: String,
    /// What takes its place; empty removes it.
    pub new: String,
}

/// A field that may be null but not absent.
fn given<'de, D: Deserializer<'de>>(field: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(field)
}

/// A field whose null says something else than its absence.
fn present<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(field).map(Some)
}

impl Request {
    /// The file that is read, or the directory to stay below.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::List(List { path, .. }) | Self::Search(Search { path, .. }) => path.as_deref(),
            Self::Read(Read { path, .. }) => Some(path),
            Self::Inspect(_) | Self::Patch(_) => None,
        }
    }

    /// Checks the length of a request in bytes.
    ///
    /// # Errors
    /// `limit_exceeded` past [`MAX_REQUEST`].
    pub fn check_length(length: usize) -> Result<(), Refusal> {
        if length <= MAX_REQUEST {
            return Ok(());
        }
        Err(Refusal::new(
            Code::LimitExceeded,
            format!("the request is larger than {MAX_REQUEST} bytes, the limit"),
            "send less at a time",
        ))
    }

    /// Parses a request. A string with a lone surrogate is refused, never replaced (FT.6).
    ///
    /// # Errors
    /// `invalid`, naming the field; `limit_exceeded` past [`MAX_REQUEST`].
    pub fn parse(json: &[u8]) -> Result<Self, Refusal> {
        Self::check_length(json.len())?;
        serde_json::from_slice(json).map_err(|bad| {
            let bad = bad.to_string();
            // As serde_json says of one half of a pair.
            let hint = if bad.contains("hex escape") {
                "a \\u escape of one half of a surrogate pair is no text; give both halves, or the character"
            } else {
                "GET /v1/tools describes it"
            };
            let message = format!("the request is not what salaam_files takes: {}", shown(&bad));
            Refusal::new(Code::Invalid, message, hint)
        })
    }
}

impl Patch {
    /// Digest of the patch in its canonical form: JSON with the fields in the order of these types, without
    /// white space and absent options. The same arguments have the same digest however they were spelled.
    pub fn digest(&self) -> Digest {
        // Only a map with keys that are no strings could fail; these types have none.
        Digest::of(&serde_json::to_vec(self).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> String {
        let refusal = Request::parse(json.as_bytes()).unwrap_err();
        assert_eq!(refusal.code, Code::Invalid, "{json}");
        refusal.message
    }

    #[test]
    fn ft2_absent_and_null_are_different_and_expected_hash_must_be_given() {
        let parse = |file: &str| {
            let json = format!(r#"{{"operation":"patch","revision":1,"files":[{file}]}}"#);
            Request::parse(json.as_bytes()).map(|request| match request {
                Request::Patch(patch) => patch.files[0].clone(),
                other => panic!("{other:?}"),
            })
        };
        let file = parse(r#"{"path":"a","expected_hash":null,"content":null}"#).unwrap();
        assert_eq!((file.expected_hash, file.content, file.edits), (None, Some(None), None));
        let file = parse(r#"{"path":"a","expected_hash":"h","executable":true}"#).unwrap();
        assert_eq!((file.content, file.executable), (None, Some(true)));
        let missing = parse(r#"{"path":"a","content":"x"}"#).unwrap_err().message;
        assert!(missing.contains("expected_hash"), "{missing}");
    }

    #[test]
    fn ft1_unknown_twice_given_and_missing_fields_are_refused_by_name() {
        for (json, named) in [
            (r#"{"operation":"inspect","all":true}"#, "all"),
            (r#"{"operation":"list","pth":"a"}"#, "pth"),
            (r#"{"operation":"search","text":"a","text":"b"}"#, "text"),
            (r#"{"operation":"read"}"#, "path"),
            (r#"{"operation":"write"}"#, "write"),
            (r#"{"path":"a"}"#, "operation"),
            (
                r#"{"operation":"patch","revision":1,"files":[{"path":"a","expected_hash":null,"text":""}]}"#,
                "text",
            ),
            (
                r#"{"operation":"patch","revision":1,"files":[{"path":"a","expected_hash":null,"edits":[{"old":"a","new":"b","all":1}]}]}"#,
                "all",
            ),
            (r#"{"operation":"patch","revision":-1,"files":[]}"#, "-1"),
        ] {
            let said = refused(json);
            assert!(said.contains(named), "{json}: {said}");
        }
        let long = format!(r#"{{"operation":"list","{}":1}}"#, "x".repeat(1 << 20));
        assert!(refused(&long).len() < 1_000);
        let large = vec![b' '; MAX_REQUEST + 1];
        assert_eq!(Request::parse(&large).unwrap_err().code, Code::LimitExceeded);
    }

    #[test]
    fn ft6_a_lone_surrogate_is_refused_and_a_pair_is_taken() {
        for bad in [r"\ud800", r"\udc00", r"x\ud83dx", r"\ud83d\ud83d", r"\udc4d\ud83d"] {
            for json in [
                format!(r#"{{"operation":"search","text":"{bad}"}}"#),
                format!(
                    r#"{{"operation":"patch","revision":1,"files":[{{"path":"a","expected_hash":null,"content":"{bad}"}}]}}"#
                ),
                format!(
                    r#"{{"operation":"patch","revision":1,"files":[{{"path":"a","expected_hash":"h","edits":[{{"old":"x","new":"{bad}"}}]}}]}}"#
                ),
                format!(r#"{{"operation":"read","path":"{bad}"}}"#),
            ] {
                refused(&json);
                let hint = Request::parse(json.as_bytes()).unwrap_err().hint;
                assert!(hint.contains("surrogate"), "{json}: {hint}");
            }
        }
        let pair = Request::parse(br#"{"operation":"search","text":"\ud83d\udc4d"}"#).unwrap();
        assert!(matches!(pair, Request::Search(search) if search.text == "\u{1f44d}"));
    }

    #[test]
    fn ft3_the_digest_knows_arguments_and_not_their_spelling() {
        let digest = |json: &str| match Request::parse(json.as_bytes()).unwrap() {
            Request::Patch(patch) => patch.digest(),
            other => panic!("{other:?}"),
        };
        let one = digest(
            r#"{"operation":"patch","revision":1,"files":[{"path":"é","expected_hash":null,"content":"x"}]}"#,
        );
        let same = r#"{ "files":[{"content":"x","expected_hash":null,"path":"\u00e9"}], "revision":1,
            "operation":"patch"}"#;
        assert_eq!(digest(same), one);
        for other in [
            r#"{"operation":"patch","revision":2,"files":[{"path":"é","expected_hash":null,"content":"x"}]}"#,
            r#"{"operation":"patch","revision":1,"files":[{"path":"é","expected_hash":null,"content":null}]}"#,
            r#"{"operation":"patch","revision":1,"files":[{"path":"é","expected_hash":null}]}"#,
        ] {
            assert_ne!(digest(other), one);
        }
    }
}
