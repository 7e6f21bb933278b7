//! Statuses as metrics, in the text format of Prometheus, version 0.0.4.
//!
//! A document of a caller cannot break it: names that are not valid, and
//! more labels than the limits below, are left out and counted in the gauge `<prefix>_invalid_metrics`.

mod extra;
mod families;
mod names;

use jiff::Timestamp;

use self::families::Families;
pub use self::names::{MetricPrefix, NAMES, PREFIX};
use super::LayerStatus;
use crate::name::Name;

/// The content type of a page.
pub const CONTENT: &str = "text/plain; version=0.0.4; charset=utf-8";

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
