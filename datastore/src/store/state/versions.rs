//! Versions of states: their descriptions and listings.
//!
//! The document of a version is an artifact (`Key::State`). Its description is a small object of our own. That of a version
//! that was the state is written before another one replaces it; that of the present one is in the control object.

use bytes::Bytes;
use datastore_api::state::{StateKind, StateVersion, States};
use datastore_api::{Sha256, StateKey, VersionId, chain};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use object_store::{Error, ObjectStoreExt as _};

use crate::store::backend::directory::walk;
use crate::store::backend::metered::{STAT_TIMEOUT, in_time, put_timeout};
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::parse;
use crate::store::state::control::State;
use crate::store::state::error::StateError;
use crate::store::state::paths::{description_path, directory};

/// Descriptions that are read at once.
pub(super) const PARALLEL_READS: usize = 16;
/// The last member of a description, before its value.
const DIGEST: &str = ",\"description_sha256\":\"";

impl Store {
    /// A page of a state's versions, newest first, and its head. `after` is the last version of the previous page.
    pub async fn state_versions(
        &self,
        key: &StateKey,
        kind: Option<StateKind>,
        limit: usize,
        after: Option<&VersionId>,
    ) -> Result<States, StateError> {
        let control = self.control(&key.into()).await?;
        let state = control.states.get(key.workspace.as_ref());
        let kinds = match kind {
            Some(kind) => vec![kind],
            None => vec![StateKind::Head, StateKind::Snapshot],
        };
        // The present version has no description yet, or the same one.
        let present = state.and_then(|state| state.version.clone());
        let present = present.filter(|_| kinds.contains(&StateKind::Head));
        let present = present.filter(|version| after.is_none_or(|after| version.version > *after));
        let mut ids = Vec::new();
        ids.extend(present.iter().map(|version| (version.version.clone(), StateKind::Head)));
        for kind in kinds {
            let found = self.version_ids(key, kind, limit + 1, after).await?;
            ids.extend(found.into_iter().map(|id| (id, kind)));
        }
        ids.sort_by(|(a, _), (b, _)| a.cmp(b));
        ids.dedup_by(|(a, _), (b, _)| a == b);
        let next = (ids.len() > limit).then(|| ids[limit - 1].0.to_string());
        ids.truncate(limit);
        let versions = stream::iter(ids).map(async |(id, kind)| match &present {
            Some(version) if version.version == id => Ok(Some(version.clone())),
            _ => self.described_version(key, kind, &id).await,
        });
        let versions = versions.buffered(PARALLEL_READS);
        let versions = versions.try_filter_map(async |version| Ok(version)).try_collect().await?;
        let head = state.map(State::head).unwrap_or_default();
        Ok(States { head, versions, next })
    }

    /// The ids of described versions of a kind, newest first.
    pub(super) async fn version_ids(
        &self,
        key: &StateKey,
        kind: StateKind,
        limit: usize,
        after: Option<&VersionId>,
    ) -> Result<Vec<VersionId>, StoreError> {
        let prefix = parse(&directory(key, kind))?;
        let names = if let Some(disk) = &self.disk {
            let found = walk::objects(disk.clone(), prefix.as_ref()).map_err(backend_error);
            found.map_ok(|object| object.key).boxed()
        } else {
            let listed = match after {
                Some(after) => self
                    .objects
                    .list_with_offset(Some(&prefix), &parse(&format!("{prefix}/{after}"))?),
                None => self.objects.list(Some(&prefix)),
            };
            listed.map_ok(|meta| meta.location.to_string()).map_err(backend_error).boxed()
        };
        let ids = names.try_filter_map(async |name| {
            let id = name.rsplit_once('/').and_then(|(_, id)| id.parse::<VersionId>().ok());
            Ok(id.filter(|id| after.is_none_or(|after| id > after)))
        });
        ids.take(limit).try_collect().await
    }

    /// The description of a version; `None` if there is none.
    pub async fn described_version(
        &self,
        key: &StateKey,
        kind: StateKind,
        id: &VersionId,
    ) -> Result<Option<StateVersion>, StateError> {
        let path = parse(&description_path(key, kind, id))?;
        let read = async {
            match self.objects.get(&path).await {
                Err(Error::NotFound { .. }) => Ok(None),
                found => Ok::<_, Error>(Some(found?.bytes().await?)),
            }
        };
        let read = in_time(STAT_TIMEOUT, "read the description of a version", read).await;
        let Some(bytes) = read.map_err(backend_error)?.map_err(backend_error)? else {
            return Ok(None);
        };
        decode(&bytes).map(Some).ok_or_else(|| StateError::DamagedDescription(path.to_string()))
    }

    /// The description of a version of any kind that can be read: the present one, an earlier one, a snapshot, or one that
    /// was refused.
    pub async fn find_version(
        &self,
        key: &StateKey,
        id: &VersionId,
    ) -> Result<StateVersion, StateError> {
        let control = self.control(&key.into()).await?;
        let state = control.states.get(key.workspace.as_ref());
        if let Some(version) = state.and_then(|state| state.version.as_ref())
            && version.version == *id
        {
            return Ok(version.clone());
        }
        for kind in [StateKind::Head, StateKind::Snapshot, StateKind::Rejected] {
            if let Some(version) = self.described_version(key, kind, id).await? {
                return Ok(version);
            }
        }
        Err(StateError::NoState("version of the state with this id"))
    }

    /// Writes the description of a version.
    pub(super) async fn describe_version(
        &self,
        key: &StateKey,
        version: &StateVersion,
    ) -> Result<(), StateError> {
        let path = parse(&description_path(key, version.kind, &version.version))?;
        let stored = encode(version).map_err(|error| StateError::Damaged(error.to_string()))?;
        let put = self.put_internal(&path, stored);
        let put = in_time(put_timeout(0), "describe a version", put).await;
        Ok(put.map_err(backend_error)??)
    }

    /// Writes the description of a version that would only be missed in a listing.
    pub(super) async fn try_describe_version(&self, key: &StateKey, version: &StateVersion) {
        if let Err(error) = self.describe_version(key, version).await {
            let error = chain(&error);
            tracing::warn!(error, state = %key, version = %version.version, "a version of a state is not listed");
        }
    }
}

/// A description as it is stored. Its last member is the digest of the others, so no changed bit of them reads as another version.
/// Releases that write none ignore it.
fn encode(version: &StateVersion) -> serde_json::Result<Bytes> {
    let json = serde_json::to_string(version)?;
    let members = json.strip_suffix('}').unwrap_or(&json);
    Ok(format!("{members}{DIGEST}{}\"}}", Sha256::of(json.as_bytes())).into())
}

/// The content of a stored description; `None` if it is damaged. That of an earlier release has no digest.
fn decode(stored: &[u8]) -> Option<StateVersion> {
    let Some((members, digest)) = str::from_utf8(stored).ok()?.rsplit_once(DIGEST) else {
        return serde_json::from_slice(stored).ok();
    };
    let json = format!("{members}}}");
    let digest = digest.strip_suffix("\"}")?.parse::<Sha256>().ok()?;
    if digest == Sha256::of(json.as_bytes()) { serde_json::from_str(&json).ok() } else { None }
}
