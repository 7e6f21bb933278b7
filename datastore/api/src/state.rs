//! Terraform states that the datastore keeps: their keys, versions, locks and leases, as both programs exchange them.
//!
//! It does not know how they are stored. Times are RFC 3339 in UTC.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::Sha256;
use crate::name::{InvalidName, Name};

/// The workspace of a state whose address names none.
pub const DEFAULT_WORKSPACE: &str = "default";

/// One state: that of one workspace of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateKey {
    /// Namespace of the layer.
    pub namespace: Name,
    /// The layer whose objects it describes.
    pub layer: Name,
    /// Its workspace.
    pub workspace: Name,
}

impl fmt::Display for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, layer, workspace } = self;
        write!(f, "{namespace}/{layer}/{workspace}")
    }
}

/// The id of a stored version of a state: 16 and 16 hex digits with a `-`. Newer versions have smaller ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct VersionId(String);

impl VersionId {
    /// The id of a version that was made at this time, in microseconds since 1970.
    pub fn new(micros: u64, random: u64) -> Self {
        Self(format!("{:016x}-{random:016x}", u64::MAX - micros))
    }

    /// When the version was made, in microseconds since 1970.
    pub fn micros(&self) -> u64 {
        u64::MAX - self.numbers().0
    }

    /// The id right before this one: a listing that begins after it begins with this one. `None` for the very first.
    pub fn previous(&self) -> Option<Self> {
        let (time, random) = self.numbers();
        let (time, random) = match random.checked_sub(1) {
            Some(random) => (time, random),
            None => (time.checked_sub(1)?, u64::MAX),
        };
        Some(Self(format!("{time:016x}-{random:016x}")))
    }

    fn numbers(&self) -> (u64, u64) {
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap_or_default();
        let (time, random) = self.0.split_once('-').unwrap_or_default();
        (number(time), number(random))
    }
}

impl FromStr for VersionId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let is_hex = |part: &str| {
            part.len() == 16 && part.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
        };
        match text.split_once('-') {
            Some((time, random)) if is_hex(time) && is_hex(random) => Ok(Self(text.to_owned())),
            _ => Err(InvalidName::new(text, "is not the id of a version")),
        }
    }
}

impl TryFrom<String> for VersionId {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<VersionId> for String {
    fn from(id: VersionId) -> Self {
        id.0
    }
}

impl AsRef<str> for VersionId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a stored version of a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateKind {
    /// It is or was the state: a tool wrote it, or it was restored.
    Head,
    /// A copy that a runner made during or after an apply. It never was the state here.
    Snapshot,
    /// A write that was refused. It never was the state.
    Rejected,
}

impl StateKind {
    /// Its name in listings and queries.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Snapshot => "snapshot",
            Self::Rejected => "rejected",
        }
    }
}

/// A tool that works with states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerTool {
    /// `terraform` or `tofu`.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl fmt::Display for LayerTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// What is recorded about the tool of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRecord {
    /// The tool that works with the states of the layer, wherever they are.
    #[serde(flatten)]
    pub tool: LayerTool,
    /// By workspace, the last migration to another tool, until it is rolled back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub migrations: BTreeMap<String, Migration>,
}

/// The migration of a state from one tool to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// The tool before.
    pub from: LayerTool,
    /// The tool after.
    pub to: LayerTool,
    /// The state before; `None` if there was none.
    pub backup: Option<StateBackup>,
    /// The serial that the new tool has written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<u64>,
    /// Whether the state may be written by the new tool already, and the migration has not ended: no run may work with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    /// When it began.
    pub started: String,
}

/// A copy of a state, among the versions of the state in the datastore. `gc` keeps it as long as a migration names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateBackup {
    /// Its id.
    pub version: VersionId,
    /// The lineage of the state.
    pub lineage: String,
    /// Its serial.
    pub serial: u64,
    /// The digest of the copy.
    pub sha256: Sha256,
}

