//! Credential helpers: `docker-credential-NAME get` with the server on its standard input
//! (docker/docker-credential-helpers, "Development").

use super::super::error::{ImageError, printable};
use super::credentials::Login;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Deserialize;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a helper's answer.
const ANSWER_BYTES: usize = 64 * 1024;
/// A helper's user name that marks the secret as a token.
const TOKEN_USER: &str = "<token>";

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "Username", default)]
    user: String,
    #[serde(rename = "Secret", default)]
    secret: String,
}

/// Asks the helper `name`; `None` when it knows nothing of `server`.
pub(super) fn get(name: &str, server: &str, wait: Duration) -> Result<Option<Login>, ImageError> {
    let program = format!("docker-credential-{name}");
    let failed = |problem: String| ImageError::Helper { program: printable(&program), problem };
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(word) {
        return Err(failed("is not the name of a program in PATH".to_owned()));
    }
    let mut child = Command::new(&program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| failed(format!("cannot be started ({e}); is it in PATH?")))?;
    let begin = Instant::now();
    let answered = converse(&mut child, server, begin, wait)
        .and_then(|output| Ok((output, ended(&mut child, begin, wait)?)));
    if answered.is_err() {
        // It may be waiting for a person who does not come.
        let _ = child.kill();
        let _ = child.wait();
    }
    let (output, ended) = answered.map_err(failed)?;
    if !ended.success() {
        let said = printable(String::from_utf8_lossy(&output).trim());
        return if said.contains("credentials not found") {
            Ok(None)
        } else {
            Err(failed(format!("failed ({ended}): {said}")))
        };
    }
    let answer: Answer = serde_json::from_slice(&output)
        .map_err(|_| failed("answered something that is not its JSON".to_owned()))?;
    Ok(match answer {
        Answer { user, secret } if user == TOKEN_USER => Some(Login::Identity(secret)),
        Answer { user, secret } if !user.is_empty() => Some(Login::Password { user, secret }),
        _ => None,
    })
}

/// Says `server`, and reads to the end of the answer.
fn converse(child: &mut Child, server: &str, begin: Instant, wait: Duration) -> Result<Vec<u8>, String> {
    if let Some(mut input) = child.stdin.take() {
        // One that does not listen may answer all the same.
        let _ = writeln!(input, "{server}");
    }
    let Some(mut from) = child.stdout.take() else { return Ok(Vec::new()) };
    let mut output = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let left = wait.checked_sub(begin.elapsed()).unwrap_or_default();
        let mut polled = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut polled, timeout) {
            Err(Errno::EINTR) => continue,
            Err(e) => return Err(format!("cannot be listened to ({e})")),
            Ok(0) => return Err(too_late(wait)),
            Ok(_) => {}
        }
        match from.read(&mut chunk) {
            Ok(0) => return Ok(output),
            Ok(n) => output.extend_from_slice(chunk.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(format!("cannot be listened to ({e})")),
        }
        if output.len() > ANSWER_BYTES {
            return Err(format!("answers with more than {ANSWER_BYTES} bytes"));
        }
    }
}

/// Waits for its end.
fn ended(child: &mut Child, begin: Instant, wait: Duration) -> Result<ExitStatus, String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if begin.elapsed() >= wait => return Err(too_late(wait)),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(e) => return Err(format!("cannot be waited for ({e})")),
        }
    }
}

fn too_late(wait: Duration) -> String {
    format!("has not answered within {} s", wait.as_secs_f32())
}
