//! `sal image …`: an operator's work on the store; no service is needed.

pub(crate) mod default;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod ls;
pub(crate) mod rm;
mod store;
pub(crate) mod verify;
mod view;
