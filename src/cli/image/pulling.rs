//! How a pull is shown while it goes on: bars on a terminal, else a line for each layer. All of it on
//! standard error, none of it with `--json`.

use crate::cli::output::Output;
use crate::domain::digest::Digest;
use crate::image::Progress;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};

/// Digits of a digest that are shown.
const DIGITS: usize = 12;

/// What is shown of a pull.
pub(super) struct Shown {
    out: Output,
    bars: Option<(MultiProgress, Mutex<HashMap<Digest, ProgressBar>>)>,
}

impl Shown {
    /// Looks at standard error.
    pub(super) fn new(out: Output) -> Self {
        let terminal =
            std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let bars = (terminal && !out.is_json()).then(|| {
            (MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8)), Mutex::default())
        });
        Self { out, bars }
    }

    /// Takes the bars away.
    pub(super) fn clear(&self) {
        if let Some((all, _)) = &self.bars {
            // Nothing depends on it.
            let _ = all.clear();
        }
    }

    fn say(&self, text: &str) {
        match &self.bars {
            _ if self.out.is_json() => {}
            Some((all, _)) => all.suspend(|| self.out.note(text)),
            None => self.out.note(text),
        }
    }
}

impl Progress for Shown {
    fn note(&self, text: &str) {
        self.say(text);
    }

    fn layer(&self, blob: &Digest, at: u64, size: u64) {
        let Some((all, bars)) = &self.bars else { return };
        let mut bars = bars.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = bars.entry(blob.clone()).or_insert_with(|| {
            let bar = all.add(ProgressBar::new(size).with_style(style()));
            bar.set_prefix(short(blob));
            bar
        });
        bar.set_position(at);
    }

    fn done(&self, blob: &Digest, size: u64) {
        match &self.bars {
            Some((_, bars)) => {
                let bars = bars.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(bar) = bars.get(blob) {
                    bar.set_position(size);
                    bar.abandon();
                }
            }
            None => self.say(&format!("layer {} is here: {size} bytes", short(blob))),
        }
    }

    fn unpacking(&self) {
        match &self.bars {
            Some((all, _)) => {
                let bar = all.add(ProgressBar::new_spinner());
                bar.set_message("unpacking");
                bar.enable_steady_tick(std::time::Duration::from_millis(120));
            }
            None => self.say("unpacking"),
        }
    }
}

fn short(digest: &Digest) -> String {
    digest.hex().chars().take(DIGITS).collect()
}

/// The default if the template, which is ours, were wrong.
fn style() -> ProgressStyle {
    ProgressStyle::with_template("{prefix} [{bar:30}] {bytes:>10} of {total_bytes:<10} {bytes_per_sec}")
        .map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> "))
}
