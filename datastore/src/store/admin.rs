//! Maintenance of stored objects by their paths.

pub(crate) mod cleanup;
pub(crate) mod encrypt;
pub(crate) mod objects;
pub(crate) mod verify;
