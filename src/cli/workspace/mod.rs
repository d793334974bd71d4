//! `sal workspace …`.

pub(crate) mod diff;
pub(crate) mod inspect;
pub(crate) mod refresh;
