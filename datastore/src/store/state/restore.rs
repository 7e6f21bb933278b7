//! Restores: an old version of a state becomes the state again, as a new version.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use datastore_api::state::StateVersion;
use datastore_api::{Sha256, StateKey, VersionId};
use futures::{TryStreamExt as _, stream};

use crate::store::handle::Store;
use crate::store::key::Key;
use crate::store::state::control::held::Claims;
use crate::store::state::document::{InvalidState, MAX_SERIAL, serial_range};
use crate::store::state::error::StateError;
use crate::store::state::write::{Announced, Body, Origin};
use crate::transport::memory::Lease;

/// How long a restore waits for memory.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(10);

impl Store {
    /// Makes an old version the state again, with the next serial. An encrypted one cannot be changed: it begins a new
    /// generation. The document is held in memory, once.
    pub async fn restore_state(
        &self,
        key: &StateKey,
        id: VersionId,
        origin: Origin,
    ) -> Result<(), StateError> {
        let old = self.find_version(key, &id).await?;
        let size = self.stat(&Key::State(key.clone(), id.clone())).await?.meta.size;
        let _memory = self.memory_for_restore(key, &origin, size).await?;
        let content = self.read_version(key, &old, size).await?;
        let serial_at = if old.encrypted {
            None
        } else {
            let found = serial_range(&content);
            Some(found.ok_or_else(|| InvalidState("it has no serial".to_owned()))?)
        };
        loop {
            let state = self.last_state(key).await?;
            let (highest, present) = (state.highest_serial, state.version);
            let next = || highest.checked_add(1).filter(|next| *next <= MAX_SERIAL);
            let pieces = match &serial_at {
                None => vec![content.clone()],
                Some(at) => {
                    let serial = if present.is_some() { next() } else { Some(old.serial) };
                    let serial = serial.ok_or(StateError::LastSerial(highest))?.to_string();
                    vec![content.slice(..at.start), serial.into(), content.slice(at.end..)]
                }
            };
            let body: Body = Box::new(stream::iter(pieces.into_iter().map(Ok)));
            let earlier = present.as_ref().map(|version| &version.version);
            let stored =
                self.store_version(key, origin.clone(), earlier, Announced::default(), body);
            let (version, _) = stored.await?;
            let reason = Some(format!("restored from the version {id}"));
            let version = StateVersion { reason, ..version };
            if let Some(present) = &present {
                self.describe_version(key, present).await?;
            }
            if self.commit_restored(key, &version, present).await?
                || self.has_been_state(key, &version).await?
            {
                return Ok(());
            }
        }
    }

    /// The memory for a document, and for its upload.
    async fn memory_for_restore(
        &self,
        key: &StateKey,
        origin: &Origin,
        size: u64,
    ) -> Result<Lease, StateError> {
        let upload = self.upload_memory().min(usize::try_from(size).unwrap_or(usize::MAX));
        let needed = usize::try_from(size).ok().and_then(|size| size.checked_add(upload));
        let needed = needed.filter(|needed| *needed <= self.memory.largest());
        let tenant = origin.tenant(key);
        let taken = match needed {
            Some(needed) => self.memory.take(&tenant.into(), needed, MEMORY_TIMEOUT).await,
            None => None,
        };
        taken.ok_or(StateError::NoMemory { size, fits: needed.is_some() })
    }

    /// The document of a version, which must have the digest that was recorded with it.
    async fn read_version(
        &self,
        key: &StateKey,
        version: &StateVersion,
        size: u64,
    ) -> Result<Bytes, StateError> {
        let document = Key::State(key.clone(), version.version.clone());
        let (_, mut bytes) = self.open_whole(&document).await?;
        let mut content = BytesMut::with_capacity(usize::try_from(size).unwrap_or_default());
        while let Some(piece) = bytes.try_next().await? {
            content.extend_from_slice(&piece);
        }
        if Sha256::of(&content) == version.sha256 {
            return Ok(content.freeze());
        }
        let path = document.to_path().unwrap_or_default();
        Err(StateError::Damaged(format!("`{path}` has other bytes than this version had")))
    }

    /// Makes a restored version the state; `false` if another version became it meanwhile.
    async fn commit_restored(
        &self,
        key: &StateKey,
        version: &StateVersion,
        present: Option<StateVersion>,
    ) -> Result<bool, StateError> {
        let (workspace, claims) = (key.workspace.as_ref(), Claims::default());
        self.change_control(&key.into(), |control, now| {
            let state = control.states.get(workspace);
            let last = state.and_then(|state| state.version.as_ref());
            if last.is_some_and(|last| last.version == version.version) {
                // The answer to an earlier try was lost, and the layer has been changed since.
                return Ok(true);
            }
            if last.map(|last| &last.version) != present.as_ref().map(|present| &present.version) {
                return Ok(false);
            }
            control.check_writer(workspace, &claims, now)?;
            let is_next = last.is_some_and(|last| {
                last.lineage == version.lineage && last.serial < version.serial
            });
            let is_deleted = state.is_some_and(|state| state.deleted.is_some());
            let generation = last.map_or(0, |last| last.generation);
            let generation = generation + u64::from(!is_next || is_deleted);
            control.set_version(
                workspace,
                StateVersion { generation, ..version.clone() },
                &claims,
            )?;
            Ok(true)
        })
        .await
    }
}
