//! `sal image …`: an operator's work on the store; no service is needed.

pub(crate) mod default;
pub(crate) mod gc;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod ls;
pub(crate) mod pull;
mod pulling;
pub(crate) mod rm;
mod store;
mod users;
pub(crate) mod verify;
mod view;
