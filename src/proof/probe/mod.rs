//! The probe: our own static executable, run inside a container by the same path as a command,
//! which reports what it finds as one JSON object. It never uses a program of the image.

mod limits;
mod surroundings;
mod sys;

use super::observation::Observation;
use crate::domain::profile::Profile;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Entry of `sal probe PROFILE_JSON`: how far to push each limit is read from the profile that the
/// proof expects.
pub fn main(args: &[OsString]) -> ExitCode {
    let profile = args.first().and_then(|text| serde_json::from_str::<Profile>(text.to_str()?).ok());
    let Some(profile) = profile else {
        eprintln!("probe: this entry is for the startup proof alone");
        return ExitCode::from(2);
    };
    let mut seen = Observation::default();
    surroundings::observe(&mut seen);
    limits::observe(&mut seen, &profile);
    match serde_json::to_vec(&seen) {
        Ok(text) if std::io::stdout().write_all(&text).is_ok() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
