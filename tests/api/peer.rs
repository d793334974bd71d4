//! Another user on the socket (A10). Needs root, to become somebody else.

use crate::rig::Rig;
use salaam::api::{server, socket};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

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

#[tokio::test(flavor = "multi_thread")]
async fn a10_another_user_is_closed_out_unread() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let rig = Rig::start().await;
    // The private directory would keep the other user out by itself: open everything, so that only
    // the check of the peer is left.
    let open = tempfile::tempdir().unwrap();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(open.path(), 0o755);
    let bound = socket::bind(open.path()).unwrap();
    mode(bound.path(), 0o666);
    let path = bound.path().to_owned();
    let program = open.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    mode(&program, 0o755);
    let serving = tokio::spawn(server::serve(bound, rig.api.clone()));
    let ask = |uid: u32| {
        let mut command = Command::new(&program);
        command.args(["--exact", "--nocapture", "peer::as_another_user"]);
        command.env("SAL_TEST_SOCKET", &path).uid(uid).gid(uid);
        let output = tokio::task::block_in_place(|| command.output()).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let other = ask(65534);
    assert!(other.contains("answer: 0 bytes"), "{other}");
    let own = ask(0);
    assert!(own.contains("answer: ") && !own.contains("answer: 0 bytes"), "{own}");
    rig.api.stop();
    serving.await.unwrap().unwrap();
}
