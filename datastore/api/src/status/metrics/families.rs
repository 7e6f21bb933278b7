//! The metrics that every status has.

use std::collections::BTreeMap;

use jiff::Timestamp;
use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{
    GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, Result as Made,
    TextEncoder,
};

use super::extra::Extra;
use super::names::{MAX_VALUE, MAX_VALUES, MetricPrefix};
use crate::name::Name;
use crate::status::{Condition, LayerStatus, RunResult};

/// The tool that is replaced by tofu.
const OLD_TOOL: &str = "terraform";

/// The metrics of a page while it is made.
pub(super) struct Families {
    registry: Registry,
    all: Option<All>,
    extra: Extra,
    prefix: String,
    invalid: u64,
}

/// The metrics with the labels `namespace` and `layer`.
struct All {
    status: IntGaugeVec,
    result: IntGaugeVec,
    last_success: IntGaugeVec,
    last_run: IntGaugeVec,
    phase: GaugeVec,
    runs: IntCounterVec,
    failed: IntGaugeVec,
    changes: IntGaugeVec,
    state_size: IntGaugeVec,
    lock_age: IntGaugeVec,
    migrate: IntGaugeVec,
    tool: IntGaugeVec,
    stale: IntGaugeVec,
}

impl Families {
    pub(super) fn new(prefix: &MetricPrefix) -> Self {
        let (registry, prefix) = (Registry::new(), prefix.to_string());
        let all = All::new(&Make { registry: &registry, prefix: &prefix }).ok();
        Self { registry, all, extra: Extra::default(), prefix, invalid: 0 }
    }

    /// Adds one layer.
    pub(super) fn add(
        &mut self,
        namespace: &Name,
        layer: &Name,
        status: &LayerStatus,
        now: Timestamp,
    ) {
        if let Some(all) = &self.all {
            self.invalid += all.add([namespace.as_ref(), layer.as_ref()], status, now);
        }
        if let Some(metric) = &status.metric {
            self.invalid += u64::from(!self.extra.add(metric, status.status));
        }
    }

    /// The page.
    pub(super) fn finish(self, exporter_errors: u64) -> String {
        let Self { registry, extra, prefix, invalid, .. } = self;
        let invalid = invalid + extra.register(&registry, &prefix);
        let counts = register_counts(&registry, &prefix, exporter_errors, invalid);
        let text = counts.and_then(|()| TextEncoder::new().encode_to_string(&registry.gather()));
        // The prefix and all names are valid, so nothing of them is refused.
        text.unwrap_or_default()
    }
}

fn register_counts(registry: &Registry, prefix: &str, errors: u64, invalid: u64) -> Made<()> {
    // Deckhouse's alerts have this name, without `_total`.
    let help = "Statuses that could not be read or stored.";
    let counter = IntCounter::new(format!("{prefix}_exporter_errors"), help)?;
    counter.inc_by(errors);
    registry.register(Box::new(counter))?;
    let help =
        "Metrics and labels of statuses that are left out: not valid, taken already, or too many.";
    let gauge = IntGauge::new(format!("{prefix}_invalid_metrics"), help)?;
    gauge.set(integer(invalid));
    registry.register(Box::new(gauge))
}

impl All {
    fn new(make: &Make) -> Made<Self> {
        Ok(Self {
            status: make.gauge("status", "How the layer differs from its code.", &["status"])?,
            result: make.gauge("last_result", "How the last run ended.", &["result"])?,
            last_success: make.gauge(
                "last_success_timestamp_seconds",
                "When a run last ended without a failure.",
                &[],
            )?,
            last_run: make.gauge("last_run_timestamp_seconds", "When the last run ended.", &[])?,
            phase: make.phases()?,
            runs: make.runs()?,
            failed: make.gauge(
                "failed_in_a_row",
                "Runs that have failed since the last success.",
                &[],
            )?,
            changes: make.gauge("changes", "Changes that the last run found.", &["action"])?,
            state_size: make.gauge("state_size_bytes", "The size of the state.", &[])?,
            lock_age: make.gauge(
                "state_lock_age_seconds",
                "How long another process holds the lock of the state, as the last run found it.",
                &[],
            )?,
            migrate: make.migrate()?,
            tool: make.gauge("tool_info", "The tool of a layer.", &["tool", "version"])?,
            stale: make.gauge(
                "stale",
                "Whether the layer must run again before its outputs are used.",
                &[],
            )?,
        })
    }

