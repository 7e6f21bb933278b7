//! What a checkout needs to know of its run.

use std::path::{Component, PathBuf};

use datastore_api::Client;
use fs_err as fs;

use crate::cli::Environment;
use crate::process::Signals;
use crate::source::checkout::source_id::SourceId;
use crate::source::scratch::Scratch;

/// What a checkout needs to know of its run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckoutContext<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) scratch: &'a Scratch,
    pub(crate) signals: &'a Signals,
    pub(crate) datastore: Option<&'a Client>,
    /// Whether submodules and LFS files are fetched and required.
    pub(crate) submodules: bool,
    /// Where the code comes from, if that is known.
    pub(crate) source_id: Option<&'a SourceId>,
    /// The commit of the plan to apply: a repository or bundle is checked out there.
    pub(crate) planned: Option<&'a str>,
}

impl CheckoutContext<'_> {
    /// Directories that the user has named for data of the tools. Relative ones are in each module.
    pub(in crate::source) fn of_tools(&self) -> Vec<PathBuf> {
        let Environment { tf_data_dir, terragrunt_downloads, .. } = self.environment;
        let named = tf_data_dir.iter().chain(terragrunt_downloads);
        let normal = named.map(|dir| match fs::canonicalize(dir) {
            Ok(real) if dir.is_absolute() => real,
            _ => dir.components().filter(|part| *part != Component::CurDir).collect(),
        });
        normal.collect()
    }
}
