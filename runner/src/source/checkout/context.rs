//! What a checkout needs to know of its run.

use std::path::{Component, Path, PathBuf};

use datastore_api::Client;
use fs_err as fs;

use crate::cli::Environment;
use crate::process::Signals;
use crate::source::checkout::source_id::SourceId;
use crate::source::scratch::Scratch;

/// The local states of a module: of the default workspace, and of the others.
const STATES: [&str; 2] = ["terraform.tfstate", "terraform.tfstate.d"];

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
    /// Whether a writable directory is copied as well: the runner adds a file beside the code of the module.
    pub(crate) in_copy: bool,
    /// Whether terragrunt runs the tool: its configuration may be in any parent directory.
    pub(crate) has_terragrunt: bool,
    /// The commit of the plan to apply: a repository or bundle is checked out there.
    pub(crate) planned: Option<&'a str>,
}

impl CheckoutContext<'_> {
    /// What no copy of a writable directory has, absolute or below it: the local states of the module at `path`, which init
    /// would want to move, data of the tool, and files of runs.
    pub(super) fn not_in_copies(&self, path: &Path) -> Vec<PathBuf> {
        let data_dir = self.environment.tf_data_dir.as_deref().filter(|dir| dir.is_relative());
        let of_module = STATES.into_iter().map(Path::new).chain(data_dir);
        let scratch = fs::canonicalize(self.scratch.join("")).ok();
        of_module.map(|name| path.join(name)).chain(scratch).collect()
    }

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
