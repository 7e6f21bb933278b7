//! Mirrors of release sites: reading their layout and filling one.

pub(crate) mod fill;
pub(crate) mod tenv_remote_yaml;
