//! Writes of states: each stores an immutable version first, and commits it by the control object. [`super::restore`] has restores.

use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
use datastore_api::state::{LayerTool, StateHead, StateKind, StateVersion, ToolRecord};
use datastore_api::{Sha256, StateKey, VersionId, chain};
use futures::{Stream, TryStreamExt as _};
use jiff::Timestamp;
use object_store::{Error, ObjectStoreExt as _};
use serde_json::Value;

use crate::store::error::{BoxError, StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, parse, random};
use crate::store::state::LayerKey;
use crate::store::state::control::held::{Claims, Lock};
use crate::store::state::control::{Control, Order, State};
use crate::store::state::document::{InvalidState, READER, StateDocument, inspected};
use crate::store::state::error::StateError;
use crate::store::state::paths::hash_path;
use crate::store::write::conditions::PutConditions;

/// How long a write waits until its document, or that of an earlier version, can be read.
const READER_TIMEOUT: Duration = Duration::from_secs(10);

/// Who writes a version, as its description shows it.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The run, as `<run>/<attempt>`.
    pub run: Option<String>,
    /// The tool.
    pub tool: Option<LayerTool>,
    /// The caller.
    pub caller: Option<String>,
}

impl Origin {
    /// To whom the write is accounted: the caller, or, where callers are not authenticated, the namespace.
    pub(super) fn tenant<'a>(&'a self, key: &'a StateKey) -> &'a str {
        self.caller.as_deref().unwrap_or(key.namespace.as_ref())
    }
}

/// The digests that a caller announced.
#[derive(Clone, Copy, Debug, Default)]
pub struct Announced {
    /// Of `Repr-Digest`.
    pub sha256: Option<Sha256>,
    /// Of `Content-MD5`.
    pub md5: Option<[u8; 16]>,
}

/// A body of a state.
pub(super) type Body = Box<dyn Stream<Item = Result<Bytes, BoxError>> + Send + Unpin + 'static>;

/// A version that is stored and may become the state.
struct Write<'a> {
    workspace: &'a str,
    claims: &'a Claims,
    version: &'a StateVersion,
    document: &'a StateDocument,
    force: bool,
}

/// What became of a try to commit a version.
enum Commit {
    /// It is the state now, or the state had the same bytes.
    Done(Order),
    /// Another version became the state meanwhile.
    Moved,
}

impl Write<'_> {
    /// Makes the version the state. `described` is the last version whose description is stored, `damaged` the one with the same
    /// bytes that cannot be read.
    fn commit(
        &self,
        control: &mut Control,
        now: Timestamp,
        described: Option<&VersionId>,
        damaged: Option<&VersionId>,
    ) -> Result<Commit, StateError> {
        let Self { workspace, claims, version, document, force } = *self;
        let last = control.states.get(workspace).and_then(|state| state.version.as_ref());
        if let Some(last) = last.filter(|last| last.version == version.version) {
            // The answer to an earlier try was lost, and the layer has been changed since.
            return Ok(Commit::Done(Order::Next(last.generation)));
        }
        if last.map(|last| &last.version) != described {
            return Ok(Commit::Moved);
        }
        let mut order = control.order(workspace, document, version.sha256, claims, force);
        if let (Ok(Order::Unchanged), Some(last)) = (&order, last) {
            if damaged != Some(&last.version) {
                return Ok(Commit::Done(Order::Unchanged));
            }
            order = Ok(Order::Next(last.generation + 1));
        }
        // Another writer, whose clock is ahead, was faster. A retry gets an id that is newer than its.
        let is_late = last.is_some_and(|last| last.version < version.version);
        control.check_writer(workspace, claims, now)?;
        let order = order?;
        if let Order::Next(generation) = order {
            if is_late {
                return Err(StateError::Contention);
            }
            let version = StateVersion { generation, ..version.clone() };
            control.set_version(workspace, version, claims)?;
        }
        Ok(Commit::Done(order))
    }
}

impl Store {
    /// The version that readers of a state get; [`StateError::NoState`] only if there is certainly none.
    pub async fn present_state(&self, key: &StateKey) -> Result<StateVersion, StateError> {
        let head = self.state_head(key).await?;
        head.version.ok_or(StateError::NoState("state here"))
    }

