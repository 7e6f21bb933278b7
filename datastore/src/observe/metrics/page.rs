//! The text format of Prometheus, version 0.0.4.
//!
//! Written by hand, because the libraries would change what a scraper reads. `metrics` counts in whole numbers only,
//! and two of our counters are seconds. `prometheus-client` writes `OpenMetrics` only: 11 of 30 metrics lose `_total`
//! in their TYPE line, and `le="1"` becomes `le="1.0"`, which is another series.

use std::fmt::{Display, Write as _};

/// The page of metrics while it is written.
#[derive(Default)]
pub(super) struct Page(String);

impl Page {
    /// Begins a metric.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _never_fails = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// One value of the metric, with its labels. They need no escaping: all their values are ours.
    pub(super) fn line(
        &mut self,
        name: &str,
        labels: &[(&str, &dyn Display)],
        value: impl Display,
    ) {
        self.0.push_str(name);
        for (place, (label, text)) in labels.iter().enumerate() {
            let sign = if place == 0 { '{' } else { ',' };
            let _never_fails = write!(self.0, "{sign}{label}=\"{text}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _never_fails = writeln!(self.0, "{end} {value}");
    }

    /// A metric that has one value and no labels.
    pub(super) fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.line(name, &[], value);
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}
