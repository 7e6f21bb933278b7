//! States in a storage, or in a datastore that serves them.

use std::io::{self, Write};

use bytes::Bytes;
use datastore_api::client::{StateOrigin, Upload};
use datastore_api::digest::Hasher;
use datastore_api::state::{Lease, StateHead, StateKind, StateVersion, States, ToolRecord};
use datastore_api::{Client, ClientError, StateKey, VersionId};
use fs_err::tokio as fs;
use futures::{StreamExt as _, TryStreamExt as _};
use reqwest::StatusCode;
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;

use crate::cli::commands::open_storage;
use crate::cli::error::CommandError;
use crate::cli::state::document::Document;
use crate::config::StatePlace;
use crate::start::StartError;
use crate::store::{
    Announced, BoxError, Claims, Key, LayerKey, LayerStates, Origin, StateError, StateSettings,
    Store, StoreError,
};

/// Files are read in pieces of this size.
const PIECE: usize = 256 << 10;

/// How states are reached.
pub(super) enum Access {
    Storage(Store),
    Datastore(Client),
}

impl Access {
    /// Opens it. Only a change of a storage needs to know what that can do, and excludes other processes.
    pub(super) async fn open(place: StatePlace, changes: bool) -> Result<Self, CommandError> {
        match place {
            StatePlace::Storage(config) => {
                let store = open_storage(&config).await?;
                if !changes {
                    return Ok(Self::Storage(store.with_states(StateSettings::read_only())));
                }
                let probed = store.probe_for_states().await;
                probed.map_err(|error| StartError::Storage(config.storage.to_string(), error))?;
                Ok(Self::Storage(store))
            }
            StatePlace::Datastore(settings) => {
                Ok(Self::Datastore(Client::new(settings).map_err(failed)?))
            }
        }
    }

    /// The layers that have states, of a storage.
    async fn layers(&self) -> Result<Vec<LayerKey>, CommandError> {
        match self {
            Self::Storage(store) => {
                let layers = store.layers_with_states().await;
                layers.map_err(|error| CommandError::Storage("list the states", error))
            }
            Self::Datastore(_) => Ok(Vec::new()),
        }
    }

    /// All states of a layer, of a storage.
    async fn layer(&self, layer: &LayerKey) -> Result<LayerStates, CommandError> {
        match self {
            Self::Storage(store) => Ok(store.layer_states(layer).await?),
            Self::Datastore(_) => Ok(LayerStates::default()),
        }
    }

    /// The states of all layers of a storage. A layer that cannot be read does not hide the others: it is named on stderr, and
    /// the last such error is returned as well.
    pub(super) async fn readable_layers(
        &self,
    ) -> Result<(Vec<(LayerKey, LayerStates)>, Option<StateError>), CommandError> {
        let (mut all, mut damaged) = (Vec::new(), None);
        for layer in self.layers().await? {
            match self.layer(&layer).await {
                Err(CommandError::State(error @ StateError::Damaged(_))) => {
                    let (namespace, layer) = (&layer.namespace, &layer.layer);
                    writeln!(
                        std::io::stderr(),
                        "cannot read the states of {namespace}/{layer}: {error}"
                    )?;
                    damaged = Some(error);
                }
                states => all.push((layer, states?)),
            }
        }
        Ok((all, damaged))
    }

    /// One page of the versions of a state, with its head.
    pub(super) async fn page(
        &self,
        key: &StateKey,
        kind: Option<StateKind>,
        limit: usize,
        after: Option<&VersionId>,
    ) -> Result<States, CommandError> {
        match self {
            Self::Storage(store) => Ok(store.state_versions(key, kind, limit, after).await?),
            Self::Datastore(client) => {
                let limit = u16::try_from(limit).unwrap_or(u16::MAX);
                let cursor = after.map(VersionId::as_ref);
                client.states(key, kind, limit, cursor).await.map_err(failed)
            }
        }
    }

    pub(super) async fn head(&self, key: &StateKey) -> Result<StateHead, CommandError> {
        match self {
            Self::Storage(store) => Ok(store.state_head(key).await?),
            Self::Datastore(_) => Ok(self.page(key, None, 1, None).await?.head),
        }
    }

    /// The lease of the layer; an inner error says why the caller may not read it.
    pub(super) async fn lease(
        &self,
        key: &StateKey,
    ) -> Result<Result<Option<Lease>, String>, CommandError> {
        match self {
            Self::Storage(store) => Ok(Ok(store.layer_lease(&key.into()).await?)),
            Self::Datastore(client) => match client.lease(&key.namespace, &key.layer).await {
                Err(error) if error.status() == Some(StatusCode::FORBIDDEN) => {
                    Ok(Err("the token has no right to read leases".to_owned()))
                }
                lease => lease.map(Ok).map_err(failed),
            },
        }
    }

    /// The tool of the layer; none also where the caller may not read it.
    pub(super) async fn tool(&self, key: &StateKey) -> Result<Option<ToolRecord>, CommandError> {
        match self {
            Self::Storage(store) => Ok(store.layer_tool(&key.into()).await?),
            Self::Datastore(client) => match client.layer_tool(&key.namespace, &key.layer).await {
                Err(error) if error.status() == Some(StatusCode::FORBIDDEN) => Ok(None),
                tool => tool.map_err(failed),
            },
        }
    }

