//! What a checkout needs to know of its run.

use datastore_api::Client;

use crate::cli::Environment;
use crate::process::Signals;
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
    /// The repository of the code, as the order names it.
    pub(crate) repository: Option<&'a str>,
    /// The commit of the plan to apply: a repository or bundle is checked out there.
    pub(crate) planned: Option<&'a str>,
}
