//! What a checkout needs to know of its run.

use datastore_api::Client;

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
