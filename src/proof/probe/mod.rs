//! x
use std::ffi::OsString;
use std::process::ExitCode;
/// x
pub fn main(_args: &[OsString]) -> ExitCode {
    ExitCode::SUCCESS
}
