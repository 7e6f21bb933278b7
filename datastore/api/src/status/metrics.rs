//! Statuses as metrics, in the text format of Prometheus, version 0.0.4.
//!
//! The datastore and the runner serve the same page. A document of a caller cannot break it: names that are not valid, and
//! more labels than the limits below, are left out and counted in the gauge `<prefix>_invalid_metrics`.

mod extra;
mod families;

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use super::{LayerStatus, is_identifier};
use crate::name::{InvalidName, Name};
use families::Families;

/// The prefix of the names of metrics.
pub const PREFIX: &str = "plancha";

/// The content type of a page.
pub const CONTENT: &str = "text/plain; version=0.0.4; charset=utf-8";

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
const MAX_VALUES: usize = 32;
/// The longest value of such a label, in bytes.
const MAX_VALUE: usize = 128;

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

/// The page of these layers: namespace, layer and status. `exporter_errors` counts what could not be read since the start of
/// the process. A prefix that is no [`MetricPrefix`] becomes [`PREFIX`].
pub fn page<'a>(
    prefix: &str,
    statuses: impl IntoIterator<Item = (&'a Name, &'a Name, &'a LayerStatus)>,
    exporter_errors: u64,
    now: Timestamp,
) -> String {
    let prefix = prefix.parse().unwrap_or_default();
    let mut families = Families::new(&prefix);
    for (namespace, layer, status) in statuses {
        families.add(namespace, layer, status, now);
    }
    families.finish(exporter_errors)
}

#[cfg(test)]
mod tests;
