//! A line on a terminal while something takes noticeable time; none anywhere else.

use std::io::{IsTerminal as _, Write as _};
use std::pin::pin;
use std::time::{Duration, Instant};

/// How long nothing is said.
const PATIENCE: Duration = Duration::from_millis(400);
/// How often the line is written anew.
const STEP: Duration = Duration::from_millis(200);

/// Waits for `work`; past [`PATIENCE`], a line on standard error says `what` and for how long. It is gone
/// when the work is done.
pub(crate) async fn shown<T>(what: &'static str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let terminal =
        std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    if !terminal {
        return work.await;
    }
    let begin = Instant::now();
    let mut wait = PATIENCE;
    let mut written = false;
    loop {
        match tokio::time::timeout(wait, work.as_mut()).await {
            Ok(done) => {
                if written {
                    say("\r\u{1b}[K");
                }
                return done;
            }
            Err(_) => {
                say(&format!("\r{what} … {:.1} s", begin.elapsed().as_secs_f64()));
                (written, wait) = (true, STEP);
            }
        }
    }
}

/// Nothing depends on its arrival.
fn say(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}
