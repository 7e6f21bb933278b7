//! What a page shows of a layer, made of its newest run, the record of that run, and its status.

use std::collections::BTreeMap;

use datastore_api::key::Live;
use datastore_api::layers::{LayerRun, PlanCounts};
use datastore_api::status::LayerStatus;
use datastore_api::{Attempt, File, Name, PlanFormat, RunKey};
use futures::TryStreamExt as _;
use serde::{Deserialize, Serialize};

use crate::store::error::StoreError;
use crate::store::handle::Store;
use crate::store::key::Key;
use crate::store::object::timestamp;

/// The record of a run.
pub(super) const RECORD: &str = "run.json";
/// The largest record, and the largest `short.diff`, that are read.
const MAX_RECORD: u64 = 4 << 20;
const MAX_SHORT: u64 = 1 << 10;
/// The longest text of a record or status that is shown.
const MAX_TEXT: usize = 1000;

/// What is known of a layer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// The newest run.
    pub(crate) last_run: Option<LayerRun>,
    /// Where the result of that run is from.
    pub(crate) source: Option<Source>,
    pub(crate) status: Option<LayerStatus>,
    /// How many bytes were read of the status, or of this.
    #[serde(skip)]
    pub(crate) size: usize,
}

/// Where the result of a run is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// `run.json`.
    Record,
    /// `short.diff`, of a run of Burrito's runner.
    Short,
}

/// What is read of `run.json`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Record {
    action: Option<String>,
    outcome: Option<String>,
    revision: Option<String>,
    tool: Option<Tool>,
    plan: Option<Plan>,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
    version: String,
}

#[derive(Deserialize)]
struct Plan {
    counts: Option<PlanCounts>,
}

impl Summary {
    /// Whether there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.last_run.is_none() && self.status.is_none()
    }
}

impl Store {
    /// Reads what is known of a layer.
    pub(in crate::store) async fn read_summary(
        &self,
        namespace: &Name,
        layer: &Name,
        has_documents: bool,
    ) -> Result<Summary, StoreError> {
        let status = async {
            if !has_documents {
                return Ok(None);
            }
            self.status(namespace, layer.clone()).await
        };
        let (run, status) = tokio::try_join!(self.newest_run(namespace, layer), status)?;
        let (last_run, source) = run.unzip();
        let (status, size) =
            status.map(|read| (read.status.ok().map(shortened), read.size)).unzip();
        let size = size.unwrap_or_default();
        Ok(Summary { last_run, source: source.flatten(), status: status.flatten(), size })
    }

    /// The newest run of a layer, and where its result is from.
    async fn newest_run(
        &self,
        namespace: &Name,
        layer: &Name,
    ) -> Result<Option<(LayerRun, Option<Source>)>, StoreError> {
        let newest = self.runs(namespace, layer, 1, None).await?.runs.pop();
        let Some(newest) = newest else { return Ok(None) };
        let Ok(name) = newest.run.parse() else { return Ok(None) };
        let run = RunKey { namespace: namespace.clone(), layer: layer.clone(), run: name };
        let ((latest, files), live) =
            tokio::try_join!(self.shown_files(&run), self.live_views(&run))?;
        // Its first object is not stored yet, or its last one was deleted.
        let attempt = latest.max(live.keys().copied().max());
        let Some(attempt) = attempt else { return Ok(None) };
        let files = if latest == Some(attempt) { files } else { BTreeMap::new() };
        let mut shown = LayerRun::without_result(newest.run, attempt, newest.started);
        if !files.contains_key(File::Log.name()) {
            shown.live = live.get(&attempt).and_then(|view| view.state(self.live_clock()));
        }
        let source = self.add_result(&run, &files, &mut shown).await?;
        Ok(Some((shown, source)))
    }

    /// The latest attempt of a run that has files, and the times of those that a summary shows.
    async fn shown_files(
        &self,
        run: &RunKey,
    ) -> Result<(Option<Attempt>, BTreeMap<String, String>), StoreError> {
        let shown = [RECORD, File::Plan(PlanFormat::Short).name(), File::Log.name()];
        let (mut latest, mut times) = (None, BTreeMap::new());
        let mut files = self.files(run)?;
        while let Some((attempt, name, meta)) = files.try_next().await? {
            if latest < Some(attempt) {
                latest = Some(attempt);
                times.clear();
            }
            if latest == Some(attempt) && shown.contains(&&*name) {
                times.insert(name, timestamp(&meta).to_string());
            }
        }
        Ok((latest, times))
    }

