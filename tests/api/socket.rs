//! How the socket is bound and reached.

use crate::rig::Rig;
use salaam::api::client::Client;
use salaam::api::socket;
use salaam::domain::refusal::Code;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

/// A directory below `base` such that the socket's path has `length` bytes.
fn of_length(base: &Path, length: usize, last: char) -> PathBuf {
    let rest = length - base.as_os_str().len() - "//".len() - socket::FILE.len();
    let mut name = "d".repeat(rest - 1);
    name.push(last);
    let dir = base.join(name);
    assert_eq!(dir.join(socket::FILE).as_os_str().len(), length);
    dir
}

#[tokio::test]
async fn svc4_the_socket_is_for_its_owner_alone() {
    let rig = Rig::start().await;
    let meta = std::fs::symlink_metadata(rig.state.join(socket::FILE)).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.mode() & 0o7777, 0o600);
}

#[tokio::test]
async fn svc4_s3_paths_of_107_108_and_150_bytes_work_and_are_not_shared() {
    let base = tempfile::tempdir().unwrap();
    let mut rigs = Vec::new();
    for (length, last) in [(107, 'a'), (108, 'a'), (150, 'a'), (150, 'b')] {
        rigs.push(Rig::at(of_length(base.path(), length, last).to_str().unwrap()).await);
    }
    for rig in &rigs {
        let session = rig.coding().await;
        let listed = rig.client().await.sessions().await.unwrap().sessions;
        assert_eq!(listed.len(), 1, "each service has its own session only");
        assert_eq!(listed[0].session_id, session.as_str());
    }
}

#[tokio::test]
async fn svc3_a_stale_socket_is_replaced_and_the_own_one_removed() {
    let dir = tempfile::tempdir().unwrap();
    drop(socket::bind(dir.path()).unwrap());
    let path = dir.path().join(socket::FILE);
    assert!(path.exists(), "a dead service leaves its socket");
    assert_eq!(Client::connect(dir.path()).await.unwrap_err().code, Code::NotRunning);
    let second = socket::bind(dir.path()).unwrap();
    assert!(tokio::net::UnixStream::connect(&path).await.is_ok());
    let third = socket::bind(dir.path()).unwrap();
    second.remove();
    assert!(path.exists(), "the name means the third socket now");
    third.remove();
    assert!(!path.exists());
}

#[tokio::test]
async fn a10_a_symlink_or_a_file_in_the_socket_s_place_is_refused_by_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(socket::FILE);
    let elsewhere = tempfile::tempdir().unwrap();
    let _other = socket::bind(elsewhere.path()).unwrap();
    symlink(elsewhere.path().join(socket::FILE), &path).unwrap();
    assert_eq!(socket::bind(dir.path()).unwrap_err().code, Code::UnsafePath);
    assert_eq!(Client::connect(dir.path()).await.unwrap_err().code, Code::UnsafePath);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    assert_eq!(socket::bind(dir.path()).unwrap_err().code, Code::UnsafePath);
    assert_eq!(Client::connect(dir.path()).await.unwrap_err().code, Code::UnsafePath);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[tokio::test]
async fn svc3_no_service_is_one_clear_refusal() {
    let dir = tempfile::tempdir().unwrap();
    for state in [dir.path().to_owned(), dir.path().join("absent")] {
        let refusal = Client::connect(&state).await.unwrap_err();
        assert_eq!(refusal.code, Code::NotRunning);
        assert!(refusal.hint.contains("sal service start --state"), "{}", refusal.hint);
    }
}
