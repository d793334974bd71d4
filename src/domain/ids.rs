//! Identifiers. Each is ours, chosen and journaled before anything bears it, so that recovery can
//! find a container, a cgroup or a run directory by name.

use serde::{Deserialize, Serialize};

/// A string that is not a well-formed id of its kind.
#[derive(Debug, thiserror::Error)]
#[error("'{text}' is not a {kind}: {rule}")]
pub struct BadId {
    text: String,
    kind: &'static str,
    rule: &'static str,
}

const RULE: &str = "expected its prefix and 32 lowercase hex digits";

macro_rules! text_form {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                Self::parse(text)
            }
        }
    };
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Makes a fresh, time-ordered id (UUID version 7).
            pub fn fresh() -> Self {
                Self(format!(concat!($prefix, "{}"), uuid::Uuid::now_v7().simple()))
            }

            /// Parses the text form.
            ///
            /// # Errors
            /// [`BadId`] when the prefix or the digits are off.
            pub fn parse(text: &str) -> Result<Self, BadId> {
                let ok = text.strip_prefix($prefix).is_some_and(|d| {
                    d.len() == 32 && d.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
                });
                if ok {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(BadId { text: text.chars().take(80).collect(), kind: $kind, rule: RULE })
                }
            }

            /// The text form.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        text_form!($name);
    };
}

id!(/** A session. */ SessionId, "ses-", "session id");
id!(/** A workspace: stable while its revisions change. */ WorkspaceId, "ws-", "workspace id");
id!(/** One intended execution of one command. */ RunId, "run-", "run id");
id!(/** A container; also the name of its cgroup. */ ContainerId, "sal-", "container id");
id!(/** The one launch attempt of a run. */ ExecId, "exe-", "exec id");
id!(/** One intended publication of one revision; also names what is staged for it. */ ApplicationId, "app-", "application id");

macro_rules! key {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Longest text, in bytes.
            pub const MAX: usize = 128;

            /// Parses the text form.
            ///
            /// # Errors
            /// [`BadId`] when it is empty, too long or not printable ASCII.
            pub fn parse(text: &str) -> Result<Self, BadId> {
                let printable = text.bytes().all(|b| b.is_ascii_graphic());
                if !text.is_empty() && text.len() <= Self::MAX && printable {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(BadId {
                        text: text.chars().filter(|c| !c.is_control()).take(80).collect(),
                        kind: $kind,
                        rule: "expected 1 to 128 printable ASCII characters without spaces",
                    })
                }
            }

            /// The text form.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        text_form!($name);
    };
}

key!(/** A session-scoped key that makes a start idempotent (CMD.2): 1 to 128 printable ASCII characters without a space. */ StepKey, "step key");
key!(/** A session-scoped id of a tool call, whose receipt answers a repeat (FT.3): the same form as a step key. */ CallId, "call id");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_refuse_foreign_forms() {
        let run = RunId::fresh();
        assert_eq!(RunId::parse(run.as_str()).unwrap(), run);
        assert!(SessionId::parse(run.as_str()).is_err());
        assert!(RunId::parse("run-../../etc").is_err());
        assert!(StepKey::parse("a b").is_err() && StepKey::parse("").is_err());
        assert!(StepKey::parse(&"k".repeat(129)).is_err());
        assert!(CallId::parse(&"k".repeat(128)).is_ok() && CallId::parse("a\n").is_err());
        assert_eq!(StepKey::parse("test-v1").unwrap().as_str(), "test-v1");
        assert_eq!("toolu_01".parse::<CallId>().unwrap().to_string(), "toolu_01");
    }
}