    /// Adds the result of a run from the files of its attempt: their names and times.
    async fn add_result(
        &self,
        run: &RunKey,
        files: &BTreeMap<String, String>,
        shown: &mut LayerRun,
    ) -> Result<Option<Source>, StoreError> {
        let short = File::Plan(PlanFormat::Short);
        let source = if let Some(stored) = files.get(RECORD) {
            shown.finished = Some(stored.clone());
            Source::Record
        } else if let Some(stored) = files.get(short.name()).filter(|_| shown.live.is_none()) {
            shown.finished = Some(stored.clone());
            Source::Short
        } else {
            return Ok(None);
        };
        match source {
            Source::Record => {
                let Ok(name) = RECORD.parse() else { return Ok(None) };
                let key = Key::File(run.clone(), shown.attempt, File::Other(name));
                if let Some(bytes) = self.readable(&key, MAX_RECORD).await? {
                    add_record(&bytes, shown);
                }
            }
            Source::Short => {
                let key = Key::File(run.clone(), shown.attempt, short);
                if let Some(bytes) = self.readable(&key, MAX_SHORT).await? {
                    add_short(&String::from_utf8_lossy(&bytes), shown);
                }
            }
        }
        Ok(Some(source))
    }

    /// The bytes of a small object; `None` if there is none that can be read.
    async fn readable(&self, key: &Key, max: u64) -> Result<Option<bytes::Bytes>, StoreError> {
        match self.small(key, max).await {
            Err(StoreError::NotFound) => Ok(None),
            Err(error) if error.is_of_object() => Ok(None),
            read => read,
        }
    }

    /// Whether the log of an attempt still grows.
    pub(in crate::store) async fn live_state(
        &self,
        run: &RunKey,
        attempt: Attempt,
    ) -> Result<Option<Live>, StoreError> {
        Ok(self.live_view(run, attempt).await?.state(self.live_clock()))
    }
}

fn add_record(json: &[u8], shown: &mut LayerRun) {
    // Any caller may have written it: a record that is none shows nothing.
    let record = serde_json::from_slice::<Record>(json).unwrap_or_default();
    let Record { action, outcome, revision, tool, plan } = record;
    (shown.action, shown.outcome) = (action.map(cut), outcome.map(cut));
    shown.revision = revision.map(cut);
    (shown.tool, shown.tool_version) =
        tool.map(|Tool { name, version }| (cut(name), cut(version))).unzip();
    shown.counts = plan.and_then(|plan| plan.counts);
}

/// Adds what Burrito's runner has stored: one line about a plan, or about an apply.
fn add_short(text: &str, shown: &mut LayerRun) {
    if text.trim() == "Apply Successful" {
        (shown.action, shown.outcome) = (Some("apply".to_owned()), Some("applied".to_owned()));
        return;
    }
    let Some(counts) = short_counts(text.trim()) else { return };
    let is_empty = counts == PlanCounts::default();
    let outcome = if is_empty { "no_changes" } else { "changes" };
    (shown.action, shown.outcome) = (Some("plan".to_owned()), Some(outcome.to_owned()));
    shown.counts = Some(counts);
}

/// `Plan: 1 to create, 0 to update, 2 to delete`
fn short_counts(text: &str) -> Option<PlanCounts> {
    let mut counts = text.strip_prefix("Plan: ")?.split(", ");
    let mut next = |what| counts.next()?.strip_suffix(what)?.parse().ok();
    let (create, update) = (next(" to create")?, next(" to update")?);
    Some(PlanCounts { create, update, delete: next(" to delete")? })
}

/// A status without what makes it long.
fn shortened(status: LayerStatus) -> LayerStatus {
    LayerStatus { changes: Vec::new(), message: status.message.map(cut), ..status }
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_TEXT) {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_burritos_runner_has_action_outcome_and_counts() {
        let of = |text| {
            let mut shown = LayerRun::without_result(String::new(), Attempt(0), String::new());
            add_short(text, &mut shown);
            format!("{:?} {:?} {:?}", shown.action, shown.outcome, shown.counts)
        };
        insta::assert_snapshot!(of("Plan: 1 to create, 0 to update, 2 to delete"), @r#"Some("plan") Some("changes") Some(PlanCounts { create: 1, update: 0, delete: 2 })"#);
        insta::assert_snapshot!(of("Plan: 0 to create, 0 to update, 0 to delete\n"), @r#"Some("plan") Some("no_changes") Some(PlanCounts { create: 0, update: 0, delete: 0 })"#);
        insta::assert_snapshot!(of("Apply Successful"), @r#"Some("apply") Some("applied") None"#);
        for other in ["", "Plan: x to create", "exit status 1", "Plan: 1 to create, 1 to update"] {
            assert_eq!(of(other), "None None None", "{other}");
        }
    }
}
