//! Black-box tests of the image store (IMG.1–4, attack A3). They make their own small layouts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../fixtures/oci_layout.rs"]
mod oci_layout;
#[path = "../fixtures/registry.rs"]
mod registry;

mod archives;
mod case;
mod crash;
mod fake;
mod front;
mod gc;
mod hostile;
mod import;
mod layers;
mod layout;
mod liars;
mod logins;
mod pull;
mod pulling;
mod seeds;
mod store;
mod tls;
mod unpack;
