//! A `file://` storage: a directory of files.

pub(crate) mod attribute;
pub(crate) mod beneath;
pub(crate) mod dirs;
pub(crate) mod disk;
pub(crate) mod files;
pub(crate) mod io_threads;
pub(crate) mod jobs;
pub(crate) mod leftovers;
pub(crate) mod links;
pub(crate) mod local;
pub(crate) mod publish;
pub(crate) mod root;
pub(crate) mod staged;
pub(crate) mod walk;
