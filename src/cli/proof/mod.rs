//! `sal proof …`.

pub(crate) mod compare;
pub(crate) mod show;