    /// What is known of a state.
    pub async fn state_head(&self, key: &StateKey) -> Result<StateHead, StateError> {
        let control = self.control(&key.into()).await?;
        let state = control.states.get(key.workspace.as_ref());
        Ok(state.map(State::head).unwrap_or_default())
    }

    /// Writes a state. A document that is refused is kept as a rejected version.
    pub async fn write_state(
        &self,
        key: &StateKey,
        claims: &Claims,
        origin: Origin,
        force: bool,
        announced: Announced,
        body: Body,
    ) -> Result<(), StateError> {
        self.check_states_allowed().await?;
        let mut control = self.created_control(&key.into()).await?;
        // The tool itself names no run.
        let run = origin.run.or_else(|| control.run_of(key.workspace.as_ref(), claims));
        let origin = Origin { run, ..origin };
        let present = control.states.remove(key.workspace.as_ref()).and_then(|state| state.version);
        let earlier = present.as_ref().map(|version| &version.version);
        let stored = self.store_version(key, origin, earlier, announced, body);
        // The description of the present version is needed as well: both take about as long.
        let described = async {
            match &present {
                Some(version) => self.describe_version(key, version).await,
                None => Ok(()),
            }
        };
        let (stored, described) = futures::join!(stored, described);
        let (version, document) = stored?;
        let version = StateVersion { fence: claims.fence, ..version };
        if let Err(error) = described {
            self.discard_version(key, &version).await;
            return Err(error);
        }
        let (workspace, document) = (key.workspace.as_ref(), &document);
        let write = Write { workspace, claims, version: &version, document, force };
        match self.commit_version(key, &write, present).await {
            Ok(Order::Next(_)) => Ok(()),
            Ok(Order::Unchanged) => {
                self.discard_version(key, &version).await;
                Ok(())
            }
            Err(error) if is_refusal(&error) => {
                let reason = Some(error.to_string());
                let rejected = StateVersion { kind: StateKind::Rejected, reason, ..version };
                self.try_describe_version(key, &rejected).await;
                Err(error)
            }
            // The result may not be known, so the version stays.
            Err(error) => Err(error),
        }
    }

    /// Stores the document of a new version, which is not the state yet. The layer must have a control object. Its id is
    /// newer than `earlier`, also if the clock is behind that of the replica that wrote `earlier`.
    pub(super) async fn store_version(
        &self,
        key: &StateKey,
        origin: Origin,
        earlier: Option<&VersionId>,
        announced: Announced,
        body: Body,
    ) -> Result<(StateVersion, StateDocument), StateError> {
        let now = self.state_clock();
        let micros = u64::try_from(now.as_microsecond()).unwrap_or_default();
        let after = earlier.map_or(0, |earlier| earlier.micros().saturating_add(1));
        let id = VersionId::new(micros.max(after), random());
        let tenant = origin.tenant(key).into();
        let place = self.state_readers.take(&tenant, READER, READER_TIMEOUT).await;
        let (body, document) = inspected(body, announced.md5, place.ok_or(StateError::Busy)?);
        let conditions = PutConditions { sha256: announced.sha256, ..PutConditions::default() };
        let stored = self.put(&Key::State(key.clone(), id.clone()), conditions, body).await;
        let sha256 = stored.map_err(|error| match error {
            StoreError::Upload(cause) => match cause.downcast::<InvalidState>() {
                Ok(invalid) => StateError::Document(*invalid),
                Err(cause) => StoreError::Upload(cause).into(),
            },
            error => error.into(),
        })?;
        let document = document.await.map_err(|_| backend_error("the state was not read"))?;
        let version = StateVersion {
            version: id,
            kind: StateKind::Head,
            generation: 0,
            serial: document.serial,
            lineage: document.lineage.clone(),
            sha256,
            size: document.size,
            resources: document.resources,
            terraform_version: document.terraform_version.clone(),
            encrypted: document.encrypted,
            run: origin.run,
            tool: origin.tool,
            caller: origin.caller,
            created: shown(now),
            fence: None,
            reason: None,
        };
        Ok((version, document))
    }

