//! What a destroy reports of the state, before its plan and after its apply. Nothing in it is secret.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read};

use serde::de::{IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// The version of the format since terraform 0.12.
const VERSION: u64 = 4;

/// A state, as far as a destroy reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StateReport {
    /// Whether it has no managed objects, or does not exist.
    pub(crate) empty: bool,
    /// How many managed objects it has.
    pub(crate) resources: u64,
    /// Its lineage; none if it does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lineage: Option<String>,
    /// Its serial; none if it does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) serial: Option<u64>,
}

/// The part of a state that is read. Its other fields may be secret, and are skipped.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Document {
    version: u64,
    lineage: String,
    serial: u64,
    #[serde(deserialize_with = "count_objects")]
    resources: u64,
    /// Tofu can encrypt a state.
    encrypted_data: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Resource {
    mode: String,
    #[serde(default)]
    instances: Vec<IgnoredAny>,
}

impl StateReport {
    /// Reads a state as `state pull` prints it. Without any byte there is none.
    pub(crate) fn read(state: impl Read) -> io::Result<Self> {
        let mut state = BufReader::new(state);
        if state.fill_buf()?.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self { empty: true, ..Self::default() });
        }
        let document: Document = serde_json::from_reader(state)?;
        if document.encrypted_data.is_some() {
            return Err(io::Error::other("it is encrypted, and the tool has not decrypted it"));
        }
        if document.version != VERSION {
            let version = document.version;
            return Err(io::Error::other(format!(
                "its format has version {version}, not {VERSION}"
            )));
        }
        // The tool knows no state without a lineage.
        let exists = !document.lineage.is_empty();
        Ok(Self {
            empty: document.resources == 0,
            resources: document.resources,
            lineage: exists.then_some(document.lineage),
            serial: exists.then_some(document.serial),
        })
    }

    /// Whether there is a state.
    pub(crate) fn exists(&self) -> bool {
        self.lineage.is_some()
    }
}

impl fmt::Display for StateReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.exists(), self.resources) {
            (false, _) => f.write_str("there is no state"),
            (true, 0) => f.write_str("the state is empty"),
            (true, 1) => f.write_str("the state has 1 object"),
            (true, count) => write!(f, "the state has {count} objects"),
        }
    }
}

/// Counts the managed objects in a stream of resources, one at a time: a state may be large.
fn count_objects<'de, D: Deserializer<'de>>(resources: D) -> Result<u64, D::Error> {
    struct Count;
    impl<'de> Visitor<'de> for Count {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of resources")
        }

        fn visit_unit<E>(self) -> Result<u64, E> {
            Ok(0)
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<u64, A::Error> {
            let mut count = 0;
            while let Some(Resource { mode, instances }) = seq.next_element()? {
                if mode == "managed" {
                    count += instances.len() as u64;
                }
            }
            Ok(count)
        }
    }
    resources.deserialize_any(Count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(state: &str) -> io::Result<StateReport> {
        StateReport::read(state.as_bytes())
    }

    #[test]
    fn a_state_is_empty_without_managed_objects() {
        let state = |resources: &str| {
            let text = format!(
                r#"{{"version": 4, "serial": 7, "lineage": "l", "outputs": {{"x": {{"value": 1}}}}, "resources": {resources}}}"#
            );
            let state = read(&text).unwrap();
            assert!(state.exists() && state.serial == Some(7), "{state:?}");
            (state.empty, state.resources)
        };
        assert_eq!(state("[]"), (true, 0));
        assert_eq!(state("null"), (true, 0));
        assert_eq!(state(r#"[{"mode": "data", "instances": [{}]}]"#), (true, 0));
        // What has no instance left is no object; what a replacement has left is one.
        assert_eq!(state(r#"[{"mode": "managed", "instances": []}]"#), (true, 0));
        assert_eq!(
            state(r#"[{"mode": "managed", "instances": [{"deposed": "1"}, {}]}]"#),
            (false, 2)
        );
    }

    #[test]
    fn nothing_is_no_state_and_something_else_is_an_error() {
        for none in ["", "\n", r#"{"version": 4, "serial": 0, "lineage": ""}"#] {
            let state = read(none).unwrap();
            assert!(state.empty && !state.exists(), "{none:?}: {state:?}");
        }
        for other in [
            "x",
            "[]",
            r#"{"resources": [{}]}"#,
            r#"{"version": 4, "serial": 1, "lineage": "l", "encrypted_data": "x"}"#,
            // Of terraform 0.11: its objects are elsewhere.
            r#"{"version": 3, "serial": 1, "lineage": "l", "modules": []}"#,
        ] {
            assert!(read(other).is_err(), "{other}");
        }
    }
}
