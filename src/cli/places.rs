//! Where things lie when nothing is said: the XDG base directories.

use crate::domain::refusal::{Code, Refusal};
use std::env;
use std::path::{Path, PathBuf};

/// The state directory: `asked`, else `$XDG_STATE_HOME/salaam`, else `~/.local/state/salaam`.
pub(crate) fn state(asked: Option<&Path>) -> Result<PathBuf, Refusal> {
    place(asked, "XDG_STATE_HOME", ".local/state/salaam", "salaam", "--state")
}

/// The image store: `asked`, else `$XDG_DATA_HOME/salaam/images`, else under `~/.local/share`.
pub(crate) fn image_store(asked: Option<&Path>) -> Result<PathBuf, Refusal> {
    place(asked, "XDG_DATA_HOME", ".local/share/salaam/images", "salaam/images", "--image-store")
}

/// Files with logins for registries, in the order in which they are asked: `$REGISTRY_AUTH_FILE`, then
/// `config.json` in `$DOCKER_CONFIG` or `~/.docker`.
pub(crate) fn registry_logins() -> Vec<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let docker = set("DOCKER_CONFIG").or_else(|| set("HOME").map(|home| home.join(".docker")));
    set("REGISTRY_AUTH_FILE").into_iter().chain(docker.map(|dir| dir.join("config.json"))).collect()
}

/// A path that the user gave, independent of the working directory. Symbolic links stay.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Refusal> {
    std::path::absolute(path).map_err(|error| {
        Refusal::new(
            Code::Invalid,
            format!("the path '{}' cannot be made absolute: {error}", path.display()),
            "give a whole path",
        )
    })
}

fn place(
    asked: Option<&Path>,
    variable: &str,
    in_home: &str,
    in_base: &str,
    flag: &str,
) -> Result<PathBuf, Refusal> {
    if let Some(path) = asked {
        return absolute(path);
    }
    // The XDG specification has relative values ignored.
    let base = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(base) = base(variable) {
        return Ok(base.join(in_base));
    }
    base("HOME").map(|home| home.join(in_home)).ok_or_else(|| {
        Refusal::new(
            Code::Invalid,
            format!("neither {flag} nor {variable} nor HOME names a directory"),
            format!("give {flag} DIR"),
        )
    })
}
