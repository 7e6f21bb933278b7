//! Signatures and the keys that are trusted.

pub(crate) mod keyring;
pub(crate) mod keys;
pub(crate) mod signature;
