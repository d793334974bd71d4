//! Logins out of files in the form of Docker's `config.json` (docker/cli, "config file"; containers-auth.json(5)):
//! `credHelpers`, `credsStore`, then `auths`.

use super::super::error::ImageError;
use super::helper;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of such a file.
const FILE_BYTES: u64 = 1024 * 1024;
/// What Docker Hub's login is kept under.
const HUB_KEY: &str = "https://index.docker.io/v1/";

/// Who the operator is to a registry. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Login {
    Password {
        user: String,
        secret: String,
    },
    /// A refresh token for the token server (distribution, "OAuth2 token authentication").
    Identity(String),
    /// A bearer token for the registry itself.
    Bearer(String),
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(…)")
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    auths: HashMap<String, Entry>,
    #[serde(rename = "credHelpers")]
    helpers: HashMap<String, String>,
    #[serde(rename = "credsStore")]
    store: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
    registrytoken: String,
}

/// The first login that one of `files` has for `repository` of the registry `host`, as images name it.
pub(super) fn find(
    files: &[PathBuf],
    host: &str,
    repository: &str,
    wait: Duration,
) -> Result<Option<Login>, ImageError> {
    for path in files {
        let Some(file) = read(path)? else { continue };
        if let Some(login) = in_file(path, &file, host, repository, wait)? {
            return Ok(Some(login));
        }
    }
    Ok(None)
}

fn read(path: &Path) -> Result<Option<File>, ImageError> {
    let mut text = Vec::new();
    let wrong = |problem: String| ImageError::Logins { path: path.to_owned(), problem };
    match std::fs::File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.and_then(|file| file.take(FILE_BYTES + 1).read_to_end(&mut text)),
    }
    .map_err(ImageError::io("read", path))?;
    if text.len() as u64 > FILE_BYTES {
        return Err(wrong(format!("is larger than {FILE_BYTES} bytes")));
    }
    // Where it is wrong is told, what it holds is not.
    serde_json::from_slice(&text).map(Some).map_err(|e| {
        wrong(format!("is not the JSON it should be (line {}, column {})", e.line(), e.column()))
    })
}

fn in_file(
    path: &Path,
    file: &File,
    host: &str,
    repository: &str,
    wait: Duration,
) -> Result<Option<Login>, ImageError> {
    let server = if host == "docker.io" { HUB_KEY } else { host };
    let own = file.helpers.iter().find(|(key, _)| fits(key, host, repository).is_some());
    if let Some(name) = own.map(|(_, name)| name).or(file.store.as_ref())
        && let Some(login) = helper::get(name, server, wait)?
    {
        return Ok(Some(login));
    }
    let found = file
        .auths
        .iter()
        .filter_map(|(key, entry)| Some((fits(key, host, repository)?, entry)))
        .max_by_key(|(length, _)| *length);
    match found {
        Some((_, entry)) => login(entry).map_err(|problem| ImageError::Logins {
            path: path.to_owned(),
            problem: format!("has an entry for {host} that {problem}"),
        }),
        None => Ok(None),
    }
}

/// How much of the name a key fits; `None` when it is another's. A key is a host, a host and the
/// beginning of a repository's path, or an address of which only the host counts.
fn fits(key: &str, host: &str, repository: &str) -> Option<usize> {
    let bare = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://"));
    let (name, path) = match bare {
        Some(address) => (address.split('/').next().unwrap_or_default(), ""),
        None => key.split_once('/').unwrap_or((key, "")),
    };
    let hub = |h: &str| matches!(h, "docker.io" | "index.docker.io" | "registry-1.docker.io");
    if name != host && !(hub(name) && hub(host)) {
        return None;
    }
    // Docker wrote "host/v1/" once.
    let path = path.trim_end_matches('/');
    let path = if matches!(path, "v1" | "v2") { "" } else { path };
    let below = repository.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    (path.is_empty() || below).then_some(path.len())
}