    /// Adds a layer, and returns how many labels were left out.
    fn add(&self, layer: [&str; 2], status: &LayerStatus, now: Timestamp) -> u64 {
        self.add_words(layer, status);
        self.add_times(layer, status, now);
        set(&self.failed, layer, &[], status.failed_in_a_row.into());
        set(&self.stale, layer, &[], status.stale.is_some().into());
        if let Some(size) = status.state_bytes {
            set(&self.state_size, layer, &[], integer(size));
        }
        if let Some(tool) = &status.tool {
            set(&self.migrate, layer, &[], (tool.name == OLD_TOOL).into());
            let (name, version) = (shortened(&tool.name), shortened(&tool.version));
            set(&self.tool, layer, &[name, version], 1);
        }
        for (action, count) in shown(&status.counts) {
            set(&self.changes, layer, &[action], integer(*count));
        }
        for (phase, seconds) in shown(&status.seconds) {
            if let Some(gauge) = of(&self.phase, layer, &[phase]) {
                gauge.set(*seconds);
            }
        }
        for (class, runs) in shown(&status.runs_by_class) {
            if let Some(counter) = of(&self.runs, layer, &[class]) {
                counter.inc_by(*runs);
            }
        }
        left_out(&status.counts) + left_out(&status.seconds) + left_out(&status.runs_by_class)
    }

    fn add_words(&self, layer: [&str; 2], status: &LayerStatus) {
        for condition in Condition::ALL {
            let is = i64::from(condition == status.status);
            set(&self.status, layer, &[condition.as_str()], is);
        }
        for result in RunResult::ALL {
            let is = i64::from(result == status.result);
            set(&self.result, layer, &[result.as_str()], is);
        }
    }

    fn add_times(&self, layer: [&str; 2], status: &LayerStatus, now: Timestamp) {
        let time = |text: &str| text.parse::<Timestamp>().ok().map(Timestamp::as_second);
        if let Some(ended) = time(&status.ended) {
            set(&self.last_run, layer, &[], ended);
        }
        if let Some(ended) = status.last_success.as_deref().and_then(time) {
            set(&self.last_success, layer, &[], ended);
        }
        if let Some(since) = status.locked_since.as_deref().and_then(time) {
            set(&self.lock_age, layer, &[], (now.as_second() - since).max(0));
        }
    }
}

/// Makes metrics of layers and registers them.
struct Make<'a> {
    registry: &'a Registry,
    prefix: &'a str,
}

impl Make<'_> {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(format!("{}_layer_{name}", self.prefix), help)
    }

    fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> Made<IntGaugeVec> {
        let labels = [&["namespace", "layer"], labels].concat();
        self.registered(IntGaugeVec::new(self.opts(name, help), &labels)?)
    }

    fn phases(&self) -> Made<GaugeVec> {
        let opts = self.opts("phase_duration_seconds", "The phases of the last run.");
        self.registered(GaugeVec::new(opts, &["namespace", "layer", "phase"])?)
    }

    fn runs(&self) -> Made<IntCounterVec> {
        let opts =
            self.opts("runs_total", "Runs that have ended: ok, or the class of the failure.");
        self.registered(IntCounterVec::new(opts, &["namespace", "layer", "class"])?)
    }

    fn migrate(&self) -> Made<IntGaugeVec> {
        let name = format!("{}_need_migrate_to_tofu", self.prefix);
        let opts = Opts::new(name, "Whether terraform is the tool of a layer.");
        self.registered(IntGaugeVec::new(opts, &["namespace", "layer"])?)
    }

    fn registered<C: Collector + Clone + 'static>(&self, collector: C) -> Made<C> {
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }
}

fn set(gauge: &IntGaugeVec, layer: [&str; 2], labels: &[&str], value: i64) {
    if let Some(gauge) = of(gauge, layer, labels) {
        gauge.set(value);
    }
}

/// The metric with these labels. They are those of the family, so there always is one.
fn of<T: MetricVecBuilder>(
    family: &MetricVec<T>,
    layer: [&str; 2],
    labels: &[&str],
) -> Option<T::M> {
    family.get_metric_with_label_values(&[&layer[..], labels].concat()).ok()
}

/// What a page shows of the values of a label that a document names.
fn shown<T>(values: &BTreeMap<String, T>) -> impl Iterator<Item = (&str, &T)> {
    let short = values.iter().filter(|(value, _)| value.len() <= MAX_VALUE);
    short.take(MAX_VALUES).map(|(value, of)| (value.as_str(), of))
}

fn left_out<T>(values: &BTreeMap<String, T>) -> u64 {
    (values.len() - shown(values).count()) as u64
}

/// The beginning of a text.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_VALUE)]
}

fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
