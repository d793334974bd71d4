//! `sal tool …`.

pub(crate) mod call;
