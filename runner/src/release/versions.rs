//! Release sites and their lists of versions.

pub(crate) mod fetch;
pub(crate) mod formats;
pub(crate) mod layout;
pub(crate) mod mirror_settings;
pub(crate) mod site;
pub(crate) mod unreachable;
