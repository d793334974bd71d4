//! The `sal` command line: one file for each verb, text and `--json`, exit codes.
//!
//! Only this module reads the environment and the home directory and knows of terminals. Verbs speak
//! to the service through [`crate::api::client`]; `service start` alone assembles one.

mod args;
mod attach;
mod colour;
mod commands;
mod connect;
mod entry;
mod failure;
mod image;
mod mcp;
mod openapi;
mod output;
mod places;
mod progress;
mod proof;
mod run_text;
mod service;
mod session;
mod terminal;
mod tool;
mod verbs;
mod workspace;

pub use entry::main;
