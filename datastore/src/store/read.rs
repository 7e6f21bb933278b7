//! Reading an object: whole and verified, or a range of it.

pub(crate) mod get;
pub(crate) mod pieces;
pub(crate) mod ranged;
