//! The control interface from outside: a service on the scripted executor behind its real socket.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cli;
mod diff;
mod peer;
mod rig;
mod routes;
mod socket;
mod tools;
