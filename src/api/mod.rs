//! The control interface: HTTP/1.1 and JSON over a Unix socket in the state directory.
//!
//! This layer only validates and translates: [`wire`] holds what is said, [`routes`] turns requests
//! into calls of the service, [`server`] and [`client`] move the bytes.

mod answer;
mod body;
pub mod client;
mod convert;
mod extract;
pub mod openapi;
pub mod routes;
pub mod server;
pub mod socket;
pub mod wire;
