//! The status of a layer after a run: made of the run's report and of the status before.

use std::collections::BTreeMap;

use datastore_api::client::Upload;
use datastore_api::status::{Condition, LayerStatus, RunResult, STATUS};
use datastore_api::{ClientError, DocumentKey, chain};
use jiff::Timestamp;

use crate::order::layer::LayerHandle;
use crate::report::{Outcome, Report, StateLock};
use crate::run::Run;

/// The version of the format.
const VERSION: u32 = 1;

impl Run<'_> {
    /// Stores the status of the layer after a check or converge, also if that has failed. It changes nothing about its result.
    pub(crate) async fn store_status(&self) {
        if !self.job.action.is_judged() {
            return;
        }
        let Some(client) = &self.job.datastore else { return };
        let (namespace, layer) = (self.job.run.namespace.clone(), self.job.run.layer.clone());
        let name = STATUS.parse().expect("a valid name");
        let key = DocumentKey { namespace, layer, name };
        let stored = async {
            let previous = client.get_document(&key).await?;
            let previous = previous.and_then(|json| match serde_json::from_slice(&json) {
                Ok(status) => Some(status),
                Err(error) => {
                    tracing::warn!("the status of before cannot be read: {error}");
                    None
                }
            });
            let mut json =
                serde_json::to_string_pretty(&self.status(previous.as_ref())).map_err(|error| {
                    ClientError::Answer { call: STATUS.to_owned(), reason: error.to_string() }
                })?;
            self.environment.redaction.mask(&mut json);
            client.put_document(&key, &Upload::bytes(json)).await
        };
        match self.signals.within(self.upload_grace(), stored).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("the status is not stored: {}", chain(&error)),
            Err(stop) => tracing::warn!("the status is not stored: stopped by {stop}"),
        }
    }

    /// The status of the layer after this run. `previous`: the one before it.
    fn status(&self, previous: Option<&LayerStatus>) -> LayerStatus {
        let run = self.run_name();
        let layer = self.job.layer.as_ref().map(LayerHandle::layer);
        let metric = layer.and_then(|layer| layer.own_annotation("plancha/metrics"));
        let metric = metric.and_then(|text| match text.parse() {
            Ok(metric) => Some(metric),
            Err(error) => {
                tracing::warn!("the layer's annotation plancha/metrics is ignored: {error}");
                None
            }
        });
        let error_after = self.job.judging.as_ref().map_or(1, |judging| judging.error_after);
        LayerStatus { metric, ..status_of(&self.report, run, previous, error_after) }
    }
}

/// The status after a run with this report.
fn status_of(
    report: &Report,
    run: String,
    previous: Option<&LayerStatus>,
    error_after: u32,
) -> LayerStatus {
    let now = format!("{:.0}", Timestamp::now());
    let check = report.check.as_ref();
    let result = result_of(report);
    let has_failed = matches!(result, RunResult::Failed | RunResult::Interrupted);
    let failed_in_a_row =
        if has_failed { previous.map_or(0, |before| before.failed_in_a_row) + 1 } else { 0 };
    let class = report.class.clone().filter(|_| has_failed);
    let last = previous.map(|before| before.status);
    let status = match (result, check) {
        (RunResult::Applied, _) => Condition::Ok,
        // A failure that passes by itself says nothing about the layer.
        _ if has_failed && passes(class.as_deref(), result) && failed_in_a_row < error_after => {
            last.unwrap_or(Condition::Error)
        }
        _ if has_failed => Condition::Error,
        (_, Some(check)) => check.status,
        (_, None) => last.unwrap_or(Condition::Ok),
    };
    let mut runs_by_class = previous.map(|before| before.runs_by_class.clone()).unwrap_or_default();
    let ended_as = if has_failed {
        class.clone().unwrap_or_else(|| "unknown".to_owned())
    } else {
        "ok".to_owned()
    };
    *runs_by_class.entry(ended_as).or_default() += 1;
    let last_success = if has_failed {
        previous.and_then(|before| before.last_success.clone())
    } else {
        Some(now.clone())
    };
    let is_known = result != RunResult::Applied && !has_failed;
    let known = check.filter(|_| is_known);
    LayerStatus {
        version: VERSION,
        status,
        class,
        message: report.message.clone().filter(|_| has_failed),
        result,
        action: report.action.clone(),
        run: Some(run),
        ended: now.clone(),
        last_success,
        failed_in_a_row,
        counts: known.map(|check| check.counts.clone()).unwrap_or_default(),
        changes: known.map(|check| check.changes.clone()).unwrap_or_default(),
        plan_sha256: report.plan.as_ref().map(|plan| plan.sha256),
        approval: known.and_then(|check| check.approval),
        policy_sha256: check.map(|check| check.policy_sha256),
        seconds: report.seconds(),
        runs_by_class,
        state_bytes: None,
        locked_since: (report.state_lock == StateLock::Held)
            .then(|| previous.and_then(|before| before.locked_since.clone()).unwrap_or(now)),
        tool: report.tool.as_ref().map(|tool| datastore_api::state::LayerTool {
            name: tool.name.clone(),
            version: tool.version.clone(),
        }),
        stale: None,
        metric: None,
    }
}

/// How a run ended, by its report.
pub(crate) fn result_of(report: &Report) -> RunResult {
    match report.outcome {
        Outcome::Failed if report.class.as_deref() == Some(REFUSED) => RunResult::Refused,
        Outcome::Failed => RunResult::Failed,
        Outcome::Interrupted => RunResult::Interrupted,
        Outcome::Applied => RunResult::Applied,
        Outcome::NoChanges => RunResult::Unchanged,
        Outcome::Changes => match &report.check {
            Some(check) if !check.allowed => RunResult::Refused,
            _ => RunResult::Changes,
        },
    }
}

/// The class of a run that the policy has refused.
pub(crate) const REFUSED: &str = "refused";

/// Whether a failure passes by itself.
fn passes(class: Option<&str>, result: RunResult) -> bool {
    result == RunResult::Interrupted || matches!(class, Some("transient" | "lock" | "timeout"))
}

impl Report {
    /// The seconds of each phase, over all of its steps.
    pub(crate) fn seconds(&self) -> BTreeMap<String, f64> {
        let mut seconds = BTreeMap::<String, f64>::new();
        for (name, took) in self.steps() {
            let phase = name.split(' ').next().unwrap_or(name);
            *seconds.entry(phase.to_owned()).or_default() += took;
        }
        seconds
    }
}
