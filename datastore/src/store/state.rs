//! Terraform states: their versions, locks and leases.
//!
//! Each version of a state is an object that never changes (`states/...`). One small *control object* per layer has what
//! changes: which version is the state of each workspace, its lock, and the lease of the layer. It is replaced on the
//! condition that nobody else has replaced it, and that is the one step that commits a write, a lock or a lease.
//!
//! [`control`] has the rules, without a storage, and [`credential`] those for the credentials of leases; [`paths`] and
//! [`document`] know paths and documents; [`swap`] reads and replaces a control object; [`versions`] stores and lists versions;
//! [`exclusive`] excludes other processes over one directory; [`mod@write`] has the operations, and [`restore`] restores; [`admin`] is for the commands that
//! maintain a storage. None of them knows HTTP.

pub(crate) mod admin;
pub(crate) mod control;
pub(crate) mod credential;
pub(crate) mod document;
pub(crate) mod error;
pub(crate) mod exclusive;
pub(crate) mod lease;
pub(crate) mod paths;
pub(crate) mod restore;
pub(crate) mod settings;
pub(crate) mod swap;
pub(crate) mod versions;
pub(crate) mod write;

use datastore_api::Name;

/// The layer of a control object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LayerKey {
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub layer: Name,
}
