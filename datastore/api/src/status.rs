//! The status of a layer: what its last check, plan or apply has found. A runner writes it, and the datastore keeps one for each
//! layer and makes metrics of it.
//!
//! It knows no storage and no policy. Times are RFC 3339 in UTC. [`metrics`] makes metrics of statuses.

pub mod metrics;

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Sha256;
use crate::state::LayerTool;

/// The name of the document of a layer that has its status.
pub const STATUS: &str = "status.json";

/// How many changes a status lists.
pub const LISTED_CHANGES: usize = 100;

/// How a layer differs from its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// It is as declared.
    Ok,
    /// There are changes, and the policy allows all of them.
    Changed,
    /// There are changes that the policy does not allow without an approval.
    DestructivelyChanged,
    /// Nothing of it exists yet: there is no state, or an empty one, and everything is to be created.
    Absent,
    /// Its code declares nothing any more, and its state still has objects.
    Abandoned,
    /// It is not known: the check has failed.
    Error,
}

impl Condition {
    /// All of them, in the order of metrics and tables.
    pub const ALL: [Self; 6] = [
        Self::Ok,
        Self::Changed,
        Self::DestructivelyChanged,
        Self::Absent,
        Self::Abandoned,
        Self::Error,
    ];

    /// The word in documents, labels and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Changed => "changed",
            Self::DestructivelyChanged => "destructively_changed",
            Self::Absent => "absent",
            Self::Abandoned => "abandoned",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How the last run of a layer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunResult {
    /// Nothing was to be changed.
    Unchanged,
    /// There are changes, and this run was not to apply them.
    Changes,
    /// The changes were applied.
    Applied,
    /// The policy has refused the changes: nothing was applied.
    Refused,
    /// A layer that it needs has failed, so it was not started.
    Blocked,
    /// An input of it does not exist yet, so it was not started.
    Waiting,
    /// It has failed.
    Failed,
    /// A signal has ended it.
    Interrupted,
}

impl RunResult {
    /// All of them, in the order of metrics and tables.
    pub const ALL: [Self; 8] = [
        Self::Unchanged,
        Self::Changes,
        Self::Applied,
        Self::Refused,
        Self::Blocked,
        Self::Waiting,
        Self::Failed,
        Self::Interrupted,
    ];

    /// The word in documents, labels and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Changes => "changes",
            Self::Applied => "applied",
            Self::Refused => "refused",
            Self::Blocked => "blocked",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

impl fmt::Display for RunResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `status.json`: the status of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerStatus {
    /// The version of this format, 1.
    pub version: u32,
    /// How it differs from its code.
    pub status: Condition,
    /// The class of the failure, if `status` is an error or the last run has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Why the last run has failed, or what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How the last run ended.
    pub result: RunResult,
    /// The action of that run: `check`, `converge`, `destroy`.
    pub action: String,
    /// That run and attempt, `RUN/ATTEMPT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// When it ended.
    pub ended: String,
    /// When a run last ended without a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<String>,
    /// When the layer was last found, or made, as declared. What failed runs had left unfinished before that is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ok: Option<Timestamp>,
    /// How many runs in a row have failed.
    #[serde(default)]
    pub failed_in_a_row: u32,
    /// The number of changes, by action: `create`, `update`, `delete`, `replace`, `forget`, `import`, `move`.
    #[serde(default)]
    pub counts: BTreeMap<String, u64>,
    /// The changes, at most [`LISTED_CHANGES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ListedChange>,
    /// The digest of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_sha256: Option<Sha256>,
    /// The digest by which the refused changes can be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Sha256>,
    /// The digest of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_sha256: Option<Sha256>,
    /// The seconds of each phase of the last run: `init`, `plan`, `show`, `apply`.
    #[serde(default)]
    pub seconds: BTreeMap<String, f64>,
    /// How many runs have ended in each class since the first one: `ok`, or the class of the failure.
    #[serde(default)]
    pub runs_by_class: BTreeMap<String, u64>,
    /// The size of the state in bytes, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_bytes: Option<u64>,
    /// Since when another process has held the lock of the state, if the last run found it held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_since: Option<String>,
    /// The tool that works with the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<LayerTool>,
    /// Why the layer must run again before its outputs are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<String>,
    /// The further metric that shows this status, as the layer's annotation `plancha/metrics` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<MetricName>,
}

/// One change of a plan, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedChange {
    /// The address of the object.
    pub address: String,
    /// `create`, `update`, `delete`, `replace`, `forget`, `import` or `move`.
    pub action: String,
    /// Why the policy does not allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A metric and its labels, as in `node_status{node_group=worker,name=w-1}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct MetricName {
    /// The name, without the prefix.
    pub name: String,
    /// The labels, beside `status`.
    pub labels: BTreeMap<String, String>,
}

impl fmt::Display for MetricName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.labels.is_empty() {
            return Ok(());
        }
        let labels = self.labels.iter().map(|(name, value)| format!("{name}={value}"));
        write!(f, "{{{}}}", labels.collect::<Vec<_>>().join(","))
    }
}

impl From<MetricName> for String {
    fn from(name: MetricName) -> Self {
        name.to_string()
    }
}

/// The text is no metric and its labels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a metric: {reason}; expected NAME or NAME{{LABEL=VALUE,...}}")]
pub struct InvalidMetricName {
    text: String,
    reason: String,
}

impl TryFrom<String> for MetricName {
    type Error = InvalidMetricName;

    fn try_from(text: String) -> Result<Self, InvalidMetricName> {
        text.parse()
    }
}

impl std::str::FromStr for MetricName {
    type Err = InvalidMetricName;

    fn from_str(text: &str) -> Result<Self, InvalidMetricName> {
        let refused = |reason: String| InvalidMetricName { text: text.to_owned(), reason };
        let text = text.trim();
        let (name, labels) = match text.split_once('{') {
            None => (text, ""),
            Some((name, rest)) => {
                let labels = rest.strip_suffix('}');
                (
                    name,
                    labels.ok_or_else(|| refused("its labels have no closing brace".to_owned()))?,
                )
            }
        };
        if !is_identifier(name) {
            return Err(refused(format!("`{name}` is not a valid name")));
        }
        let mut found = BTreeMap::new();
        for label in labels.split(',').map(str::trim).filter(|label| !label.is_empty()) {
            let (label, value) = label
                .split_once('=')
                .ok_or_else(|| refused(format!("the label `{label}` has no value")))?;
            let value = value.trim();
            let value =
                value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
            let label = label.trim();
            if !is_identifier(label) || label == "status" {
                return Err(refused(format!("`{label}` is not a valid label here")));
            }
            if found.insert(label.to_owned(), value.to_owned()).is_some() {
                return Err(refused(format!("the label `{label}` is there twice")));
            }
        }
        Ok(Self { name: name.to_owned(), labels: found })
    }
}

fn is_identifier(text: &str) -> bool {
    let is_part = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    text.bytes().all(is_part) && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_its_name_and_labels() {
        for text in ["cluster_status", "node_status{name=w-1,node_group=worker}"] {
            assert_eq!(text.parse::<MetricName>().unwrap().to_string(), text);
        }
        let quoted = r#" node_status{ name="w-1" , node_group = "worker" } "#.parse::<MetricName>();
        assert_eq!(quoted.unwrap().to_string(), "node_status{name=w-1,node_group=worker}");
        for wrong in ["", "9a", "a b", "a{b}", "a{b=1", "a{b=1,b=2}", "a{status=ok}", "a{9=1}"] {
            wrong.parse::<MetricName>().unwrap_err();
        }
    }
}