    /// Makes a stored version the state. `present` is the last version of the state, whose description is stored.
    async fn commit_version(
        &self,
        key: &StateKey,
        write: &Write<'_>,
        mut present: Option<StateVersion>,
    ) -> Result<Order, StateError> {
        // The version with the same bytes that is the state, if these are damaged.
        let mut damaged = None;
        loop {
            let described = present.as_ref().map(|present| present.version.clone());
            let described = described.as_ref();
            let commit = self
                .change_control(&key.into(), |control, now| {
                    write.commit(control, now, described, damaged.as_ref())
                })
                .await?;
            match (commit, &present) {
                (Commit::Done(Order::Unchanged), Some(present))
                    if !self.is_intact(key, present).await? =>
                {
                    damaged = Some(present.version.clone());
                }
                (Commit::Done(order), _) => return Ok(order),
                (Commit::Moved, _) => {
                    if self.has_been_state(key, write.version).await? {
                        return Ok(Order::Next(write.version.generation));
                    }
                    present = self.last_version(key).await?;
                    if let Some(present) = &present {
                        self.describe_version(key, present).await?;
                    }
                }
            }
        }
    }

    /// Whether a version was the state, and another one has replaced it: it is described before that.
    pub(super) async fn has_been_state(
        &self,
        key: &StateKey,
        version: &StateVersion,
    ) -> Result<bool, StateError> {
        let described = self.described_version(key, StateKind::Head, &version.version).await?;
        Ok(described.is_some())
    }

