//! Artifacts by key: stored whole or not at all, and read back verified.
//!
//! It is the only room that knows `object_store` and the paths of artifacts ([`key`]). It knows nothing of HTTP.
//!
//! [`handle`] is the [`Store`] that everything else extends: reading, writing, the index of runs, maintenance and
//! probes are `impl Store` blocks in their own modules. Modules below `backend` know no `Store`.

#![expect(clippy::disallowed_types, reason = "this is the room for ObjectStore")]

pub(crate) mod admin;
pub(crate) mod approvals;
pub(crate) mod attempts;
pub(crate) mod backend;
pub(crate) mod digest_record;
pub(crate) mod documents;
pub mod encryption;
pub(crate) mod error;
pub(crate) mod handle;
pub(crate) mod key;
pub(crate) mod object;
pub(crate) mod probe;
pub(crate) mod read;
pub(crate) mod run_index;
pub(crate) mod state;
pub(crate) mod write;

pub use crate::store::admin::verify::Verdict;
pub use crate::store::approvals::ApprovalError;
pub(crate) use crate::store::approvals::Asker;
pub(crate) use crate::store::attempts::changes::ChangesError;
pub use crate::store::attempts::claims::{CLAIMS, Claim};
pub use crate::store::attempts::live::append::{Append, AppendError, Appended, MAX_APPEND};
pub(crate) use crate::store::attempts::live::follow::{Follower, Waited};
pub use crate::store::attempts::live::merge::live_attempt;
pub use crate::store::backend::cloud::bucket::Cloud;
pub use crate::store::backend::cloud::provider::Provider;
pub use crate::store::backend::cloud::variables::Variables;
pub use crate::store::backend::directory::dirs::check_directory_in_time;
pub use crate::store::backend::directory::links::Link;
pub use crate::store::backend::metered::Calls;
pub(crate) use crate::store::backend::reason::{concise, reason};
pub use crate::store::backend::storage::Storage;
pub use crate::store::documents::ReadStatus;
pub use crate::store::error::{BoxError, StoreError};
pub use crate::store::handle::Store;
pub use crate::store::key::{
    APPLIED, APPROVALS, ApprovalKey, ApprovalPart, CHANGES, DOCUMENTS, INDEX, Key, LIVE, LivePart,
    SUMMARIES, is_own,
};
pub use crate::store::object::{ByteStream, Meta, Object};
pub use crate::store::probe::ability::Ability;
pub use crate::store::probe::health::ProbeResults;
pub use crate::store::probe::uploads::{NEEDED, Tried};
pub use crate::store::read::get::OpenedVersion;
pub(crate) use crate::store::run_index::layers::summary::{Source, Summary};
pub use crate::store::run_index::run_set::RunSet;
pub use crate::store::state::LayerKey;
pub use crate::store::state::admin::{KeptState, LayerStates, StateFault};
pub use crate::store::state::control::held::Claims;
pub use crate::store::state::error::StateError;
pub use crate::store::state::paths::{StateObject, description_path};
pub use crate::store::state::settings::StateSettings;
pub use crate::store::state::write::{Announced, Origin};
pub use crate::store::write::conditions::PutConditions;
