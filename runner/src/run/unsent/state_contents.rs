//! What a state contains, as far as it shows whether a backend has what a kept state records. It starts no tool, and its
//! messages contain no values of attributes.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::source::regular;

/// The parts of a state that are compared.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StateContents {
    lineage: String,
    serial: u64,
    outputs: Value,
    resources: Vec<Resource>,
    /// Tofu can encrypt a state. Its resources cannot be read then.
    encrypted_data: Option<Value>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Resource {
    module: String,
    mode: String,
    r#type: String,
    name: String,
    instances: Vec<Value>,
}

impl StateContents {
    /// Reads a state. Without any byte there is none.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let mut file = BufReader::new(regular::open(path)?);
        if file.fill_buf()?.is_empty() {
            return Ok(Self::default());
        }
        Ok(serde_json::from_reader(file)?)
    }

    /// Whether it is a state whose contents can be compared.
    pub(crate) fn is_comparable(&self) -> bool {
        self.encrypted_data.is_none()
    }

    /// Whether this is a later version of the same state.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        !self.lineage.is_empty() && self.lineage == other.lineage && self.serial > other.serial
    }

    /// Whether it has no resources: nothing would be missed.
    pub(crate) fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.encrypted_data.is_none()
    }

    /// Whether the backend's state has the contents of this one. The error is the difference.
    ///
    /// The serial alone does not show it: an apply on another machine writes the same serial, or later ones, without what
    /// this one changed or deleted. The lineage alone does not either: a state that is pushed to an empty backend gets
    /// another one.
    pub(crate) fn check_stored(&self, backend: &Self) -> Result<(), String> {
        let (ours, theirs) = (self.serial, backend.serial);
        if backend.encrypted_data.is_some() {
            return Err("the backend's state is encrypted, so it cannot be compared".to_owned());
        }
        if backend.lineage.is_empty() {
            return Err(format!("the backend has no state; this one has serial {ours}"));
        }
        let is_equal = self.resources == backend.resources && self.outputs == backend.outputs;
        if self.lineage != backend.lineage {
            return if is_equal && !self.resources.is_empty() {
                Ok(())
            } else {
                Err(format!(
                    "the backend has another state: serial {theirs} of lineage {}; this one has serial {ours} of \
                     lineage {}",
                    backend.lineage,
                    if self.lineage.is_empty() { "(none)" } else { &self.lineage }
                ))
            };
        }
        if theirs >= ours && is_equal {
            return Ok(());
        }
        let difference = self.difference(backend).map(|difference| format!(", and {difference}"));
        Err(format!(
            "the backend has serial {theirs}, this one has serial {ours}{}",
            difference.unwrap_or_default()
        ))
    }

    /// Whether this state may replace the backend's: the backend's is an earlier version of it, or there is none and
    /// `may_be_first` says that this one belongs there. The error is the reason against it.
    pub(crate) fn check_replaces(&self, backend: &Self, may_be_first: bool) -> Result<(), String> {
        if backend.lineage.is_empty() && backend.encrypted_data.is_none() {
            let first =
                "the backend has no state, and it is not certain that this one belongs there";
            return if may_be_first { Ok(()) } else { Err(first.to_owned()) };
        }
        if self.is_newer_than(backend) {
            return Ok(());
        }
        Err(self.check_stored(backend).err().unwrap_or_default())
    }

    /// The first managed resource that differs.
    fn difference(&self, backend: &Self) -> Option<String> {
        let (ours, theirs) = (self.instances(), backend.instances());
        let here = ours.iter().find_map(|(address, instance)| match theirs.get(address) {
            None => Some(format!("the backend does not have its {address}")),
            Some(stored) if stored != instance => Some(format!("{address} differs")),
            Some(_) => None,
        });
        let only_there = || theirs.keys().find(|address| !ours.contains_key(*address));
        here.or_else(|| only_there().map(|address| format!("only the backend has {address}")))
    }

    /// The instances of managed resources by their addresses.
    fn instances(&self) -> BTreeMap<String, &Value> {
        let mut found = BTreeMap::new();
        for resource in self.resources.iter().filter(|resource| resource.mode == "managed") {
            let Resource { module, r#type, name, .. } = resource;
            let module = if module.is_empty() { String::new() } else { format!("{module}.") };
            for instance in &resource.instances {
                let key = instance.get("index_key").filter(|key| !key.is_null());
                let key = key.map(|key| format!("[{key}]")).unwrap_or_default();
                let deposed = instance.get("deposed").and_then(Value::as_str);
                let deposed = deposed.map(|key| format!(" (deposed {key})")).unwrap_or_default();
                found.insert(format!("{module}{type}.{name}{key}{deposed}"), instance);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(lineage: &str, serial: u64, ids: &[(&str, &str)]) -> StateContents {
        let resources = ids.iter().map(|(name, id)| {
            json!({"mode": "managed", "type": "t", "name": name,
                   "instances": [{"index_key": 0, "attributes": {"id": id, "secret": "s"}}]})
        });
        let resources = resources.collect::<Vec<_>>();
        let state = json!({"lineage": lineage, "serial": serial, "resources": resources});
        serde_json::from_value(state).unwrap()
    }

    #[test]
    fn backend_has_a_state_only_with_its_contents() {
        let kept = state("l", 2, &[("a", "1"), ("b", "2")]);
        let all = [("a", "1"), ("b", "2")];
        let more = [("a", "1"), ("b", "2"), ("c", "3")];
        for (backend, expected) in [
            (state("l", 2, &all), None),
            (state("l", 7, &all), None),
            // What this apply deleted is still there.
            (
                state("l", 7, &more),
                Some("serial 7, this one has serial 2, and only the backend has t.c[0]"),
            ),
            // A state that was pushed to an empty backend.
            (state("m", 1, &all), None),
            (
                state("m", 1, &more),
                Some("serial 1 of lineage m; this one has serial 2 of lineage l"),
            ),
            (state("l", 1, &all), Some("the backend has serial 1, this one has serial 2")),
            (state("", 0, &[]), Some("the backend has no state")),
            // An apply on another machine.
            (state("l", 2, &all[..1]), Some("the backend does not have its t.b[0]")),
            (state("l", 3, &[("a", "1"), ("b", "9")]), Some("t.b[0] differs")),
        ] {
            let checked = kept.check_stored(&backend);
            match expected {
                None => checked.unwrap(),
                Some(expected) => {
                    let reason = checked.unwrap_err();
                    assert!(reason.contains(expected), "{reason}");
                }
            }
        }
        let empty = state("l", 2, &[]);
        empty.check_stored(&state("m", 2, &[])).unwrap_err();
        empty.check_stored(&state("l", 2, &[])).unwrap();
        // The tool writes a state without a lineage if it has never reached the backend.
        let first = state("", 0, &all);
        assert!(first.is_comparable());
        first.check_stored(&state("m", 1, &all)).unwrap();
        first.check_stored(&state("m", 1, &more)).unwrap_err();
    }

    #[test]
    fn state_replaces_only_an_earlier_version_of_itself() {
        let ours = state("l", 2, &[("a", "1")]);
        ours.check_replaces(&state("l", 1, &[]), false).unwrap();
        ours.check_replaces(&state("", 0, &[]), true).unwrap();
        for (backend, may_be_first) in [
            (state("", 0, &[]), false),
            (state("l", 2, &[]), true),
            (state("l", 3, &[("a", "1"), ("b", "1")]), true),
            (state("m", 1, &[]), true),
        ] {
            let reason = ours.check_replaces(&backend, may_be_first).unwrap_err();
            assert!(reason.starts_with("the backend has "), "{reason}");
        }
        // It has never reached the backend, which has one by now.
        state("", 1, &[("a", "1")]).check_replaces(&state("l", 1, &[]), true).unwrap_err();
    }

    #[test]
    fn encrypted_state_is_not_compared() {
        let json = json!({"lineage": "l", "serial": 3, "encrypted_data": "x"});
        let encrypted = serde_json::from_value::<StateContents>(json).unwrap();
        assert!(!encrypted.is_comparable());
        state("l", 1, &[]).check_stored(&encrypted).unwrap_err();
        assert!(encrypted.is_newer_than(&state("l", 1, &[])));
    }
}