/// One stored version of a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateVersion {
    /// Its id.
    pub version: VersionId,
    /// What it is.
    pub kind: StateKind,
    /// A generation begins with the first write, with a write after a deletion, and with a restore or forced write that
    /// breaks the order of serials. Within one, the serial of the state never falls.
    pub generation: u64,
    /// The serial in the document.
    pub serial: u64,
    /// The lineage in the document.
    pub lineage: String,
    /// SHA-256 of the document.
    pub sha256: Sha256,
    /// Size of the document in bytes.
    pub size: u64,
    /// How many managed resources it has; `None` if tofu has encrypted it.
    pub resources: Option<u64>,
    /// The version of the tool in the document; `None` if tofu has encrypted it.
    pub terraform_version: Option<String>,
    /// Whether tofu has encrypted it.
    pub encrypted: bool,
    /// The run that wrote it, as `<run>/<attempt>`, if the writer named one.
    pub run: Option<String>,
    /// The tool that wrote it, if the writer named one.
    pub tool: Option<LayerTool>,
    /// The caller that wrote it; `None` where callers are not authenticated.
    pub caller: Option<String>,
    /// When it was stored.
    pub created: String,
    /// The fencing number of the write, if it had one.
    pub fence: Option<u64>,
    /// Why it was refused, if it was.
    pub reason: Option<String>,
}

/// The present state of one workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateHead {
    /// The version that readers get; `None` if there is no state, or it was deleted.
    pub version: Option<StateVersion>,
    /// When the state was deleted, if it was and nothing was written since.
    pub deleted: Option<String>,
    /// The information about the lock, as its holder sent it. `fence` is added if it was taken under a lease.
    pub lock: Option<Value>,
    /// Where the code is whose state it is, as its first writer named it.
    pub place: Option<String>,
}

/// The answer of `GET /api/states`: one page of the versions of a state, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct States {
    /// The present state.
    pub head: StateHead,
    /// The versions of this page.
    pub versions: Vec<StateVersion>,
    /// The `cursor` of the next page, `null` on the last.
    pub next: Option<String>,
}

/// Who wants a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// The user or job that holds it, for people.
    pub holder: String,
    /// Its machine.
    pub host: String,
    /// The run, as `<run>/<attempt>`.
    pub run: Option<String>,
}

/// A lease of a layer. While it is valid, only its holder may lock and write the layer's states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its fencing number. Each new lease of a layer has a higher one.
    pub number: u64,
    /// Who holds it.
    #[serde(flatten)]
    pub request: LeaseRequest,
    /// The caller that took it; `None` where callers are not authenticated.
    pub caller: Option<String>,
    /// When it was taken.
    pub acquired: String,
    /// When it was renewed last.
    pub renewed: String,
    /// When it ends unless it is renewed.
    pub expires: String,
    /// Whether it has not expired.
    pub valid: bool,
    /// The expired lease that it took over, as text for people.
    pub took_over: Option<String>,
}

/// A lease that was just taken or renewed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedLease {
    /// The lease.
    pub lease: Lease,
    /// A password for the state, which outlives the caller's token. Only for a caller that may itself read and write
    /// it, and only when the lease is taken.
    pub credential: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_version_has_a_smaller_id() {
        let (older, newer) = (VersionId::new(1_000, 7), VersionId::new(1_001, 3));
        assert!(newer < older);
        assert_eq!((older.micros(), newer.micros()), (1_000, 1_001));
        assert_eq!(older.to_string().parse(), Ok(older));
        for text in
            ["", "-", "0", "0123456789abcdef-0123456789abcde", "0123456789ABCDEF-0123456789abcdef"]
        {
            text.parse::<VersionId>().unwrap_err();
        }
    }

    #[test]
    fn no_id_is_between_an_id_and_its_previous_one() {
        for (id, previous) in [
            ("fffa0b1c2d3e4f50-0123456789abcdef", Some("fffa0b1c2d3e4f50-0123456789abcdee")),
            ("fffa0b1c2d3e4f50-0000000000000000", Some("fffa0b1c2d3e4f4f-ffffffffffffffff")),
            ("0000000000000000-0000000000000000", None),
        ] {
            let previous = previous.map(|previous| previous.parse().unwrap());
            assert_eq!(id.parse::<VersionId>().unwrap().previous(), previous);
        }
    }
}
