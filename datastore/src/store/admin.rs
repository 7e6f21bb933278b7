//! What commands do to objects by their path.

pub(crate) mod encrypt;
pub(crate) mod objects;
pub(crate) mod verify;
