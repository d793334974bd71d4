//! Colours on a terminal, and when.

use clap::ValueEnum;
use std::env;
use std::io::IsTerminal as _;

/// When colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`
    Auto,
    /// Even into a pipe
    Always,
    /// Not at all
    Never,
}

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// A line as it is.
    Plain,
    /// A line of a header.
    Header,
    /// Where a hunk begins.
    Hunk,
    /// A line that came.
    Added,
    /// A line that went.
    Deleted,
    /// Something said beside the text.
    Note,
}

/// Whether standard output gets colours.
pub(crate) fn wanted(when: When) -> bool {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    // https://no-color.org: any value that is not empty.
    let dumb = set("TERM").is_none_or(|term| term == "dumb");
    decide(when, std::io::stdout().is_terminal(), set("NO_COLOR").is_some(), dumb)
}

fn decide(when: When, terminal: bool, no_color: bool, dumb: bool) -> bool {
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto => terminal && !no_color && !dumb,
    }
}

/// Colours escaped text of one line, where colours are wanted (ECMA-48, SGR).
pub(crate) fn painted(text: &str, paint: Paint, colours: bool) -> String {
    let code = match paint {
        Paint::Plain => return text.to_owned(),
        _ if !colours || text.is_empty() => return text.to_owned(),
        Paint::Header => "1",
        Paint::Hunk => "36",
        Paint::Added => "32",
        Paint::Deleted => "31",
        Paint::Note => "33",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ws7_colours_are_for_terminals_that_want_them() {
        assert!(decide(When::Auto, true, false, false));
        for (terminal, no_color, dumb) in [(false, false, false), (true, true, false), (true, false, true)] {
            assert!(!decide(When::Auto, terminal, no_color, dumb));
            assert!(decide(When::Always, terminal, no_color, dumb));
        }
        assert!(!decide(When::Never, true, false, false));
    }
}
