//! States for the commands that maintain a storage: all of them, and what `gc` and `verify` need to know of each layer.

use std::collections::{BTreeMap, BTreeSet};

use datastore_api::state::{Lease, StateHead, StateKind, StateVersion, ToolRecord};
use datastore_api::{Name, StateKey, VersionId};
use futures::TryStreamExt as _;
use jiff::Timestamp;
use object_store::{Error, ObjectStoreExt as _};

use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, parse};
use crate::store::state::LayerKey;
use crate::store::state::error::StateError;
use crate::store::state::lease::shown;
use crate::store::state::paths::{DOCUMENTS, STATES, StateObject, hash_path};
use crate::store::state::versions::PARALLEL_READS;

/// All states of a layer.
#[derive(Clone, Debug, Default)]
pub struct LayerStates {
    /// The lease of the layer, also an expired one.
    pub lease: Option<Lease>,
    /// The tool that works with its states, and its migrations.
    pub tool: Option<ToolRecord>,
    /// By workspace.
    pub states: BTreeMap<String, KeptState>,
}

/// The state of one workspace.
#[derive(Clone, Debug, Default)]
pub struct KeptState {
    /// As callers see it.
    pub head: StateHead,
    /// The last version that was written, also of a deleted state.
    pub last: Option<StateVersion>,
    /// When it was deleted, if it was.
    pub deleted: Option<Timestamp>,
}

/// Something that is wrong with the states of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFault {
    /// The path of the object.
    pub path: String,
    /// Whether it is missing; otherwise its bytes cannot be what was stored.
    pub is_missing: bool,
    /// Whether it only describes a version, and no other version depends on it.
    pub is_description: bool,
}

impl Store {
    /// The layers that have anything of a state, in order.
    pub async fn layers_with_states(&self) -> Result<Vec<LayerKey>, StoreError> {
        let mut layers = BTreeSet::new();
        for prefix in [STATES, DOCUMENTS] {
            let mut objects = self.list(prefix)?;
            while let Some(object) = objects.try_next().await? {
                let layer = object.key.strip_prefix(prefix).and_then(LayerKey::split);
                layers.extend(layer.map(|(layer, _)| (layer.namespace, layer.layer)));
            }
        }
        Ok(layers.into_iter().map(|(namespace, layer)| LayerKey { namespace, layer }).collect())
    }

    /// All states of a layer, as its control object has them.
    pub async fn layer_states(&self, layer: &LayerKey) -> Result<LayerStates, StateError> {
        let (control, now) = (self.control(layer).await?, self.state_clock());
        let states = control.states.iter().map(|(workspace, state)| {
            let (head, last, deleted) = (state.head(), state.version.clone(), state.deleted);
            (workspace.clone(), KeptState { head, last, deleted })
        });
        let lease = control.lease.as_ref().map(|lease| shown(lease, now));
        Ok(LayerStates { lease, tool: control.tool.clone(), states: states.collect() })
    }

    /// The path of the entry by which a snapshot is found by its digest, if that entry names this snapshot.
    pub async fn hash_entry(
        &self,
        key: &StateKey,
        id: &VersionId,
    ) -> Result<Option<String>, StateError> {
        let Some(version) = self.described_version(key, StateKind::Snapshot, id).await? else {
            return Ok(None);
        };
        let path = hash_path(key, version.sha256);
        let named = match self.objects.get(&parse(&path)?).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(backend_error)?.bytes().await.map_err(backend_error)?,
        };
        Ok((named == id.as_ref().as_bytes()).then_some(path))
    }

    /// Forgets a state that was deleted at this time, so that its deletion cannot be undone. Returns whether it did: `false`
    /// if it was written or undeleted meanwhile, or is locked.
    pub async fn forget_deleted_state(
        &self,
        key: &StateKey,
        deleted: Timestamp,
    ) -> Result<bool, StateError> {
        let workspace = key.workspace.as_ref();
        self.change_control(&key.into(), |control, _| {
            let state = control.states.get(workspace);
            let is_same =
                state.is_some_and(|state| state.deleted == Some(deleted) && state.lock.is_none());
            if is_same {
                control.states.remove(workspace);
            }
            Ok(is_same)
        })
        .await
    }

    /// What is wrong with the states of a layer: a control object that is missing or damaged, a state whose document is missing,
    /// or is another one, or a damaged description of a version.
    pub async fn state_faults(&self, layer: &LayerKey) -> Result<Vec<StateFault>, StateError> {
        let control_path = format!("{}/control", layer.prefix());
        let is_missing = match self.objects.head(&parse(&control_path)?).await {
            Err(Error::NotFound { .. }) => true,
            found => found.map(|_| false).map_err(backend_error)?,
        };
        let control = match self.control(layer).await {
            Err(StateError::Damaged(_)) => {
                return Ok(vec![StateFault {
                    path: control_path,
                    is_missing,
                    is_description: false,
                }]);
            }
            control => control?,
        };
        let mut faults = self.damaged_descriptions(layer).await?;
        for (workspace, state) in control.states {
            let (Some(version), Ok(workspace)) = (state.version, workspace.parse::<Name>()) else {
                continue;
            };
            let LayerKey { namespace, layer } = layer.clone();
            let key = Key::State(StateKey { namespace, layer, workspace }, version.version);
            let path = key.to_path().unwrap_or_default();
            let fault = |is_missing| StateFault { path, is_missing, is_description: false };
            match self.stat(&key).await {
                Ok(stat) if stat.meta.sha256.is_none_or(|recorded| recorded == version.sha256) => {}
                Ok(_) => faults.push(fault(false)),
                Err(StoreError::NotFound) => faults.push(fault(true)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(faults)
    }

    async fn damaged_descriptions(&self, layer: &LayerKey) -> Result<Vec<StateFault>, StateError> {
        let objects = self.list(&format!("{}/workspaces/", layer.prefix()))?;
        let checks = objects.map_err(StateError::from).map_ok(async |object| {
            let Some(StateObject::Description(workspace, kind, id)) = StateObject::of(&object.key)
            else {
                return Ok(None);
            };
            let Ok(workspace) = workspace.parse::<Name>() else { return Ok(None) };
            let LayerKey { namespace, layer } = layer.clone();
            let key = StateKey { namespace, layer, workspace };
            match self.described_version(&key, kind, &id).await {
                Ok(_) => Ok(None),
                Err(StateError::DamagedDescription(_)) => {
                    let path = object.key;
                    Ok(Some(StateFault { path, is_missing: false, is_description: true }))
                }
                Err(error) => Err(error),
            }
        });
        let faults = checks.try_buffered(PARALLEL_READS);
        faults.try_filter_map(async |fault| Ok(fault)).try_collect().await
    }
}