fn login(entry: &Entry) -> Result<Option<Login>, &'static str> {
    if !entry.registrytoken.is_empty() {
        return Ok(Some(Login::Bearer(entry.registrytoken.clone())));
    }
    if !entry.identitytoken.is_empty() {
        return Ok(Some(Login::Identity(entry.identitytoken.clone())));
    }
    if entry.auth.is_empty() {
        let known = !entry.username.is_empty();
        return Ok(
            known.then(|| Login::Password { user: entry.username.clone(), secret: entry.password.clone() })
        );
    }
    let decoded = STANDARD.decode(entry.auth.trim()).map_err(|_| "is not base64")?;
    // Docker pads with NUL.
    let text = String::from_utf8(decoded).map_err(|_| "is not text")?;
    let (user, secret) = text.trim_end_matches('\0').split_once(':').ok_or("has no ':' after the user")?;
    Ok(Some(Login::Password { user: user.to_owned(), secret: secret.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(json: &str, host: &str, repository: &str) -> Option<Login> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        std::fs::write(&path, json).unwrap();
        find(&[dir.path().join("none.json"), path], host, repository, Duration::from_secs(5)).unwrap()
    }

    fn password(user: &str, secret: &str) -> Option<Login> {
        Some(Login::Password { user: user.into(), secret: secret.into() })
    }

    #[test]
    fn img3_the_entry_of_the_registry_is_found_whatever_its_spelling() {
        let auth = STANDARD.encode("me:pass:word");
        for (key, host) in [
            ("localhost:5000", "localhost:5000"),
            ("https://localhost:5000/v1/", "localhost:5000"),
            ("http://localhost:5000", "localhost:5000"),
            ("https://index.docker.io/v1/", "docker.io"),
            ("docker.io", "docker.io"),
            ("registry.example/team", "registry.example"),
        ] {
            let json = format!(r#"{{"auths":{{"{key}":{{"auth":"{auth}"}},"other.example":{{}}}}}}"#);
            assert_eq!(at(&json, host, "team/app"), password("me", "pass:word"), "{key}");
            assert_eq!(at(&json, "elsewhere.example", "team/app"), None);
            assert_eq!(at(&json, "localhost", "team/app"), None, "a port is part of the name");
        }
    }

    #[test]
    fn img3_the_longest_namespace_counts_and_a_neighbour_has_none() {
        let entry = |user: &str| format!(r#"{{"auth":"{}"}}"#, STANDARD.encode(format!("{user}:x")));
        let json = format!(
            r#"{{"auths":{{"r.example":{},"r.example/team":{},"r.example/team/app":{}}}}}"#,
            entry("host"),
            entry("team"),
            entry("app")
        );
        for (repository, user) in [("team/app", "app"), ("team/other", "team"), ("teamwork/app", "host")] {
            assert_eq!(at(&json, "r.example", repository), password(user, "x"), "{repository}");
        }
    }

    #[test]
    fn img3_tokens_and_plain_fields_are_read_and_empty_entries_are_none() {
        let of = |entry: &str| at(&format!(r#"{{"auths":{{"h":{entry}}}}}"#), "h", "a");
        assert_eq!(of(r#"{"identitytoken":"i"}"#), Some(Login::Identity("i".into())));
        assert_eq!(of(r#"{"registrytoken":"r"}"#), Some(Login::Bearer("r".into())));
        assert_eq!(of(r#"{"username":"u","password":"p"}"#), password("u", "p"));
        assert_eq!(of("{}"), None);
    }

    #[test]
    fn img3_a_broken_file_is_named_and_its_content_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        for text in
            [r#"{"auths":{"h":{"auth":"c2VjcmV0"}}}"#, r#"{"auths":{"h":{"auth":"s3cret!!"}}}"#, "{s3cret"]
        {
            std::fs::write(&path, text).unwrap();
            let error = find(std::slice::from_ref(&path), "h", "a", Duration::from_secs(5)).unwrap_err();
            let error = format!("{error} {error:?}");
            assert!(error.contains("config.json"), "{error}");
            assert!(!error.contains("s3cret") && !error.contains("secret"), "{error}");
        }
        let login = Login::Identity("s3cret".to_owned());
        assert!(!format!("{login:?}").contains("s3cret"));
    }
}
