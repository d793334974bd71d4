//! The control socket's name, and how it is bound and reached (SVC.3, SVC.4).
//!
//! A Unix socket address holds 107 bytes of path (`sun_path`, unix(7)). A longer path is reached
//! through the open state directory, as `/proc/self/fd/N/control.sock`; the name on disk is whole.

use crate::domain::refusal::{Code, Refusal};
use nix::sys::socket as so;
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// File name of the socket in the state directory.
pub const FILE: &str = "control.sock";
/// Most bytes of a path in a socket address.
pub const MAX_ADDRESS: usize = 107;
/// Connections that the kernel holds for us until they are accepted.
const BACKLOG: i32 = 128;

/// A bound and listening control socket.
#[derive(Debug)]
pub struct Bound {
    listener: UnixListener,
    path: PathBuf,
    inode: (u64, u64),
}

impl Bound {
    /// Where the socket lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another handle on the listening socket, in non-blocking mode.
    ///
    /// # Errors
    /// The system's error.
    pub fn listener(&self) -> std::io::Result<UnixListener> {
        let listener = self.listener.try_clone()?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Removes the name, unless it already means another socket.
    pub fn remove(self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.inode);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the control socket was not removed");
        }
    }
}

/// Binds `control.sock` in `state`, mode 0600, replacing the socket of a dead service.
///
/// The caller holds the lock of the state directory, so whatever socket lies there is stale.
///
/// # Errors
/// `unsafe_path` when the name is a symlink or anything but a socket; `internal` for the system's
/// own errors.
pub fn bind(state: &Path) -> Result<Bound, Refusal> {
    let path = state.join(FILE);
    match std::fs::symlink_metadata(&path) {
        Ok(found) if found.file_type().is_socket() => {
            std::fs::remove_file(&path).map_err(|e| failed("replace the stale socket", &path, &e))?;
        }
        Ok(found) => return Err(not_a_socket(&path, found.file_type().is_symlink())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed("look at", &path, &e)),
    }
    let dir = open_dir(state).map_err(|e| failed("open", state, &e))?;
    let address = so::UnixAddr::new(&address(&dir, &path)?).map_err(|e| failed("name", &path, &e.into()))?;
    let socket = so::socket(so::AddressFamily::Unix, so::SockType::Stream, so::SockFlag::SOCK_CLOEXEC, None)
        .map_err(|e| failed("make", &path, &e.into()))?;
    so::bind(socket.as_raw_fd(), &address).map_err(|e| failed("bind", &path, &e.into()))?;
    // Nobody can connect before listen(2), so the mode holds from the first connection on.
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    fchmodat(Some(dir.as_raw_fd()), FILE, mode, FchmodatFlags::FollowSymlink)
        .map_err(|e| failed("protect", &path, &e.into()))?;
    let meta = std::fs::symlink_metadata(&path).map_err(|e| failed("look at", &path, &e))?;
    so::Backlog::new(BACKLOG)
        .and_then(|backlog| so::listen(&socket, backlog))
        .map_err(|e| failed("listen on", &path, &e.into()))?;
    Ok(Bound { listener: socket.into(), path, inode: (meta.dev(), meta.ino()) })
}

/// Connects to the service of `state` and checks that it is the caller's own.
///
/// # Errors
/// `not_running` when nothing answers there; `unsafe_path` when the name is no socket; `forbidden`
/// when the socket or the process behind it is another user's; `busy` when the queue is full.
pub async fn connect(state: &Path) -> Result<tokio::net::UnixStream, Refusal> {
    use std::io::ErrorKind as K;
    let path = state.join(FILE);
    let meta = match std::fs::symlink_metadata(&path) {
        Ok(meta) => meta,
        Err(e) if matches!(e.kind(), K::NotFound | K::NotADirectory) => return Err(not_running(state)),
        Err(e) if e.kind() == K::PermissionDenied => return Err(foreign(state, None)),
        Err(e) => return Err(failed("look at", &path, &e)),
    };
    if !meta.file_type().is_socket() {
        return Err(not_a_socket(&path, meta.file_type().is_symlink()));
    }
    let own = nix::unistd::geteuid().as_raw();
    if meta.uid() != own {
        return Err(foreign(state, Some(meta.uid())));
    }
    let dir = open_dir(state).map_err(|e| failed("open", state, &e))?;
    let stream = match tokio::net::UnixStream::connect(address(&dir, &path)?).await {
        Ok(stream) => stream,
        Err(e) => {
            return Err(match e.kind() {
                K::NotFound | K::ConnectionRefused => not_running(state),
                K::PermissionDenied => foreign(state, None),
                K::WouldBlock => Refusal::new(
                    Code::Busy,
                    format!("the service on {} has {BACKLOG} connections waiting", state.display()),
                    "try again; if it persists, look at its process and at service.log",
                ),
                _ => failed("connect to", &path, &e),
            });
        }
    };
    let peer = stream.peer_cred().map_err(|e| failed("ask for the owner of", &path, &e))?;
    if peer.uid() == own { Ok(stream) } else { Err(foreign(state, Some(peer.uid()))) }
}

/// The refusal for a state directory on which no service answers.
pub fn not_running(state: &Path) -> Refusal {
    Refusal::new(
        Code::NotRunning,
        format!("no service runs on the state directory {}", state.display()),
        format!("start one: sal service start --state {}", state.display()),
    )
}

fn open_dir(state: &Path) -> std::io::Result<OwnedFd> {
    let flags = nix::libc::O_DIRECTORY | nix::libc::O_CLOEXEC;
    Ok(File::options().read(true).custom_flags(flags).open(state)?.into())
}

/// The path to put into a socket address: `path` itself, or one through the open directory.
fn address(dir: &OwnedFd, path: &Path) -> Result<PathBuf, Refusal> {
    let length = path.as_os_str().len();
    if length <= MAX_ADDRESS {
        Ok(path.to_owned())
    } else if cfg!(target_os = "linux") {
        Ok(PathBuf::from(format!("/proc/self/fd/{}/{FILE}", dir.as_raw_fd())))
    } else {
        Err(Refusal::new(
            Code::UnsafePath,
            format!("the socket path {} has {length} bytes; the limit is {MAX_ADDRESS}", path.display()),
            "choose a state directory with a shorter path",
        ))
    }
}

fn not_a_socket(path: &Path, symlink: bool) -> Refusal {
    let what = if symlink { "a symbolic link" } else { "not a socket" };
    Refusal::new(
        Code::UnsafePath,
        format!("{} is {what}; it must be the service's own socket", path.display()),
        "see who made it, remove it, and start the service again",
    )
}

fn foreign(state: &Path, uid: Option<u32>) -> Refusal {
    let whose = uid.map_or("another user".to_owned(), |uid| format!("uid {uid}"));
    Refusal::new(
        Code::Forbidden,
        format!("the service on {} belongs to {whose}; only its own user may use it", state.display()),
        "run sal as that user, or name your own state directory with --state",
    )
}

fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Refusal {
    Refusal::new(
        Code::Internal,
        format!("could not {doing} {}: {error}", path.display()),
        "check that the state directory exists and is yours",
    )
}
