//! Reading an object: whole and verified, or a range of it.

pub(crate) mod get;
pub(crate) mod ranged;
