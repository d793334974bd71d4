//! `sal workspace …`.

pub(crate) mod diff;
mod diff_stat;
mod diff_view;
pub(crate) mod inspect;
pub(crate) mod refresh;
