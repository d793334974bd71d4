//! `sal session …`.

pub(crate) mod create;
pub(crate) mod end;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod rm;
mod text;
