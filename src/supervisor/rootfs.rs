//! The container's root file system: the image's directories, stacked read-only by an overlay in the
//! supervisor's own mount namespace. It ends with that namespace, however the supervisor ends.

use super::container::{CreateError, failed};
use crate::domain::profile::Profile;
use nix::mount::{MsFlags, mount};
use std::path::{Path, PathBuf};

/// Never depends on what the kernel's build takes for a default.
const OPTIONS: &str = "redirect_dir=nofollow,metacopy=off,index=off,xino=off";

/// What a mounted root file system is known by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Device number of the file system, as stat(2) gives it.
    pub device: u64,
    /// Inode number of the root directory.
    pub inode: u64,
    /// How many directories are stacked; one is no overlay.
    pub layers: usize,
}

impl Root {
    /// What `path` is, whose file system stacks `layers` directories.
    ///
    /// # Errors
    /// The system's error.
    pub fn of(path: &Path, layers: usize) -> std::io::Result<Self> {
        let stat = nix::sys::stat::stat(path)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino, layers })
    }
}

/// Where the root file system of the run directory `dir` is mounted.
pub fn path(dir: &Path) -> PathBuf {
    dir.join("rootfs")
}

/// The layers of an overlay as its mount options name them.
pub fn lower(layers: usize) -> String {
    (0..layers).map(|i| i.to_string()).collect::<Vec<_>>().join(":")
}

/// Whether something is written to the root while the container is made or runs: a profile that lacks the
/// control that keeps it read-only, or the fresh `/dev` that device nodes are made in.
pub fn is_written(profile: &Profile) -> bool {
    !profile.readonly_image || !profile.deny_devices
}

/// Mounts the stack of `layers`, topmost first, in `dir`, which is this run's own tmpfs. Changes this
/// process's working directory and restores it.
///
/// Nosuid, whatever the image holds; nodev unless the profile has devices; read-only
/// from the start under the fixed profile. What a weaker one writes goes into the tmpfs, not into the layers.
///
/// # Errors
/// [`CreateError`] naming the step.
pub fn stack(dir: &Path, layers: &[PathBuf], profile: &Profile) -> Result<Root, CreateError> {
    let to = path(dir);
    std::fs::create_dir(&to).map_err(failed("make the root's mount point"))?;
    let mut flags = MsFlags::MS_NOSUID;
    if profile.deny_devices {
        flags |= MsFlags::MS_NODEV;
    }
    if !is_written(profile) {
        flags |= MsFlags::MS_RDONLY;
    }
    let none = None::<&str>;
    if let [only] = layers {
        mount(Some(only), &to, none, MsFlags::MS_BIND, none).map_err(failed("bind the image"))?;
        let flags = flags | MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
        mount(none, &to, none, flags, none).map_err(failed("remount the image"))?;
    } else {
        // mount(2) takes one page of options, so layers are named by short links.
        let links = dir.join("lower");
        std::fs::create_dir(&links).map_err(failed("make the directory of layers"))?;
        for (i, layer) in layers.iter().enumerate() {
            std::os::unix::fs::symlink(layer, links.join(i.to_string())).map_err(failed("link a layer"))?;
        }
        let mut options = format!("lowerdir={},{OPTIONS}", lower(layers.len()));
        if is_written(profile) {
            for name in ["upper", "work"] {
                std::fs::create_dir(links.join(name)).map_err(failed("make the upper directory"))?;
            }
            options.push_str(",upperdir=upper,workdir=work");
        }
        let before = std::env::current_dir().map_err(failed("find the working directory"))?;
        std::env::set_current_dir(&links).map_err(failed("enter the directory of layers"))?;
        let mounted = mount(Some("overlay"), &to, Some("overlay"), flags, Some(options.as_str()));
        std::env::set_current_dir(before).map_err(failed("leave the directory of layers"))?;
        mounted.map_err(failed("stack the image's layers"))?;
    }
    Root::of(&to, layers.len()).map_err(failed("look at the root"))
}
