//! The names of metrics, and limits of what a document may name.

use std::fmt;
use std::str::FromStr;

use crate::name::InvalidName;
use crate::status::is_identifier;

/// The prefix of the names of metrics.
pub const PREFIX: &str = "plancha";

/// The metrics that are made of every status, without the prefix, in the order of their names.
pub const NAMES: [&str; 16] = [
    "exporter_errors",
    "invalid_metrics",
    "layer_changes",
    "layer_failed_in_a_row",
    "layer_last_result",
    "layer_last_run_timestamp_seconds",
    "layer_last_success_timestamp_seconds",
    "layer_phase_duration_seconds",
    "layer_runs_total",
    "layer_stale",
    "layer_state_lock_age_seconds",
    "layer_state_size_bytes",
    "layer_status",
    "layer_tool_info",
    "need_migrate_to_tofu",
    "node_group_status",
];

/// How many values a label of one layer has that a document names: phases, classes, actions.
pub(super) const MAX_VALUES: usize = 32;
/// The longest value of such a label, in bytes.
pub(super) const MAX_VALUE: usize = 128;

/// The prefix of the names of metrics: `[A-Za-z_][A-Za-z0-9_]{0,63}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricPrefix(String);

impl Default for MetricPrefix {
    fn default() -> Self {
        Self(PREFIX.to_owned())
    }
}

impl AsRef<str> for MetricPrefix {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MetricPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for MetricPrefix {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if text.len() > 64 || !is_identifier(text) {
            let reason =
                "is not 1 to 64 characters of `A-Z a-z 0-9 _` without a digit at the start";
            return Err(InvalidName::new(text, reason));
        }
        Ok(Self(text.to_owned()))
    }
}
