//! `sal commands …`.

pub(crate) mod cancel;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod reconcile;
pub(crate) mod start;
mod wait;