    /// Whether the document of a version is there, can be decrypted, and has its digest.
    async fn is_intact(&self, key: &StateKey, version: &StateVersion) -> Result<bool, StateError> {
        let document = Key::State(key.clone(), version.version.clone());
        let tenant = key.namespace.as_ref().into();
        let memory = self.memory.take(&tenant, self.answer_memory(), READER_TIMEOUT).await;
        let _memory = memory.ok_or(StateError::Busy)?;
        let read = async {
            let (_, bytes) = self.open_whole_of(&document, version.sha256).await?;
            bytes.try_for_each(|_| ready(Ok(()))).await
        };
        match read.await {
            Ok(()) => Ok(true),
            Err(
                StoreError::NotFound
                | StoreError::Lost(_)
                | StoreError::Corrupt(_)
                | StoreError::WrongKey(_)
                | StoreError::Ambiguous(_)
                | StoreError::Unreadable(_),
            ) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The last version of a state, also of a deleted one.
    async fn last_version(&self, key: &StateKey) -> Result<Option<StateVersion>, StateError> {
        Ok(self.last_state(key).await?.version)
    }

    /// What the control object has about a state.
    pub(super) async fn last_state(&self, key: &StateKey) -> Result<State, StateError> {
        let mut control = self.control(&key.into()).await?;
        Ok(control.states.remove(key.workspace.as_ref()).unwrap_or_default())
    }

    /// Deletes the document of a version that never became one.
    async fn discard_version(&self, key: &StateKey, version: &StateVersion) {
        let path = Key::State(key.clone(), version.version.clone()).to_path().unwrap_or_default();
        if let Err(error) = self.delete(&path).await {
            tracing::warn!(
                error = chain(&error),
                path,
                "a copy of a state could not be deleted; gc removes it"
            );
        }
    }

    /// Stores a copy of a state that never becomes the state by itself. One with the same bytes is stored once.
    pub async fn put_snapshot(
        &self,
        key: &StateKey,
        origin: Origin,
        announced: Announced,
        body: Body,
    ) -> Result<(), StateError> {
        self.created_control(&key.into()).await?;
        let (version, _) = self.store_version(key, origin, None, announced, body).await?;
        let hash = parse(&hash_path(key, version.sha256))?;
        let earlier = match self.objects.get(&hash).await {
            Err(Error::NotFound { .. }) => None,
            found => Some(found.map_err(backend_error)?.bytes().await.map_err(backend_error)?),
        };
        let earlier = earlier.and_then(|id| str::from_utf8(&id).ok()?.parse::<VersionId>().ok());
        if let Some(id) = earlier
            && let Some(stored) = self.described_version(key, StateKind::Snapshot, &id).await?
            && self.is_intact(key, &stored).await?
        {
            // `gc` counts the age of a snapshot from the last time that it was stored.
            self.put_internal(&hash, Bytes::from(id.to_string())).await?;
            self.discard_version(key, &version).await;
            return Ok(());
        }
        let snapshot = StateVersion { kind: StateKind::Snapshot, ..version };
        self.describe_version(key, &snapshot).await?;
        self.put_internal(&hash, Bytes::from(snapshot.version.to_string())).await?;
        Ok(())
    }

    /// Deletes a state. Its versions stay.
    pub async fn delete_state(&self, key: &StateKey, claims: &Claims) -> Result<(), StateError> {
        if let Some(version) = self.last_version(key).await? {
            self.describe_version(key, &version).await?;
        }
        let workspace = key.workspace.as_ref();
        self.change_control(&key.into(), |control, now| {
            control.check_writer(workspace, claims, now)?;
            control.delete(workspace, now);
            Ok(())
        })
        .await
    }

    /// Undoes a deletion.
    pub async fn undelete_state(&self, key: &StateKey) -> Result<(), StateError> {
        let workspace = key.workspace.as_ref();
        self.change_control(&key.into(), |control, now| {
            control.check_writer(workspace, &Claims::default(), now)?;
            control.undelete(workspace)
        })
        .await
    }

    /// Locks a state. `info` is what the holder sends, with the `ID` of the lock.
    pub async fn lock_state(
        &self,
        key: &StateKey,
        id: &str,
        info: &Value,
        claims: &Claims,
    ) -> Result<(), StateError> {
        self.change_control(&key.into(), |control, now| {
            let lock =
                Lock { id: id.to_owned(), info: info.clone(), fence: claims.fence, ended: None };
            control.lock(key.workspace.as_ref(), lock, claims, now)
        })
        .await
    }

    /// Removes the lock with this ID for a caller; without claims for an operator.
    pub async fn unlock_state(
        &self,
        key: &StateKey,
        id: &str,
        claims: Option<&Claims>,
    ) -> Result<(), StateError> {
        let workspace = key.workspace.as_ref();
        self.change_control(&key.into(), |control, now| control.unlock(workspace, id, claims, now))
            .await
    }

    /// Removes the lock that was taken under the caller's lease. Returns false if another one is held.
    pub async fn unlock_own_state(
        &self,
        key: &StateKey,
        claims: &Claims,
    ) -> Result<bool, StateError> {
        let workspace = key.workspace.as_ref();
        self.change_control(&key.into(), |control, now| control.unlock_own(workspace, claims, now))
            .await
    }

    /// Removes any lock whose holder's lease is not valid.
    pub async fn force_unlock_state(&self, key: &StateKey) -> Result<(), StateError> {
        let workspace = key.workspace.as_ref();
        self.change_control(&key.into(), |control, now| control.force_unlock(workspace, now)).await
    }

    /// What is recorded about the tool of a layer.
    pub async fn layer_tool(&self, layer: &LayerKey) -> Result<Option<ToolRecord>, StateError> {
        Ok(self.control(layer).await?.tool)
    }

    /// Records the tool of a layer.
    pub async fn put_layer_tool(
        &self,
        layer: &LayerKey,
        tool: ToolRecord,
    ) -> Result<(), StateError> {
        self.change_control(layer, |control, _| {
            control.tool = Some(tool.clone());
            Ok(())
        })
        .await
    }
}

/// Whether a whole state document was refused, and is kept.
fn is_refusal(error: &StateError) -> bool {
    matches!(
        error,
        StateError::Locked(_)
            | StateError::Leased(_)
            | StateError::LeaseLost(_)
            | StateError::LockLost(_)
            | StateError::Deleted
            | StateError::Lineage { .. }
            | StateError::Serial { .. }
            | StateError::Place { .. }
            | StateError::LargeControl(_)
            | StateError::UnreadableControl(_)
    )
}

/// To the millisecond.
fn shown(time: Timestamp) -> String {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time).to_string()
}
