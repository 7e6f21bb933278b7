//! The version of a state: that of which a plan was made, and that which a backend has.
//!
//! A state, as `state pull` prints it and as a plan contains it, is JSON with `lineage` and `serial`. Its other fields are
//! secret, and are skipped.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;

use fs_err as fs;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use zip::ZipArchive;

/// The state in the archive of a plan, with the version that the backend had.
const STATE: &str = "tfstate";

/// A version of a state. Without a state the lineage is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateVersion {
    pub(crate) lineage: String,
    pub(crate) serial: u64,
}

impl StateVersion {
    /// Reads a state. Without any byte there is none.
    pub(crate) fn read(state: impl Read) -> io::Result<Self> {
        read(state)
    }
}

/// Reads a part of a state. Without any byte there is none.
fn read<T: Default + DeserializeOwned>(state: impl Read) -> io::Result<T> {
    let mut state = io::BufReader::new(state);
    if io::BufRead::fill_buf(&mut state)?.is_empty() {
        return Ok(T::default());
    }
    Ok(serde_json::from_reader(state)?)
}

/// The version of the state of which a plan was made. `None`: the file has another format.
pub(crate) fn version_in_plan(plan: &Path) -> Option<StateVersion> {
    let mut archive = ZipArchive::new(fs::File::open(plan).ok()?).ok()?;
    StateVersion::read(archive.by_name(STATE).ok()?).ok()
}

/// Whether a plan was made without a state: there was none, or an empty one that has never been written by an apply, as some
/// backends create it where it is missing. `None`: the file has another format.
pub(crate) fn begins_without_state(plan: &Path) -> Option<bool> {
    let mut archive = ZipArchive::new(fs::File::open(plan).ok()?).ok()?;
    read::<Planned>(archive.by_name(STATE).ok()?).ok().map(|state| state.is_new())
}

/// Whether a state has anything. No value of it is kept.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Planned {
    lineage: String,
    serial: u64,
    resources: Vec<IgnoredAny>,
    #[expect(clippy::zero_sized_map_values, reason = "only the names count")]
    outputs: BTreeMap<String, IgnoredAny>,
}

impl Planned {
    fn is_new(&self) -> bool {
        let is_empty = self.resources.is_empty() && self.outputs.is_empty();
        self.lineage.is_empty() || is_empty && self.serial <= 1
    }
}

/// The size in bytes of the state of which a plan was made. `None`: the file has another format.
pub(crate) fn state_size_in_plan(plan: &Path) -> Option<u64> {
    let mut archive = ZipArchive::new(fs::File::open(plan).ok()?).ok()?;
    Some(archive.by_name(STATE).ok()?.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_lineage_and_serial_and_nothing_is_no_state() {
        let state =
            br#"{"version": 4, "serial": 7, "lineage": "a-b", "outputs": {"x": {"value": "s"}}}"#;
        let version = StateVersion { lineage: "a-b".to_owned(), serial: 7 };
        assert_eq!(StateVersion::read(&state[..]).unwrap(), version);
        assert_eq!(StateVersion::read(&b""[..]).unwrap(), StateVersion::default());
        for broken in [&state[..40], b"no state", b"[]"] {
            StateVersion::read(broken).unwrap_err();
        }
    }

    #[test]
    fn an_empty_state_that_no_apply_has_written_is_none() {
        let is_new = |state: &str| read::<Planned>(state.as_bytes()).unwrap().is_new();
        assert!(is_new("") && is_new(r#"{"version": 4, "serial": 0, "lineage": ""}"#));
        assert!(is_new(r#"{"serial": 1, "lineage": "a", "outputs": {}, "resources": []}"#));
        assert!(!is_new(r#"{"serial": 1, "lineage": "a", "outputs": {"x": {}}, "resources": []}"#));
        assert!(!is_new(r#"{"serial": 1, "lineage": "a", "outputs": {}, "resources": [{}]}"#));
        assert!(
            !is_new(r#"{"serial": 2, "lineage": "a", "outputs": {}, "resources": []}"#),
            "destroyed by hand"
        );
    }
}
