//! What an import leaves out (WS.1), as data. An excluded name is never opened, whatever it is.
//!
//! Two lists are closed, version control and dependency folders: a wrong guess there takes source
//! away. The credential lists are wider, but hold only names that mean a credential by themselves:
//! `settings.xml` or `auth.json` are excluded in the directory that makes them one, not elsewhere.
//!
//! Of keys, `*.pem`, `*.key` and `*.crt` stay in, since they are as often certificates or the test
//! fixtures of a TLS server; the names and stores that can only be private are excluded. A public
//! `id_*.pub` is no secret.

use super::policy::collision_key;
use crate::domain::relpath::RelPath;

/// How a rule matches; the texts are [`collision_key`]s, so that `.GIT` and `.ſſh` match as well.
enum Match {
    /// The whole name.
    Name(&'static str),
    /// The start of the name.
    Prefix(&'static str),
    /// The end of the name, when something stands before it.
    Suffix(&'static str),
    /// The whole name, directly in a directory of the first name.
    In(&'static str, &'static str),
}

use Match::{In, Name, Prefix, Suffix};

const VERSION_CONTROL: &str = "version control metadata";
const SALAAM: &str = "Salaam metadata";
const DEPENDENCIES: &str = "dependency folder";
const BUILD: &str = "build or cache folder";
const ENVIRONMENT: &str = "environment file, may hold secrets";
const CREDENTIALS: &str = "credentials";
const PRIVATE_KEY: &str = "private key";

const RULES: &[(&str, &[Match])] = &[
    (VERSION_CONTROL, &[Name(".git"), Name(".hg"), Name(".svn"), Name(".jj")]),
    (SALAAM, &[Name(".salaam")]),
    (DEPENDENCIES, &[Name("node_modules"), Name("bower_components"), Name(".venv"), Name("venv")]),
    (
        BUILD,
        &[
            Name("__pycache__"),
            Name("target"),
            Name("dist"),
            Name("build"),
            Name("out"),
            Name(".next"),
            Name(".nuxt"),
            Name(".cache"),
            Name(".turbo"),
            Name(".parcel-cache"),
            Name("coverage"),
            Name(".nyc_output"),
        ],
    ),
    (ENVIRONMENT, &[Name(".env"), Prefix(".env."), Name(".envrc")]),
    (
        CREDENTIALS,
        &[
            // Directories.
            Name(".ssh"),
            Name(".aws"),
            Name(".gnupg"),
            Name(".docker"),
            Name(".kube"),
            Name(".azure"),
            Name(".gcloud"),
            Name(".oci"),
            Name(".aliyun"),
            Name(".bluemix"),
            Name(".ibmcloud"),
            Name(".password-store"),
            Name(".terraform.d"),
            In(".config", "gcloud"),
            In(".config", "gh"),
            In(".config", "hub"),
            In(".config", "op"),
            In(".config", "doctl"),
            In(".config", "rclone"),
            // Files of package managers.
            Name(".npmrc"),
            Name(".yarnrc"),
            Name(".yarnrc.yml"),
            Name(".pypirc"),
            Name("pip.conf"),
            In(".cargo", "credentials"),
            In(".cargo", "credentials.toml"),
            In(".gem", "credentials"),
            In(".m2", "settings.xml"),
            In(".m2", "settings-security.xml"),
            In(".gradle", "gradle.properties"),
            In(".composer", "auth.json"),
            // Files of version control and network tools.
            Name(".netrc"),
            Name("_netrc"),
            Name(".git-credentials"),
            In("git", "credentials"),
            Name(".htpasswd"),
            Name(".pgpass"),
            Name(".my.cnf"),
            Name(".mylogin.cnf"),
            // Files of clouds, containers and assistants.
            Name(".dockercfg"),
            Name(".dockerconfigjson"),
            In("containers", "auth.json"),
            Name("kubeconfig"),
            Name(".boto"),
            Name(".s3cfg"),
            Name(".terraformrc"),
            Name("terraform.rc"),
            Name(".vault-token"),
            Name(".databrickscfg"),
            Name("application_default_credentials.json"),
            Name(".credentials.json"),
            In(".codex", "auth.json"),
            Name("oauth_creds.json"),
        ],
    ),
    (
        PRIVATE_KEY,
        &[
            Name("id_rsa"),
            Name("id_dsa"),
            Name("id_ecdsa"),
            Name("id_ecdsa_sk"),
            Name("id_ed25519"),
            Name("id_ed25519_sk"),
            Name("id_xmss"),
            Name("ssh_host_rsa_key"),
            Name("ssh_host_dsa_key"),
            Name("ssh_host_ecdsa_key"),
            Name("ssh_host_ed25519_key"),
            Name("private.key"),
            Name("private.pem"),
            Name("private_key.pem"),
            Name("private-key.pem"),
            Name("privkey.pem"),
            Name("secring.gpg"),
            Suffix(".p12"),
            Suffix(".pfx"),
            Suffix(".jks"),
            Suffix(".keystore"),
            Suffix(".ppk"),
            Suffix(".kdbx"),
        ],
    ),
];

/// Gives the reason why `name` in the directory `parent` is left out, or `None` when it may enter.
///
/// `name` may hold anything: a name that is not UTF-8 is passed in its lossy form.
pub fn of_name(parent: &RelPath, name: &str) -> Option<&'static str> {
    let parent = parent.as_str().rsplit('/').next().unwrap_or_default();
    of_pair(&collision_key(parent), &collision_key(name))
}

/// Gives the reason why `path` is left out: its own name's, or that of a directory above it.
pub fn of_path(path: &RelPath) -> Option<&'static str> {
    let mut parent = String::new();
    for name in path.as_str().split('/') {
        let key = collision_key(name);
        if let Some(reason) = of_pair(&parent, &key) {
            return Some(reason);
        }
        parent = key;
    }
    None
}

fn of_pair(parent: &str, name: &str) -> Option<&'static str> {
    let matches = |rule: &Match| match rule {
        Name(text) => name == *text,
        Prefix(text) => name.starts_with(text),
        Suffix(text) => name.len() > text.len() && name.ends_with(text),
        In(directory, text) => name == *text && parent == *directory,
    };
    RULES.iter().find(|(_, rules)| rules.iter().any(matches)).map(|(reason, _)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<String> {
        RULES
            .iter()
            .flat_map(|(_, rules)| rules.iter())
            .map(|rule| match rule {
                Name(text) => (*text).to_owned(),
                Prefix(text) => format!("{text}local"),
                Suffix(text) => format!("store{text}"),
                In(directory, text) => format!("{directory}/{text}"),
            })
            .collect()
    }

    #[test]
    fn ws1_the_texts_of_the_rules_are_keys_themselves() {
        for example in examples() {
            assert_eq!(collision_key(&example), example);
        }
    }

    #[test]
    fn ws1_every_rule_matches_in_any_case_and_at_any_depth() {
        for example in examples() {
            for text in [example.clone(), example.to_uppercase(), format!("src/a/{example}")] {
                assert!(of_path(&RelPath::parse(&text).unwrap()).is_some(), "{text}");
            }
            let below = RelPath::parse(&format!("{example}/deep/file")).unwrap();
            assert!(of_path(&below).is_some(), "{below}");
        }
    }

    /// Every other letter in upper case, from the first on or from the second.
    fn odd(text: &str, first: usize) -> String {
        let letter = |(n, c): (usize, char)| if n % 2 == first { c.to_ascii_uppercase() } else { c };
        text.chars().enumerate().map(letter).collect()
    }

    #[test]
    fn i3_every_rule_keeps_a_name_of_any_case_out_of_a_patch_and_a_refresh() {
        use crate::domain::change::Base;
        use crate::domain::digest::Digest;
        use crate::domain::files::request::{FilePatch, Patch};
        use crate::domain::manifest::{FileEntry, TreeManifest};
        use crate::domain::refusal::{Code, Refusal};
        use crate::workspace::observe::observe;
        use crate::workspace::patch::{Published, plan};
        use crate::workspace::policy::Limits;
        let (limits, empty) = (Limits::fixed(), TreeManifest::new(vec![], vec![]));
        for (n, example) in examples().into_iter().enumerate() {
            for (text, below) in [(odd(&example, 0), ""), (odd(&example, 1), "/Deep/file")] {
                let path = format!("Src{n}/{text}{below}");
                let asked = FilePatch {
                    path: path.clone(),
                    expected_hash: None,
                    content: Some(Some("x".into())),
                    edits: None,
                    executable: None,
                };
                let read = |_: &FileEntry| -> Result<Vec<u8>, Refusal> { Ok(vec![]) };
                let base = Base { revision: 1, digest: Digest::of(b"") };
                let patch = Patch { revision: 1, files: vec![asked] };
                let refused = plan(&Published { base, tree: &empty, read }, &patch, &limits).unwrap_err();
                assert_eq!(refused.code, Code::PatchRefused, "{path}");
                assert!(refused.message.contains(&format!("'{path}' is an excluded name")), "{refused}");
                // What a refresh would adopt.
                let dir = tempfile::tempdir().unwrap();
                let file = dir.path().join(&path);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(&file, "canary").unwrap();
                let seen = observe(dir.path(), &limits).unwrap();
                assert!(seen.manifest.files().is_empty() && seen.excluded.len() == 1, "{path}: {seen:?}");
            }
        }
    }

    #[test]
    fn ws1_look_alikes_of_excluded_names_are_excluded() {
        for text in [".GıT", ".g\u{131}t"] {
            assert!(of_path(&RelPath::parse(text).unwrap()).is_none(), "dotless i is another letter");
        }
        for text in [".\u{17f}\u{17f}h", ".g\u{200c}it", ".\u{212a}ube", ".env.\u{fffd}"] {
            assert!(of_path(&RelPath::parse(text).unwrap()).is_some(), "{text}");
        }
    }

    #[test]
    fn ws1_source_that_only_resembles_an_excluded_name_stays() {
        for text in [
            ".gitignore",
            ".gitattributes",
            ".github/workflows/ci.yml",
            "deps/a.c",
            "vendor/b.go",
            "lib/c.js",
            "bench/d.rs",
            "environment.js",
            ".environment",
            "src/builder.js",
            "outline.md",
            "id_rsa.pub",
            "server.key",
            "ca.pem",
            "locales/auth.json",
            ".cargo/config.toml",
            ".config/nextest.toml",
            "credentials.js",
            ".p12",
        ] {
            assert_eq!(of_path(&RelPath::parse(text).unwrap()), None, "{text}");
        }
    }
}
