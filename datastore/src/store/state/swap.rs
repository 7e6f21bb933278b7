//! Reads and replaces control objects: conditionally, and until the result is known.

use std::time::Duration;

use bytes::Bytes;
use datastore_api::chain;
use datastore_api::state::StateKind;
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _, PutMode, PutOptions, UpdateVersion};
use tokio::time::{Instant, sleep};

use crate::store::backend::metered::{STAT_TIMEOUT, in_time, put_timeout};
use crate::store::error::backend_error;
use crate::store::handle::Store;
use crate::store::key::random;
use crate::store::state::LayerKey;
use crate::store::state::control::Control;
use crate::store::state::error::StateError;
use crate::store::state::paths::StateObject;

/// How long writers that come in each other's way try again.
const CONTENTION_TIMEOUT: Duration = Duration::from_secs(12);
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The version of a control object that was read.
enum Found {
    Absent,
    /// In a bucket or in memory.
    Version(UpdateVersion),
    /// In a directory, where this process is alone.
    File,
}

impl Store {
    /// What a control object says now. An absent one is an empty one, once a listing has shown that it was not lost.
    pub(super) async fn control(&self, layer: &LayerKey) -> Result<Control, StateError> {
        self.check_states_allowed().await?;
        let path = layer.control_path()?;
        let (control, found) = self.read_control(&path).await?;
        if let Found::Absent = found {
            self.check_absent(layer).await?;
        }
        Ok(control)
    }

    /// Changes a control object by `change`, which may run several times. An error of it changes nothing.
    pub(super) async fn change_control<T>(
        &self,
        layer: &LayerKey,
        mut change: impl FnMut(&mut Control, Timestamp) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        self.check_states_allowed().await?;
        if self.states.read_only {
            return Err(backend_error("this process only reads states").into());
        }
        let path = layer.control_path()?;
        // Writers of this process wait for each other instead of replacing in vain.
        let _key_lock = self.key_lock(&path).await;
        let deadline = Instant::now() + CONTENTION_TIMEOUT;
        let mut pause = FIRST_PAUSE;
        loop {
            let (before, found) = self.read_control(&path).await?;
            if let Found::Absent = found {
                self.check_absent(layer).await?;
            }
            let mut control = before.clone();
            let result = change(&mut control, self.state_clock())?;
            if control == before {
                return Ok(result);
            }
            control.format = Control::FORMAT;
            control.write = format!("{:016x}{:016x}", random(), random());
            if self.replace_control(&path, &control, found).await? {
                return Ok(result);
            }
            if Instant::now() > deadline {
                return Err(StateError::Contention);
            }
            // Half of it to one and a half.
            sleep(pause / 2 + pause * u32::try_from(random() % 1000).unwrap_or_default() / 1000)
                .await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The time by which leases expire: that of the storage, which all replicas share.
    pub(super) fn state_clock(&self) -> Timestamp {
        self.storage_clock().unwrap_or_else(Timestamp::now)
    }

    async fn read_control(&self, path: &Path) -> Result<(Control, Found), StateError> {
        let read = async {
            match self.objects.get(path).await {
                Err(Error::NotFound { .. }) => Ok(None),
                found => {
                    let found = found?;
                    let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
                    Ok::<_, Error>(Some((UpdateVersion { e_tag, version }, found.bytes().await?)))
                }
            }
        };
        let read = in_time(STAT_TIMEOUT, "read the control object", read).await;
        let Some((version, bytes)) = read.map_err(backend_error)?.map_err(backend_error)? else {
            return Ok((Control::default(), Found::Absent));
        };
        let damaged = |reason: String| StateError::Damaged(format!("`{path}` {reason}"));
        let control: Control = serde_json::from_slice(&bytes)
            .map_err(|error| damaged(format!("is damaged (line {})", error.line())))?;
        if control.format > Control::FORMAT {
            return Err(damaged("was written by a newer version of the datastore".to_owned()));
        }
        let found = if self.disk.is_some() { Found::File } else { Found::Version(version) };
        Ok((control, found))
    }

    /// Replaces a version of a control object. Returns whether it did: `false` if the object has another version now.
    async fn replace_control(
        &self,
        path: &Path,
        control: &Control,
        found: Found,
    ) -> Result<bool, StateError> {
        let bytes =
            serde_json::to_vec(control).map_err(|error| StateError::Damaged(error.to_string()))?;
        let is_alone = self.disk.is_some() || self.is_only_replica();
        let mode = match found {
            _ if is_alone => PutMode::Overwrite,
            Found::Absent | Found::File => PutMode::Create,
            Found::Version(version) => PutMode::Update(version),
        };
        let options = PutOptions { mode, ..PutOptions::default() };
        let put = self.objects.put_opts(path, Bytes::from(bytes).into(), options);
        let error = match in_time(put_timeout(0), "replace the control object", put).await {
            Ok(Ok(_)) => return Ok(true),
            Ok(Err(error)) => error,
            Err(late) => late.into(),
        };
        // A replacement that failed, or was refused, may have succeeded before: its answer was lost.
        let (now, _) = match self.read_control(path).await {
            Ok(now) => now,
            Err(later) => {
                tracing::error!(error = chain(&later), %path, "the result of a write is not known");
                return Err(backend_error(error).into());
            }
        };
        if now.write == control.write {
            return Ok(true);
        }
        match error {
            Error::Precondition { .. } | Error::AlreadyExists { .. } | Error::NotFound { .. } => {
                Ok(false)
            }
            error if is_conflict(&error) => Ok(false),
            error => Err(backend_error(error).into()),
        }
    }

    /// Checks that a layer without a control object has no versions either: then it was lost, and an answer that there is
    /// no state would have terraform create everything again. A listing also distinguishes a missing bucket.
    async fn check_absent(&self, layer: &LayerKey) -> Result<(), StateError> {
        use futures::TryStreamExt as _;
        // A snapshot or a refused write may be there without one.
        let listed = self.list(&layer.prefix())?;
        let is_version = |key: &str| {
            matches!(StateObject::of(key), Some(StateObject::Description(_, StateKind::Head, _)))
        };
        let versions = listed.try_filter(|object| std::future::ready(is_version(&object.key)));
        let mut versions = std::pin::pin!(versions);
        let first = in_time(STAT_TIMEOUT, "list the versions of a state", versions.try_next());
        let Some(object) = first.await.map_err(backend_error)?? else { return Ok(()) };
        // The first write of the layer may have come in between.
        match self.read_control(&layer.control_path()?).await? {
            (_, Found::Version(_) | Found::File) => Ok(()),
            (_, Found::Absent) => Err(StateError::Damaged(format!(
                "the versions of the state are there (`{}`), but their control object `{}/control` is missing",
                object.key,
                layer.prefix()
            ))),
        }
    }
}

/// S3's answer to two conditional writes at once: 409, and the caller is to try again.
fn is_conflict(error: &Error) -> bool {
    let text = chain(error);
    text.contains("ConditionalRequestConflict") || text.contains("409 Conflict")
}