    /// Prints a document, and compares it with its digest.
    pub(super) async fn pull(
        &self,
        key: &StateKey,
        version: Option<VersionId>,
        out: &mut impl Write,
    ) -> Result<(), CommandError> {
        match self {
            Self::Storage(store) => pull_stored(store, key, version, out).await,
            Self::Datastore(client) => {
                let opened = client.open_state(key, version.as_ref()).await.map_err(failed)?;
                let mut download = opened.ok_or_else(|| absent(key, version))?;
                while let Some(piece) = download.piece().await.map_err(failed)? {
                    out.write_all(&piece)?;
                }
                Ok(())
            }
        }
    }

    /// Writes a document.
    pub(super) async fn push(
        &self,
        key: &StateKey,
        document: Document,
        force: bool,
    ) -> Result<(), CommandError> {
        match self {
            Self::Storage(store) => {
                let reader: Box<dyn AsyncRead + Send + Unpin> = match document {
                    Document::File(path) => {
                        Box::new(fs::File::open(path).await.map_err(CommandError::File)?)
                    }
                    Document::Bytes(bytes) => Box::new(io::Cursor::new(bytes)),
                };
                let pieces = ReaderStream::with_capacity(reader, PIECE);
                let body = pieces.map(|piece: Result<Bytes, _>| piece.map_err(BoxError::from));
                let (claims, origin) = (Claims::default(), Origin::default());
                let announced = Announced::default();
                Ok(store
                    .write_state(key, &claims, origin, force, announced, Box::new(body))
                    .await?)
            }
            Self::Datastore(client) => {
                let upload = match document {
                    Document::File(path) => Upload::file(path).await.map_err(failed)?,
                    Document::Bytes(bytes) => Upload::bytes(bytes),
                };
                let origin = StateOrigin::default();
                // 409: another lineage, or a serial that is not higher.
                let pushed = client.push_state(key, &origin, &upload, force).await;
                pushed.map_err(|error| refused(error, 9))
            }
        }
    }

    pub(super) async fn restore(
        &self,
        key: &StateKey,
        version: &VersionId,
    ) -> Result<(), CommandError> {
        let absent = || CommandError::NoVersion(key.to_string(), version.to_string());
        match self {
            Self::Storage(store) => {
                let restored = store.restore_state(key, version.clone(), Origin::default()).await;
                restored.map_err(|error| match error {
                    StateError::NoState(_) => absent(),
                    error => error.into(),
                })
            }
            Self::Datastore(client) => match client.restore_state(key, version).await {
                Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Err(absent()),
                restored => restored.map_err(failed),
            },
        }
    }

    pub(super) async fn unlock(&self, key: &StateKey, id: &str) -> Result<(), CommandError> {
        match self {
            Self::Storage(store) => Ok(store.unlock_state(key, id, None).await?),
            // 409: the lock has another ID.
            Self::Datastore(client) => {
                client.unlock_state(key, id).await.map_err(|error| refused(error, 4))
            }
        }
    }

    pub(super) async fn delete(&self, key: &StateKey) -> Result<(), CommandError> {
        match self {
            Self::Storage(store) => Ok(store.delete_state(key, &Claims::default()).await?),
            Self::Datastore(client) => client.delete_state(key).await.map_err(failed),
        }
    }

    pub(super) async fn undelete(&self, key: &StateKey) -> Result<(), CommandError> {
        let absent = || CommandError::NoState(key.to_string());
        match self {
            Self::Storage(store) => store.undelete_state(key).await.map_err(|error| match error {
                StateError::NoState(_) => absent(),
                error => error.into(),
            }),
            Self::Datastore(client) => match client.undelete_state(key).await {
                Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Err(absent()),
                // 409: it is not deleted.
                undeleted => undeleted.map_err(|error| refused(error, 8)),
            },
        }
    }
}

async fn pull_stored(
    store: &Store,
    key: &StateKey,
    version: Option<VersionId>,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let StateVersion { version, sha256, .. } = match version {
        None => {
            let head = store.state_head(key).await?;
            head.version.ok_or_else(|| CommandError::NoState(key.to_string()))?
        }
        Some(id) => store.find_version(key, &id).await.map_err(|error| match error {
            StateError::NoState(_) => absent(key, Some(id)),
            error => error.into(),
        })?,
    };
    let document = Key::State(key.clone(), version);
    let path = document.to_path().unwrap_or_default();
    let failed = |error| match error {
        StoreError::NotFound => {
            let missing = format!("the version `{path}` of the state is missing");
            CommandError::State(StateError::Damaged(missing))
        }
        error @ StoreError::Corrupt(_) => CommandError::Corrupt(error),
        error => CommandError::Storage("read the state", error),
    };
    let (_, mut bytes) = store.open_whole(&document).await.map_err(failed)?;
    let mut hasher = Hasher::default();
    while let Some(piece) = bytes.try_next().await.map_err(failed)? {
        hasher.update(&piece);
        out.write_all(&piece)?;
    }
    out.flush()?;
    if hasher.finish() == sha256 {
        return Ok(());
    }
    let changed = format!("`{path}` has other bytes than this version had: discard the output");
    Err(CommandError::State(StateError::Damaged(changed)))
}

fn absent(key: &StateKey, version: Option<VersionId>) -> CommandError {
    match version {
        Some(version) => CommandError::NoVersion(key.to_string(), version.to_string()),
        None => CommandError::NoState(key.to_string()),
    }
}

/// The error of a call that is never answered with 409.
fn failed(error: ClientError) -> CommandError {
    refused(error, 1)
}

/// The error of a call, with the exit code for 409.
fn refused(error: ClientError, conflict: u8) -> CommandError {
    CommandError::Datastore(error, conflict)
}
