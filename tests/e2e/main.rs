//! The whole product, black box, on both images: a real service, real containers, real packages.
//!
//! One service an image serves all cases, one case at a time (two commands a service are admitted).
//! At the end the services are stopped and the host is searched for leftovers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../fixtures/oci_layout.rs"]
#[allow(dead_code)]
mod oci_layout;
#[path = "../fixtures/registry.rs"]
#[allow(dead_code)]
mod registry;

mod attacks;
mod bad_input;
mod cases;
mod clients;
mod commands;
mod disk;
mod document;
#[path = "../fixtures/excluded.rs"]
mod excluded;
mod host;
mod image;
mod names;
mod negatives;
mod packages;
mod pulled;
mod review;
mod service;
mod traps;
mod weak;

use host::{Host, Image, leftovers};
use libtest_mimic::{Arguments, Failed, Trial};
use std::sync::{Arc, Mutex, PoisonError};

/// A case that is run once on each image with that image's service.
pub type Case = (&'static str, fn(&Host));

fn main() {
    let mut args = Arguments::from_args();
    args.test_threads = Some(1);
    let before = leftovers();
    let hosts: Vec<Arc<Mutex<Option<Host>>>> = Image::ALL.iter().map(|_| Arc::default()).collect();
    let mut trials = Vec::new();
    for (image, host) in Image::ALL.into_iter().zip(&hosts) {
        for cases in [
            packages::CASES,
            commands::CASES,
            attacks::CASES,
            cases::CASES,
            names::CASES,
            image::EACH,
            pulled::CASES,
        ] {
            for (name, case) in cases {
                let host = Arc::clone(host);
                trials.push(trial(format!("{name}::{}", image.name()), move || {
                    let mut slot = host.lock().unwrap_or_else(PoisonError::into_inner);
                    case(slot.get_or_insert_with(|| Host::start(image)));
                }));
            }
        }
    }
    for cases in [
        service::CASES,
        clients::CASES,
        traps::CASES,
        bad_input::CASES,
        document::CASES,
        disk::CASES,
        review::CASES,
        image::CASES,
        negatives::CASES,
    ] {
        for (name, case) in cases {
            trials.push(trial((*name).to_owned(), *case));
        }
    }
    let last = hosts.clone();
    trials.push(trial("zz_nothing_is_left_behind".to_owned(), move || {
        for host in &last {
            host.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        let left: Vec<String> = leftovers().into_iter().filter(|l| !before.contains(l)).collect();
        assert!(left.is_empty(), "left behind: {left:#?}");
    }));
    trials.extend(negatives::trials());
    trials.sort_by_key(|t| t.name().starts_with("zz_"));
    let conclusion = libtest_mimic::run(&args, trials);
    for host in hosts {
        host.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
    conclusion.exit();
}

/// Turns a panic of a case into its failure.
pub fn trial(name: String, case: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(case)).map_err(|e| {
            let text = e.downcast_ref::<String>().cloned();
            let text = text.or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Failed::from(text.unwrap_or_else(|| "panicked".to_owned()))
        })
    })
}
