//! The proof's negatives (PRF.2): for each control, the same probe in a container without it must
//! report the weakness, so that no check of the proof can pass vacuously.

use crate::host::Image;
use crate::weak::{Bench, bundle, own_bundle};
use libtest_mimic::Trial;
use salaam::domain::profile::{Control, Profile};
use salaam::proof::expectation::{Finding, judge};
use salaam::service::prove::ContainerProver;

pub const CASES: &[(&str, fn())] = &[("prf1_the_fixed_profile_passes_every_control", fixed)];

fn findings(image: Image, actual: &Profile) -> Vec<Finding> {
    // Without a /dev of its own a container writes device nodes into its root file system.
    let bench = Bench::new(|dir| if actual.deny_devices { bundle(image) } else { own_bundle(image, dir) });
    let prover = ContainerProver::new(bench.backend.clone(), bench.dir.path().to_owned());
    let expected = Profile::fixed();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let probed = runtime.block_on(prover.probe(actual, &expected)).unwrap();
    judge(&expected, &probed.seen, &probed.outside)
}

fn fixed() {
    for image in Image::ALL {
        let failed: Vec<Finding> =
            findings(image, &Profile::fixed()).into_iter().filter(|f| !f.passed).collect();
        assert!(failed.is_empty(), "{image:?}: {failed:#?}");
    }
}

/// One trial a control.
pub fn trials() -> Vec<Trial> {
    Control::ALL
        .into_iter()
        .map(|control| {
            crate::trial(format!("prf2_negative_{control:?}"), move || {
                let weak = control.weaken(&Profile::fixed());
                // A busy host can keep a container below a quota that is not there.
                let tries = if control == Control::Cpu { 5 } else { 1 };
                let seen: Vec<Finding> = (0..tries)
                    .filter_map(|_| findings(Image::Musl, &weak).into_iter().find(|f| f.control == control))
                    .collect();
                assert!(seen.iter().any(|f| !f.passed), "the weakness was not noticed: {seen:#?}");
            })
        })
        .collect()
}
