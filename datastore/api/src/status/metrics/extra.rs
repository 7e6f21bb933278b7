//! The metrics that layers name themselves, as in `node_status{node_group=worker,name=w-1}`. The words of their label `status`
//! are Deckhouse's, whose alerts read them.

use std::collections::BTreeMap;

use prometheus::{IntGaugeVec, Opts, Registry};

use super::names::{MAX_VALUE, NAMES};
use crate::status::{Condition, MetricName};

/// How many labels such a metric has at most.
const MAX_LABELS: usize = 8;
/// How many such metrics a page has at most.
const MAX_METRICS: usize = 32;

/// The metrics that layers name, by their names.
#[derive(Default)]
pub(super) struct Extra(BTreeMap<String, Family>);

/// One of them.
struct Family {
    labels: Vec<String>,
    /// By the values of the labels, in their order.
    layers: BTreeMap<Vec<String>, Condition>,
}

impl Extra {
    /// Adds the status of a layer. Returns whether it fits: the first layer decides about the labels of a metric, and a second
    /// one with the same values is left out.
    pub(super) fn add(&mut self, metric: &MetricName, status: Condition) -> bool {
        let MetricName { name, labels } = metric;
        let has_room = self.0.contains_key(name) || self.0.len() < MAX_METRICS;
        if !is_valid(metric) || is_taken(name) || !has_room {
            return false;
        }
        let names = labels.keys().cloned().collect::<Vec<_>>();
        let values = labels.values().cloned().collect();
        let family = self.0.entry(name.clone());
        let family =
            family.or_insert_with(|| Family { labels: names.clone(), layers: BTreeMap::new() });
        if family.labels != names || family.layers.contains_key(&values) {
            return false;
        }
        family.layers.insert(values, status);
        true
    }

    /// Registers all of them, and the one that follows from them. Returns how many could not be.
    pub(super) fn register(self, registry: &Registry, prefix: &str) -> u64 {
        let groups = self.0.get("node_status").and_then(groups);
        let groups = groups.map(|groups| ("node_group_status".to_owned(), groups));
        let mut refused = 0;
        for (name, family) in self.0.into_iter().chain(groups) {
            refused += u64::from(register(registry, prefix, &name, &family).is_err());
        }
        refused
    }
}

fn is_valid(MetricName { name, labels }: &MetricName) -> bool {
    let fits = |(label, value): (&String, &String)| {
        !label.starts_with("__") && label.len() <= MAX_VALUE && value.len() <= MAX_VALUE
    };
    name.len() <= MAX_VALUE && labels.len() <= MAX_LABELS && labels.iter().all(fits)
}

/// Whether a page has a metric of its own under the name.
fn is_taken(name: &str) -> bool {
    name.starts_with("layer_") || NAMES.contains(&name)
}

/// The statuses of groups of nodes: each has that of its worst node.
fn groups(nodes: &Family) -> Option<Family> {
    let place = nodes.labels.iter().position(|label| label == "node_group")?;
    let mut layers = BTreeMap::<Vec<String>, Condition>::new();
    for (values, status) in &nodes.layers {
        let group = layers.entry(vec![values[place].clone()]).or_insert(*status);
        if severity(*status) > severity(*group) {
            *group = *status;
        }
    }
    Some(Family { labels: vec!["name".to_owned()], layers })
}

/// How bad a status is, as Deckhouse's check of a cluster sees it.
fn severity(status: Condition) -> u8 {
    match status {
        Condition::Ok => 0,
        Condition::Changed => 1,
        Condition::Absent => 2,
        Condition::DestructivelyChanged => 3,
        Condition::Abandoned => 4,
        Condition::Error => 5,
    }
}

/// The words of a metric, and which of them a status is. A status without a word there is shown as the nearest one that is not
/// `ok`.
fn words(name: &str) -> (&'static [Condition], fn(Condition) -> Condition) {
    use Condition::{Abandoned, Absent, Changed, DestructivelyChanged, Error, Ok};
    match name {
        "cluster_status" => (&[Ok, Error, Changed, DestructivelyChanged], |status| match status {
            Absent => Changed,
            Abandoned => DestructivelyChanged,
            status => status,
        }),
        "node_template_status" => (&[Ok, Changed, Absent], |status| match status {
            DestructivelyChanged | Abandoned | Error => Changed,
            status => status,
        }),
        _ => (&Condition::ALL, |status| status),
    }
}

fn register(
    registry: &Registry,
    prefix: &str,
    name: &str,
    family: &Family,
) -> prometheus::Result<()> {
    let help = "The status of layers, as their annotation `plancha/metrics` names it.";
    let labels = family.labels.iter().map(String::as_str).chain(["status"]).collect::<Vec<_>>();
    let gauge = IntGaugeVec::new(Opts::new(format!("{prefix}_{name}"), help), &labels)?;
    let (words, word_of) = words(name);
    for (values, status) in &family.layers {
        for word in words {
            let values = values.iter().map(String::as_str).chain([word.as_str()]);
            let is = i64::from(word_of(*status) == *word);
            gauge.get_metric_with_label_values(&values.collect::<Vec<_>>())?.set(is);
        }
    }
    registry.register(Box::new(gauge))
}
