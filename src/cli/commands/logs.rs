//! `sal commands logs`: a run's output from a byte offset, once or followed.

use crate::api::wire::Output as Size;
use crate::cli::args::OneRun;
use crate::cli::connect::with_client;
use crate::cli::failure::Done;
use crate::cli::output::{LogSink, Output};
use serde::Serialize;
use std::process::ExitCode;

/// Most bytes asked for at a time; the service's own bound.
const PART: usize = 64 * 1024;

/// Arguments of `commands logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Logs {
    #[command(flatten)]
    run: OneRun,
    /// First byte
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    offset: u64,
    /// Go on until the run's output has ended
    #[arg(long)]
    follow: bool,
}

/// A chunk of output as JSON. It is cut at any byte, so that a character may be split.
#[derive(Debug, Serialize)]
struct Chunk<'a> {
    run_id: &'a str,
    offset: u64,
    next_offset: u64,
    /// `utf-8`, or `hex` when the bytes are not that.
    encoding: &'static str,
    data: String,
}

impl Logs {
    /// Writes the output.
    pub(crate) fn run(self, out: Output) -> Done {
        let OneRun { at, run_id } = self.run;
        with_client(&at.state.path()?, async |mut client| {
            let mut offset = self.offset;
            let mut sink = LogSink::stdout();
            let mut show = |bytes: &[u8]| {
                let from = offset;
                offset += bytes.len() as u64;
                if out.is_json() {
                    out.object(&chunk(run_id.as_str(), from, bytes))
                } else {
                    sink.write(bytes)
                }
            };
            if self.follow {
                let mut log = client.follow(&at.session, &run_id, self.offset).await?;
                while let Some(bytes) = log.next().await? {
                    show(&bytes)?;
                }
                note_cut(out, &client.run(&at.session, &run_id, false).await?.run.output);
            } else {
                let mut next = self.offset;
                loop {
                    let part = client.logs(&at.session, &run_id, next, PART).await?;
                    next += part.bytes.len() as u64;
                    show(&part.bytes)?;
                    if part.bytes.is_empty() || next >= part.output.stored_bytes {
                        note_cut(out, &part.output);
                        break;
                    }
                }
            }
            sink.finish()?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

fn chunk<'a>(run_id: &'a str, offset: u64, bytes: &[u8]) -> Chunk<'a> {
    let (encoding, data) = match std::str::from_utf8(bytes) {
        Ok(text) => ("utf-8", text.to_owned()),
        Err(_) => ("hex", hex::encode(bytes)),
    };
    Chunk { run_id, offset, next_offset: offset + bytes.len() as u64, encoding, data }
}

fn note_cut(out: Output, size: &Size) {
    if size.truncated && !out.is_json() {
        let Size { stored_bytes, total_bytes, .. } = size;
        out.note(&format!("the output is cut: the first {stored_bytes} of {total_bytes} bytes are kept"));
    }
}
