//! Reads and replaces control objects: conditionally, and until the result is known.
//!
//! The first line of a control object is the SHA-256 digest of its content, which is JSON: no changed bit of it reads as another
//! state, lock or lease. It exists before the first document of its layer, so a layer that has documents and none has lost it.

use std::time::Duration;

use bytes::Bytes;
use datastore_api::{Sha256, chain};
use futures::TryStreamExt as _;
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _, PutMode, PutOptions, UpdateVersion};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use crate::store::backend::metered::{STAT_TIMEOUT, in_time, put_timeout};
use crate::store::error::backend_error;
use crate::store::handle::Store;
use crate::store::key::random;
use crate::store::state::LayerKey;
use crate::store::state::control::Control;
use crate::store::state::error::StateError;

/// How long writers that come in each other's way try again.
const CONTENTION_TIMEOUT: Duration = Duration::from_secs(12);
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The largest control object, in bytes. One of 500 workspaces, each with a lock, has about 1 MiB.
const MAX_CONTROL: u64 = 8 << 20;

/// The version of a control object that was read.
pub(super) enum Found {
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
        self.check_lock_file().await?;
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
            control.stamp();
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

    pub(super) async fn read_control(&self, path: &Path) -> Result<(Control, Found), StateError> {
        let read = async {
            match self.objects.get(path).await {
                Err(Error::NotFound { .. }) => Ok(None),
                found => {
                    let found = found?;
                    let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
                    let is_read = found.meta.size <= MAX_CONTROL;
                    let bytes = if is_read { Some(found.bytes().await?) } else { None };
                    Ok::<_, Error>(Some((UpdateVersion { e_tag, version }, bytes)))
                }
            }
        };
        let read = in_time(STAT_TIMEOUT, "read the control object", read).await;
        let Some((version, bytes)) = read.map_err(backend_error)?.map_err(backend_error)? else {
            return Ok((Control::default(), Found::Absent));
        };
        let control = bytes.as_deref().map_or(Err("has more than 8 MiB"), decode);
        let control =
            control.map_err(|reason| StateError::Damaged(format!("`{path}` {reason}")))?;
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
        let bytes = encode(control)?;
        let is_alone = self.disk.is_some() || self.is_only_replica();
        let mode = match found {
            _ if is_alone => PutMode::Overwrite,
            Found::Absent | Found::File => PutMode::Create,
            Found::Version(version) => PutMode::Update(version),
        };
        let options = PutOptions { mode, ..PutOptions::default() };
        let put = self.objects.put_opts(path, bytes.into(), options);
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

    /// What the control object of a layer says, which is created first if the layer has none. Only then may the first document
    /// of the layer be stored: from then on, the loss of the control object is noticed.
    pub(super) async fn created_control(&self, layer: &LayerKey) -> Result<Control, StateError> {
        self.check_lock_file().await?;
        let path = layer.control_path()?;
        let _key_lock = self.key_lock(&path).await;
        let (control, found) = self.read_control(&path).await?;
        let Found::Absent = found else { return Ok(control) };
        self.check_absent(layer).await?;
        let mut empty = Control::default();
        empty.stamp();
        let options = PutOptions { mode: self.creation_mode(), ..PutOptions::default() };
        let put = self.objects.put_opts(&path, encode(&empty)?.into(), options);
        match in_time(put_timeout(0), "create the control object", put).await {
            Ok(Ok(_)) => return Ok(empty),
            Ok(Err(Error::AlreadyExists { .. } | Error::Precondition { .. })) => {}
            Ok(Err(error)) if is_conflict(&error) => {}
            Ok(Err(error)) => return Err(backend_error(error).into()),
            Err(late) => return Err(backend_error(late).into()),
        }
        // Another has created it, or the answer to our own creation was lost.
        match self.read_control(&path).await? {
            (control, Found::Version(_) | Found::File) => Ok(control),
            (_, Found::Absent) => Err(StateError::Contention),
        }
    }

    /// Checks that a layer without a control object has nothing else either: then it was lost, and an answer that there is
    /// no state would have terraform create everything again. A listing also distinguishes a missing bucket.
    async fn check_absent(&self, layer: &LayerKey) -> Result<(), StateError> {
        for directory in layer.state_directories() {
            let mut listed = self.list(&directory)?;
            let first = in_time(STAT_TIMEOUT, "list the versions of a state", listed.try_next());
            let Some(object) = first.await.map_err(backend_error)?? else { continue };
            // The first write of the layer may have come in between.
            return match self.read_control(&layer.control_path()?).await? {
                (_, Found::Version(_) | Found::File) => Ok(()),
                (_, Found::Absent) => Err(StateError::Damaged(format!(
                    "the layer has `{}`, but its control object `{}/control` is missing",
                    object.key,
                    layer.prefix()
                ))),
            };
        }
        Ok(())
    }
}

impl Control {
    /// Marks it as written by this program, now.
    fn stamp(&mut self) {
        self.format = Self::FORMAT;
        self.write = format!("{:016x}{:016x}", random(), random());
    }
}

/// A control object as it is stored: the digest of its content, and the content in the next line. What could not be read again
/// is an error: then no state of the layer could be read.
fn encode(control: &Control) -> Result<Bytes, StateError> {
    let json =
        serde_json::to_string(control).map_err(|error| StateError::Damaged(error.to_string()))?;
    let stored = Bytes::from(format!("{}\n{json}", Sha256::of(json.as_bytes())));
    if stored.len() as u64 > MAX_CONTROL {
        return Err(StateError::LargeControl(stored.len()));
    }
    decode(&stored).map_err(StateError::UnreadableControl)?;
    Ok(stored)
}

/// The content of a stored control object, or what is wrong with it.
fn decode(stored: &[u8]) -> Result<Control, &'static str> {
    #[derive(Deserialize)]
    struct Written {
        format: u32,
    }
    const DAMAGED: &str = "is damaged";
    let line = stored.iter().position(|byte| *byte == b'\n').ok_or(DAMAGED)?;
    let (digest, json) = (&stored[..line], &stored[line + 1..]);
    let digest = str::from_utf8(digest).ok().and_then(|digest| digest.parse::<Sha256>().ok());
    if digest != Some(Sha256::of(json)) {
        return Err("is damaged: its content does not have the digest in its first line");
    }
    let Written { format } = serde_json::from_slice(json).map_err(|_| DAMAGED)?;
    match format {
        Control::FORMAT => serde_json::from_slice(json).map_err(|_| DAMAGED),
        format if format > Control::FORMAT => {
            Err("was written by a newer version of the datastore")
        }
        _ => Err("has a format that this version of the datastore does not read"),
    }
}

