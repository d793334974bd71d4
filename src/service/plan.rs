//! What is done about a run that nobody follows: decided on the ledger, the run's survey, the boot and
//! what this service is configured with (CMD.8, CMD.9). Pure; [`super::recovery`] carries it out.

use crate::domain::digest::Digest;
use crate::domain::job::ImagePin;
use crate::domain::run::{Cleanup, Run};

/// What is done about one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Its supervisor lives: observe it again under its original ids.
    Adopt,
    /// Nobody will tell more: read its records, sweep, settle. Holds how it was lost.
    Settle(&'static str),
    /// Its end is recorded, its cleanup uncertain: sweep it again, and settle it if nothing is left.
    Resweep,
    /// Leave it as it is; grants wait for the reason to go away.
    Keep(String),
    /// Leave it as it is; this start grants nothing that it could be in the way of.
    Leave,
}

/// What commands run with now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configured<'a> {
    /// Name of the executor.
    pub executor: &'a str,
    /// The image.
    pub image: &'a ImagePin,
    /// Digest of the profile.
    pub profile: &'a Digest,
}

/// What the plan depends on beside the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present<'a> {
    /// The current boot.
    pub boot_id: &'a str,
    /// `None` runs no commands.
    pub configured: Option<Configured<'a>>,
}

/// Why a run may be lost, for its outcome.
pub const SUPERVISOR_LOST: &str = "the supervisor was lost";
const REBOOTED: &str = "the host was restarted while the run was live";

/// Decides on one run; `supervised`: somebody lives who will record its end.
pub fn action(run: &Run, supervised: bool, present: Present<'_>) -> Action {
    let Some(configured) = present.configured else { return Action::Leave };
    // Only the original backend can tell what became of a run.
    if let Err(reason) = same_executor(run, configured) {
        return Action::Keep(reason);
    }
    if run.cleanup == Cleanup::Uncertain {
        return match same_origin(run, configured) {
            Ok(()) => Action::Resweep,
            Err(reason) => Action::Keep(reason),
        };
    }
    if run.intent.boot_id != present.boot_id {
        Action::Settle(REBOOTED)
    } else if supervised {
        Action::Adopt
    } else {
        Action::Settle(SUPERVISOR_LOST)
    }
}

fn same_executor(run: &Run, now: Configured<'_>) -> Result<(), String> {
    if run.intent.executor == now.executor {
        return Ok(());
    }
    Err(format!(
        "run {} was started with the executor '{}' and cannot be settled with '{}'",
        run.intent.run_id, run.intent.executor, now.executor
    ))
}

/// Whether an uncertain run may be settled here: only under its original backend, image and profile (CMD.9).
///
/// # Errors
/// The sentence that names what differs.
pub fn same_origin(run: &Run, now: Configured<'_>) -> Result<(), String> {
    same_executor(run, now)?;
    let (id, intent) = (&run.intent.run_id, &run.intent);
    if !intent.image.is_same_image(now.image) {
        return Err(format!(
            "run {id} was started with the image {} ({}) and cannot be settled with {} ({})",
            intent.image.reference, intent.image.manifest, now.image.reference, now.image.manifest
        ));
    }
    if intent.profile != *now.profile {
        return Err(format!(
            "run {id} was started under the profile {} and cannot be settled under {}",
            intent.profile, now.profile
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::run::RunState;
    use crate::ledger::apply::{requested, tests::intent};

    /// Every combination of what the plan depends on, against the table of CMD.8 and CMD.9.
    #[test]
    fn cmd8_the_plan_over_its_whole_table() {
        let states = [RunState::Requested, RunState::Creating, RunState::Running, RunState::Finishing];
        let own = intent();
        let other_image = ImagePin { manifest: Digest::of(b"other"), ..own.image.clone() };
        let other_profile = Digest::of(b"other");
        for state in states {
            for bits in 0..64u32 {
                let bit = |n: u32| bits & (1 << n) != 0;
                let (executor, image, profile) = (bit(0), bit(1), bit(2));
                let (same_boot, supervised, uncertain) = (bit(3), bit(4), bit(5));
                let mut run = requested(own.clone());
                run.state = state;
                if uncertain {
                    run.cleanup = Cleanup::Uncertain;
                }
                let configured = Configured {
                    executor: if executor { "scripted" } else { "oci" },
                    image: if image { &own.image } else { &other_image },
                    profile: if profile { &own.profile } else { &other_profile },
                };
                let boot_id = if same_boot { "boot-1" } else { "boot-2" };
                let present = Present { boot_id, configured: Some(configured) };
                let got = action(&run, supervised, present);
                let kept = |word: &str| matches!(&got, Action::Keep(why) if why.contains(word));
                let fits = if !executor {
                    kept("executor")
                } else if uncertain && !image {
                    kept("image")
                } else if uncertain && !profile {
                    kept("profile")
                } else if uncertain {
                    got == Action::Resweep
                } else if !same_boot {
                    got == Action::Settle(REBOOTED)
                } else if supervised {
                    got == Action::Adopt
                } else {
                    got == Action::Settle(SUPERVISOR_LOST)
                };
                assert!(fits, "{state:?} {bits:06b}: {got:?}");
                assert_eq!(same_origin(&run, configured).is_ok(), executor && image && profile);
                let none = Present { boot_id, configured: None };
                assert_eq!(action(&run, supervised, none), Action::Leave);
            }
        }
    }
}
