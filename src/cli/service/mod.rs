//! `sal service …`.

mod assemble;
mod detach;
mod foreground;
mod log_file;
mod options;
mod report;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod stop;
mod text;
mod workspaces;
