//! The version of a state: that of which a plan was made, and that which a backend has.
//!
//! A state, as `state pull` prints it and as a plan contains it, is JSON with `lineage` and `serial`. Its other fields are
//! secret, and are skipped.

use std::io::{self, Read};
use std::path::Path;

use fs_err as fs;
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
        let mut state = io::BufReader::new(state);
        if io::BufRead::fill_buf(&mut state)?.is_empty() {
            return Ok(Self::default());
        }
        Ok(serde_json::from_reader(state)?)
    }
}

/// The version of the state of which a plan was made. `None`: the file has another format.
pub(crate) fn version_in_plan(plan: &Path) -> Option<StateVersion> {
    let mut archive = ZipArchive::new(fs::File::open(plan).ok()?).ok()?;
    StateVersion::read(archive.by_name(STATE).ok()?).ok()
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
}
