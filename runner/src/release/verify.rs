//! Signatures and trusted keys.

pub(crate) mod keyring;
pub(crate) mod keys;
pub(crate) mod signature;
