//! An image that was pulled by digest runs a real project (IMG.1–4).

use crate::Case;
use crate::host::{Host, SAL, Seen, fixture, image_store, summary};
use crate::registry::{Auth, Registry};
use salaam::domain::digest::Digest;
use std::process::Command;

pub const CASES: &[Case] = &[("img3_a_bundle_pulled_by_digest_runs_a_real_package", pulled)];

/// On the service's own image, from a registry on this machine into a store of its own.
fn pulled(host: &Host) {
    let other = Host::prepare(host.image);
    let pin = host.image.pin();
    let manifest = Digest::parse(pin.split_once('@').unwrap().1).unwrap();
    let registry = Registry::start(&other.path().join("registry"), &Auth::None);
    // The store keeps blobs as a layout does.
    registry.push("salaam/node", &image_store(), &manifest);
    let store = other.path().join("images");
    let named = format!("{}/salaam/node:26@{manifest}", registry.host());
    let pull = || {
        let mut sal = Command::new(SAL);
        sal.args(["image", "pull", "--json", &named, "--image-store"]).arg(&store);
        Seen::from(sal.output().unwrap()).ok().json()
    };
    let (first, second) = (pull(), pull());
    assert_eq!(first["manifest"], manifest.as_str());
    assert_eq!((first["pulled_layers"].as_u64(), second["pulled_layers"].as_u64()), (Some(2), Some(0)));
    let (coding, reference) = (other.coding(), first["reference"].as_str().unwrap());
    let start = ["service", "start", "--coding-root", coding.to_str().unwrap(), "--image", reference];
    other.sal(&[&start[..], &["--image-store", store.to_str().unwrap()]].concat()).ok();
    let ran = other.run(&other.session(&fixture("error-4.3.0")), "node --test");
    assert_eq!(
        (ran.code, summary(&ran.output, "pass 36"), summary(&ran.output, "fail 0")),
        (0, 1, 1),
        "{ran:?}"
    );
    let image = ran.run["image"].to_string();
    assert!(image.contains(manifest.as_str()), "the run's own record names the digest: {image}");
}
