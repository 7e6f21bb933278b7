//! What the datastore and its callers share: names, keys and digests of artifacts, durations, and the HTTP client.
//!
//! [`name`] checks the parts of a key, [`key`] identifies an artifact, [`state`] describes states and leases, [`layers`] lists them, [`status`] the status of layers, [`document`] their documents, [`approval`]
//! approvals of changes, [`plan`] versions of plans, [`json`] reads JSON of others, [`digest`] identifies content, and [`Client`] transfers it over HTTP. The server and its callers use the same types, so they cannot diverge. Both programs also read the first
//! words of their command line ([`entry_point`]) and show panics ([`panics`]) in one way. This crate does not know where
//! artifacts are stored.

pub mod approval;
mod chain;
pub mod client;
pub mod digest;
pub mod document;
mod duration;
pub mod entry_point;
pub mod json;
pub mod key;
pub mod layers;
pub mod name;
pub mod panics;
pub mod plan;
pub mod state;
pub mod status;

pub use approval::RunAttempt;
pub use chain::chain;
pub use client::{Client, ClientError};
pub use digest::Sha256;
pub use document::DocumentKey;
pub use duration::{HumanDuration, InvalidDuration};
pub use key::{AppliedKey, Attempt, BundleKey, File, PlanFormat, RunKey};
pub use name::{ArtifactName, ClaimId, GitRef, InvalidName, Name, Revision};
pub use state::{StateKey, VersionId};
