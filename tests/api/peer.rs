//! Another user on the socket (A10). Needs root, to become somebody else.

use crate::rig::Rig;
use salaam::api::server::{self, Peers};
use salaam::api::socket;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tokio::task::JoinHandle;

const REQUEST: &[u8] = b"GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

/// What the other user does: connects, asks, and prints what comes back.
#[test]
fn as_another_user() {
    // Set by `a10_another_user_is_closed_out_unread`, which runs this part under another uid.
    let Some(path) = std::env::var_os("SAL_TEST_SOCKET") else { return };
    let mut stream = UnixStream::connect(path).unwrap();
    let _ = stream.write_all(REQUEST);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    println!("answer: {} bytes", answer.len());
}

/// A socket whose directory and mode let everybody in, so that only the check of the peer is left.
struct Open {
    socket: PathBuf,
    serving: JoinHandle<std::io::Result<()>>,
    _dir: tempfile::TempDir,
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

impl Open {
    fn serve(rig: &Rig, peers: Peers) -> Self {
        let dir = tempfile::tempdir().unwrap();
        mode(dir.path(), 0o755);
        let bound = socket::bind(dir.path()).unwrap();
        mode(bound.path(), 0o666);
        let socket = bound.path().to_owned();
        let serving = tokio::spawn(server::serve(bound, rig.api.clone(), peers));
        Self { _dir: dir, socket, serving }
    }
}

/// This test program where every user can run it.
struct Asker(tempfile::TempDir);

impl Asker {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        mode(dir.path(), 0o755);
        let program = dir.path().join("test");
        // Not copied by this process: a child that another test forks meanwhile would hold the copy
        // open for writing, and it could not be executed.
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
        assert!(copied.unwrap().success());
        mode(&program, 0o755);
        Self(dir)
    }

    /// Asks as this user; answers how many bytes came back.
    fn ask(&self, uid: u32, at: &Open) -> usize {
        let mut command = Command::new(self.0.path().join("test"));
        command.args(["--exact", "--nocapture", "peer::as_another_user"]);
        command.env("SAL_TEST_SOCKET", &at.socket).uid(uid).gid(uid);
        let output = tokio::task::block_in_place(|| command.output()).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let counted = text.lines().find_map(|line| line.split_once("answer: ")?.1.strip_suffix(" bytes"));
        counted.unwrap_or_else(|| panic!("no answer was counted: {text}")).parse().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a10_another_user_is_closed_out_unread() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let rig = Rig::start().await;
    assert_eq!(Peers::own(), Peers::Only(0));
    let asker = Asker::new();
    let checked = Open::serve(&rig, Peers::own());
    assert_eq!(asker.ask(65534, &checked), 0, "another user was answered");
    assert!(asker.ask(0, &checked) > 0, "the own user was not answered");
    // The rule is the user's id and not root's privilege.
    let foreign = Open::serve(&rig, Peers::Only(65534));
    assert!(asker.ask(65534, &foreign) > 0);
    assert_eq!(asker.ask(0, &foreign), 0);
    // Without the check nothing else on this path stops the other user.
    let unchecked = Open::serve(&rig, Peers::UncheckedForATest);
    assert!(asker.ask(65534, &unchecked) > 0, "something other than the check closes the other user out");
    rig.api.stop();
    for open in [checked, foreign, unchecked] {
        open.serving.await.unwrap().unwrap();
    }
}

/// The files of the program that name `word`.
fn naming(dir: &Path, word: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(naming(&path, word));
        } else if std::fs::read_to_string(&path).unwrap().contains(word) {
            found.push(path);
        }
    }
    found
}

#[test]
fn a10_no_code_of_the_program_takes_the_check_away() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    assert_eq!(naming(&src, "UncheckedForATest"), [src.join("api/server.rs")]);
    let server = std::fs::read_to_string(src.join("api/server.rs")).unwrap();
    assert_eq!(server.matches("UncheckedForATest").count(), 1, "only the declaration names it");
}