/// S3's answer to two conditional writes at once: 409, and the caller is to try again.
fn is_conflict(error: &Error) -> bool {
    let text = chain(error);
    text.contains("ConditionalRequestConflict") || text.contains("409 Conflict")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::store::state::control::State;
    use crate::store::state::control::held::Lock;

    #[test]
    fn a_control_object_with_any_changed_bit_or_missing_byte_is_damaged() {
        let mut control = Control::default();
        control.states.insert("default".to_owned(), State::default());
        control.stamp();
        let stored = encode(&control).unwrap();
        assert_eq!(decode(&stored), Ok(control));
        for place in 0..stored.len() {
            assert!(decode(&stored[..place]).is_err(), "{place}");
            for bit in 0..8 {
                let mut changed = stored.to_vec();
                changed[place] ^= 1 << bit;
                assert_ne!(decode(&changed).ok(), Some(Control::default()));
                let same = place < 64 && changed[place].eq_ignore_ascii_case(&stored[place]);
                assert!(same || decode(&changed).is_err(), "{place}, {bit}");
            }
        }
        let with = |json: &str| format!("{}\n{json}", Sha256::of(json.as_bytes()));
        for (json, reason) in [
            (r#"{"format": 3}"#, "newer version"),
            (r#"{"format": 1}"#, "does not read"),
            (r#"{"format": 2}"#, "damaged"),
        ] {
            assert!(decode(with(json).as_bytes()).unwrap_err().contains(reason), "{json}");
        }
    }

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let locked = |info: Value| {
            let lock = Lock { id: "x".to_owned(), info, fence: None, ended: None };
            let mut control = Control::default();
            control
                .states
                .insert("default".to_owned(), State { lock: Some(lock), ..State::default() });
            control.stamp();
            encode(&control)
        };
        let nested = |levels| (0..levels).fold(Value::Null, |value, _| Value::Array(vec![value]));
        assert!(locked(nested(120)).is_ok());
        assert!(matches!(locked(nested(125)), Err(StateError::UnreadableControl(_))));
        assert!(matches!(locked("a".repeat(8 << 20).into()), Err(StateError::LargeControl(_))));
    }
}
