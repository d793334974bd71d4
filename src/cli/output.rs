//! What verbs print: text for people or one JSON object a line, never a raw control character.

use super::terminal::{Filter, safe, safe_json, safe_line};
use crate::api::wire::ErrorBody;
use crate::domain::refusal::Refusal;
use serde::Serialize;
use std::io::{IsTerminal as _, Result, Write as _};

/// Standard output and error of one invocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    /// Prints JSON if `json`, else text.
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether JSON was asked for.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints one JSON object on a line.
    pub(crate) fn object(&self, value: &impl Serialize) -> Result<()> {
        let json = serde_json::to_string(value)?;
        put(&format!("{}\n", safe_json(&json)))
    }

    /// Prints `value` as JSON if that was asked for, else what `text` makes of it.
    pub(crate) fn either<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> Text) -> Result<()> {
        if self.json { self.object(value) } else { put(&text(value).0) }
    }

    /// Prints a document of ours as it is, but for control characters.
    pub(crate) fn document(&self, text: &str) -> Result<()> {
        put(&safe(text))
    }

    /// Writes bytes as they are: what goes to a terminal must have been escaped.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }

    /// Tells something beside the result, on standard error. Nothing depends on its arrival.
    pub(crate) fn note(&self, text: &str) {
        let _ = writeln!(std::io::stderr(), "sal: {}", safe(text));
    }

    /// Prints a refusal on standard error. Nothing depends on its arrival: the exit code says it too.
    pub(crate) fn refusal(&self, refusal: &Refusal) {
        if self.json {
            let json = serde_json::to_string(&ErrorBody::from(refusal.clone())).unwrap_or_default();
            let _ = writeln!(std::io::stderr(), "{}", safe_json(&json));
            return;
        }
        self.note(&refusal.message);
        if !refusal.hint.is_empty() {
            let _ = writeln!(std::io::stderr(), "hint: {}", safe(&refusal.hint));
        }
    }
}

fn put(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Text under construction; everything that enters is escaped.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    /// Adds a line.
    pub(crate) fn line(mut self, text: impl std::fmt::Display) -> Self {
        self.0.push_str(&safe_line(&text.to_string()));
        self.0.push('\n');
        self
    }

    /// Adds a line with a name and a value.
    pub(crate) fn field(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.line(format_args!("{name:<10} {value}"))
    }

    /// Adds a line for each value.
    pub(crate) fn lines<T>(self, values: &[T], line: impl Fn(&T) -> String) -> Self {
        values.iter().fold(self, |text, value| text.line(line(value)))
    }
}

/// The bytes of a log on standard output: raw into a pipe or file, escaped on a terminal.
#[derive(Debug)]
pub(crate) struct LogSink(Option<Filter>);

impl LogSink {
    /// Looks at standard output.
    pub(crate) fn stdout() -> Self {
        Self(std::io::stdout().is_terminal().then(Filter::default))
    }

    /// Writes a chunk and flushes it.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.0 {
            Some(filter) => put(&filter.push(bytes)),
            None => {
                let mut out = std::io::stdout().lock();
                out.write_all(bytes)?;
                out.flush()
            }
        }
    }

    /// Writes what was held back.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match &mut self.0 {
            Some(filter) => put(&filter.finish()),
            None => Ok(()),
        }
    }
}

/// The contract's name of an enumeration value, such as `pids_limit`.
pub(crate) fn name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}
