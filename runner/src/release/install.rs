//! Installed binaries: installation, storage and verification.

pub(crate) mod digest_cache;
pub(crate) mod installer;
pub(crate) mod path_binary;
pub(crate) mod probe;
pub(crate) mod store;
pub(crate) mod unpack;
