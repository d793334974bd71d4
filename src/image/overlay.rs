//! A writable overlay of layers that are being unpacked (Documentation/filesystems/overlayfs.rst).
//!
//! What is written through it lands in the upper directory in the form that the kernel itself reads:
//! whiteouts, opaque directories, copied-up parents and hard links come out right. The mount lives in
//! a mount namespace that only descriptors keep: nothing is left of it when this process is killed. The
//! namespace is kept as long as the root is used: in a mount without one each release of a path counts as
//! a change of the mounts, and openat2(2) then answers EAGAIN to every `..`.

use super::error::ImageError;
use super::root::Root;
use nix::mount::{MsFlags, mount};
use nix::sched::CloneFlags;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Never depends on what the kernel's build takes for a default. `volatile`: the importer syncs the
/// whole file system once, so no copied-up file need be.
const OPTIONS: &str = "redirect_dir=nofollow,metacopy=off,index=off,xino=off,volatile";

/// Whether layers can be stacked in `stage`, an empty place for trials: not where the store lies on an
/// overlay itself, where the kernel has none, or without privilege.
///
/// # Errors
/// A trial that could not be prepared.
pub(super) fn usable(stage: &Path) -> Result<bool, ImageError> {
    let dir = stage.join("trial");
    let lower = dir.join("lower");
    let upper = dir.join("upper");
    for path in [&lower.join("x"), &upper] {
        std::fs::create_dir_all(path).map_err(ImageError::io("create", path))?;
    }
    let tried = match stacked(&dir.join("mount"), &[lower], &upper) {
        Ok(Stack { root, namespace: _namespace }) => {
            // Leaves a whiteout, then an opaque directory: a device node and an attribute, which not every
            // file system takes.
            let made = rustix::fs::unlinkat(&root, "x", rustix::fs::AtFlags::REMOVEDIR)
                .and_then(|()| rustix::fs::mkdirat(&root, "x", Mode::from_raw_mode(0o700)));
            made.is_ok() && initial_user_namespace()
        }
        Err(_) => false,
    };
    std::fs::remove_dir_all(&dir).map_err(ImageError::io("remove", &dir))?;
    Ok(tried)
}

/// Mounts `lower`, topmost first, below `upper`, and opens the root. `dir` is made for the mount's own
/// needs, on the file system of `upper`.
///
/// # Errors
/// [`ImageError::Io`] naming `upper`.
pub(super) fn open(dir: &Path, lower: &[PathBuf], upper: &Path) -> Result<Root, ImageError> {
    let stack = stacked(dir, lower, upper).map_err(ImageError::io("stack layers on", upper))?;
    Ok(Root::of_mount(stack.root, stack.namespace))
}

/// The root of a mounted overlay, and the mount namespace that it is in.
struct Stack {
    root: OwnedFd,
    namespace: OwnedFd,
}

fn stacked(dir: &Path, lower: &[PathBuf], upper: &Path) -> io::Result<Stack> {
    for name in ["work", "root"] {
        std::fs::create_dir_all(dir.join(name))?;
    }
    // mount(2) takes one page of options, so layers are named by short links.
    for (i, layer) in lower.iter().enumerate() {
        symlink(layer, dir.join(i.to_string()))?;
    }
    symlink(upper, dir.join("upper"))?;
    let names: Vec<String> = (0..lower.len()).map(|i| i.to_string()).collect();
    let options = format!("lowerdir={},upperdir=upper,workdir=work,{OPTIONS}", names.join(":"));
    // A thread of its own: mount namespace and working directory are the thread's then.
    std::thread::scope(|scope| {
        let mounted = std::thread::Builder::new()
            .name("overlay".to_owned())
            .spawn_scoped(scope, || mount_here(dir, &options))?;
        mounted.join().unwrap_or_else(|_| Err(io::Error::other("the thread that mounts it failed")))
    })
}

fn mount_here(dir: &Path, options: &str) -> io::Result<Stack> {
    let none = None::<&str>;
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    std::env::set_current_dir(dir)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("overlay"), "root", Some("overlay"), flags, Some(options))?;
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let root = rustix::fs::open("root", how, Mode::empty())?;
    let namespace = File::open("/proc/thread-self/ns/mnt")?.into();
    Ok(Stack { root, namespace })
}

/// Elsewhere overlays keep their marks in other attributes, and owners cannot be set.
fn initial_user_namespace() -> bool {
    std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}
