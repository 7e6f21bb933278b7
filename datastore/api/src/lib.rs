//! What the datastore and its callers agree on.
//!
//! [`name`] says which texts may stand in a key, [`key`] which artifact is meant, [`digest`] how its
//! content is named, and [`Client`] speaks all three over HTTP. The server depends on this crate as
//! much as its callers do, so the two cannot drift. It knows nothing of where artifacts lie.

mod chain;
pub mod client;
pub mod digest;
pub mod key;
pub mod name;

pub use chain::chain;
pub use client::{Client, ClientError};
pub use digest::Sha256;
pub use key::{AppliedKey, Attempt, BundleKey, File, PlanFormat, RunKey};
pub use name::{ArtifactName, ClaimId, GitRef, InvalidName, Name, Revision};
