//! The status of a layer after a run: made of the run's report and of the status before.

use std::collections::BTreeMap;

use datastore_api::client::Upload;
use datastore_api::state::LayerTool;
use datastore_api::status::{Condition, LayerStatus, ListedChange, RunResult, STATUS};
use datastore_api::{Client, ClientError, DocumentKey, RunKey, Sha256, chain};
use jiff::Timestamp;

use crate::basis::binding::Binding;
use crate::order::job::Job;
use crate::order::layer::LayerHandle;
use crate::process::redact::Redaction;
use crate::report::{CHECK, Outcome, Report, StateLock};
use crate::run::Run;
use crate::tool::argv::limits_plan;

/// The version of the format.
const VERSION: u32 = 1;
/// The most bytes of a message, and of an address or a reason.
const MESSAGE: usize = 4 << 10;
const TEXT: usize = 512;

/// A status that was made.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) status: LayerStatus,
    /// Whether the datastore has it, if there is one.
    pub(crate) is_stored: bool,
}

impl Run<'_> {
    /// Makes the status of the layer after a check or converge, also if that has failed, and stores it. It changes nothing about
    /// its result. `known`: the one before, where no datastore has it.
    pub(crate) async fn store_status(&self, known: Option<&LayerStatus>) -> Option<Recorded> {
        // By its status a layer is found that needs others.
        let has_needs = self.job.action.is_apply() && !self.job.inputs.needs.is_empty();
        if !self.job.action.is_judged() && (!has_needs || self.job.action.destroys()) {
            return None;
        }
        if self.job.action.is_judged() && self.plans_a_part() {
            tracing::info!(
                "the status of the layer stays as it was: this plan was limited to a part of it"
            );
            return None;
        }
        let Some(client) = &self.job.datastore else {
            return Some(Recorded { status: self.status(known), is_stored: true });
        };
        let stored = self.signals.within(self.upload_grace(), self.stored_status(client)).await;
        let why = match stored {
            Ok(Ok(status)) => return Some(Recorded { status, is_stored: true }),
            Ok(Err(error)) => chain(&error),
            Err(stop) => format!("stopped by {stop}"),
        };
        tracing::warn!("the status is not stored: {why}");
        Some(Recorded { status: self.status(known), is_stored: false })
    }

    /// Stores the status of the layer, which follows from the one before.
    async fn stored_status(&self, client: &Client) -> Result<LayerStatus, ClientError> {
        let key = status_key(&self.job.run);
        let previous = read_status(client, &key).await?;
        let is_part = self.has_applied_a_part();
        if let Some(previous) = &previous
            && (is_part || previous.status != Condition::Error && self.has_applied_before())
        {
            return Ok(previous.clone());
        }
        let mut status = self.status(previous.as_ref());
        if is_part {
            (status.status, status.last_ok) = (Condition::Changed, None);
        }
        write_status(client, &key, &status, &self.environment.redaction).await?;
        Ok(status)
    }

    /// Whether this is an apply of a part of the layer: it does not show that all is as declared.
    fn has_applied_a_part(&self) -> bool {
        let beside = self.arguments_beside().unwrap_or_default();
        let reviewed = self.binding.as_ref().map_or(&*beside, Binding::arguments);
        self.has_applied() && (self.plans_a_part() || reviewed.iter().any(|arg| limits_plan(arg)))
    }

    /// Whether this is an apply that was made before, and was not repeated.
    fn has_applied_before(&self) -> bool {
        self.has_applied() && self.report.applied_before.is_some()
    }

    /// Whether this is an apply, which has succeeded.
    fn has_applied(&self) -> bool {
        !self.job.action.is_judged() && result_of(&self.report) == RunResult::Applied
    }

    /// When the layer was last found as declared. Without a status it never was.
    pub(super) async fn last_ok(&self) -> Result<Option<Timestamp>, ClientError> {
        let Some(client) = &self.job.datastore else { return Ok(None) };
        let Some(json) = client.get_document(&status_key(&self.job.run)).await? else {
            return Ok(None);
        };
        let status = serde_json::from_slice::<LayerStatus>(&json);
        let status = status.map_err(|error| ClientError::Answer {
            call: STATUS.to_owned(),
            reason: error.to_string(),
        });
        Ok(status?.last_ok)
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

/// The status after a run that could not start.
pub(crate) fn of_rejection(
    report: &Report,
    previous: Option<&LayerStatus>,
    error_after: u32,
) -> LayerStatus {
    let metric = previous.and_then(|before| before.metric.clone());
    let status = status_of(report, String::new(), previous, error_after);
    LayerStatus { run: None, metric, ..status }
}

/// The status of a layer that was not started, because one before it (`by`) has failed. How the layer differs from its code stays
/// what it was, if that is known.
pub(crate) fn blocked(action: &str, by: &str, known: Option<LayerStatus>) -> LayerStatus {
    let known = known.unwrap_or_else(|| {
        let report = Report::new(action, Timestamp::now());
        let status = status_of(&report, String::new(), None, 1);
        LayerStatus { failed_in_a_row: 0, runs_by_class: BTreeMap::new(), ..status }
    });
    LayerStatus {
        result: RunResult::Blocked,
        class: Some(BLOCKED.to_owned()),
        message: Some(format!("{by} has failed or was not started")),
        action: action.to_owned(),
        run: None,
        ended: format!("{:.0}", Timestamp::now()),
        ..known
    }
}

/// Stores that the layer of a job was not started, because one before it has failed.
pub(crate) async fn store_blocked(
    job: &Job,
    action: &str,
    by: &str,
    redaction: &Redaction,
) -> Result<(), ClientError> {
    let Some(client) = &job.datastore else { return Ok(()) };
    let key = status_key(&job.run);
    let known = read_status(client, &key).await?;
    write_status(client, &key, &blocked(action, by, known), redaction).await
}

fn status_key(run: &RunKey) -> DocumentKey {
    let (namespace, layer) = (run.namespace.clone(), run.layer.clone());
    DocumentKey { namespace, layer, name: STATUS.parse().expect("a valid name") }
}

/// The status that is stored. One that cannot be read is none.
async fn read_status(
    client: &Client,
    key: &DocumentKey,
) -> Result<Option<LayerStatus>, ClientError> {
    let json = match client.get_document(key).await {
        Err(error @ (ClientError::Damaged { .. } | ClientError::Lost { .. })) => {
            tracing::warn!("the status of before cannot be read: {}", chain(&error));
            None
        }
        json => json?,
    };
    Ok(json.and_then(|json| match serde_json::from_slice(&json) {
        Ok(status) => Some(status),
        Err(error) => {
            tracing::warn!("the status of before cannot be read: {error}");
            None
        }
    }))
}

async fn write_status(
    client: &Client,
    key: &DocumentKey,
    status: &LayerStatus,
    redaction: &Redaction,
) -> Result<(), ClientError> {
    let mut json = serde_json::to_string_pretty(status).map_err(|error| ClientError::Answer {
        call: STATUS.to_owned(),
        reason: error.to_string(),
    })?;
    redaction.mask(&mut json);
    client.put_document(key, &Upload::bytes(json)).await?;
    Ok(())
}

/// The status after a run with this report.
fn status_of(
    report: &Report,
    run: String,
    previous: Option<&LayerStatus>,
    error_after: u32,
) -> LayerStatus {
    let now = format!("{:.0}", Timestamp::now());
    let result = result_of(report);
    let is_held_up = matches!(result, RunResult::Blocked | RunResult::Waiting);
    let found_nothing = has_failed(result) || is_held_up;
    let before_in_a_row = previous.map_or(0, |before| before.failed_in_a_row);
    let failed_in_a_row =
        if found_nothing { before_in_a_row + u32::from(has_failed(result)) } else { 0 };
    let class = report.class.clone().filter(|_| found_nothing);
    let may_pass = failed_in_a_row < error_after;
    let status = condition(report, result, may_pass, previous.map(|before| before.status));
    let ended_as = match (found_nothing, &class) {
        (false, _) => "ok",
        (true, class) => class.as_deref().unwrap_or("unknown"),
    };
    let mut runs_by_class = previous.map(|before| before.runs_by_class.clone()).unwrap_or_default();
    *runs_by_class.entry(ended_as.to_owned()).or_default() += 1;
    let last_success = if found_nothing {
        previous.and_then(|before| before.last_success.clone())
    } else {
        Some(now.clone())
    };
    let found = Found::of(report, result, previous.filter(|_| found_nothing));
    let Found { counts, changes, plan_sha256, approval, policy_sha256 } = found;
    LayerStatus {
        version: VERSION,
        status,
        class,
        message: report
            .message
            .as_deref()
            .filter(|_| found_nothing)
            .map(|text| short(text, MESSAGE)),
        result,
        action: report.action.clone(),
        run: Some(run),
        ended: now.clone(),
        last_success,
        last_ok: last_ok(status, found_nothing, previous),
        failed_in_a_row,
        counts,
        changes,
        plan_sha256,
        approval,
        policy_sha256,
        seconds: report.seconds(),
        runs_by_class,
        state_bytes: state_bytes(report, previous),
        locked_since: (report.state_lock == StateLock::Held)
            .then(|| previous.and_then(|before| before.locked_since.clone()).unwrap_or(now)),
        tool: report
            .tool
            .as_ref()
            .map(|tool| LayerTool { name: tool.name.clone(), version: tool.version.clone() }),
        stale: previous
            .and_then(|before| before.stale.clone())
            .filter(|_| !is_made(report, result)),
        metric: None,
    }
}

/// The size of the state: that of this run, else the last known one.
fn state_bytes(report: &Report, previous: Option<&LayerStatus>) -> Option<u64> {
    let found = report.check.as_ref().and_then(|check| check.state_bytes);
    found.or_else(|| previous?.state_bytes)
}

/// When the layer was last found as declared. A run that has `found_nothing` out keeps what is known.
fn last_ok(
    status: Condition,
    found_nothing: bool,
    previous: Option<&LayerStatus>,
) -> Option<Timestamp> {
    if status == Condition::Ok && !found_nothing {
        return Some(Timestamp::now());
    }
    previous.and_then(|before| before.last_ok)
}

/// How the layer differs from its code. `may_pass`: it has not failed often. `last`: what was found before.
fn condition(
    report: &Report,
    result: RunResult,
    may_pass: bool,
    last: Option<Condition>,
) -> Condition {
    let passes = may_pass && passes(report.class.as_deref(), result);
    match (result, &report.check) {
        (RunResult::Applied, _) => Condition::Ok,
        // Nothing was found out. A failure that passes by itself says nothing about the layer.
        (RunResult::Blocked | RunResult::Waiting, _) => last.unwrap_or(Condition::Error),
        _ if has_failed(result) && passes => last.unwrap_or(Condition::Error),
        _ if has_failed(result) => Condition::Error,
        (_, Some(check)) => check.status,
        (_, None) => last.unwrap_or(Condition::Ok),
    }
}

fn has_failed(result: RunResult) -> bool {
    matches!(result, RunResult::Failed | RunResult::Interrupted)
}

/// Whether the layer is made of what it has taken of others: nothing is left to do for it.
fn is_made(report: &Report, result: RunResult) -> bool {
    result == RunResult::Applied || result == RunResult::Unchanged && report.action != CHECK
}

/// What a run has found out about its layer.
struct Found {
    counts: BTreeMap<String, u64>,
    changes: Vec<ListedChange>,
    plan_sha256: Option<Sha256>,
    approval: Option<Sha256>,
    policy_sha256: Option<Sha256>,
}

impl Found {
    /// After an apply nothing is left to be changed. `kept`: the status before a run that has failed, which has found nothing out.
    fn of(report: &Report, result: RunResult, kept: Option<&LayerStatus>) -> Self {
        if let Some(kept) = kept.cloned() {
            let LayerStatus { counts, changes, plan_sha256, approval, policy_sha256, .. } = kept;
            return Self { counts, changes, plan_sha256, approval, policy_sha256 };
        }
        let check = report.check.as_ref();
        let pending = check.filter(|_| result != RunResult::Applied);
        let shortened = |change: &ListedChange| ListedChange {
            address: short(&change.address, TEXT),
            action: change.action.clone(),
            refused: change.refused.as_deref().map(|reason| short(reason, TEXT)),
        };
        Self {
            counts: pending.map(|check| check.counts.clone()).unwrap_or_default(),
            changes: pending.into_iter().flat_map(|check| &check.changes).map(shortened).collect(),
            plan_sha256: report.plan.as_ref().map(|plan| plan.sha256),
            approval: pending.and_then(|check| check.approval),
            policy_sha256: check.map(|check| check.policy_sha256),
        }
    }
}

/// The beginning of a text. The datastore takes no status of more than 256 KiB.
fn short(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}...", &text[..text.floor_char_boundary(most)])
}

/// How a run ended, by its report.
pub(crate) fn result_of(report: &Report) -> RunResult {
    match (report.outcome, report.class.as_deref()) {
        (Outcome::Failed, Some(REFUSED)) => RunResult::Refused,
        (Outcome::Failed, Some(BLOCKED)) => RunResult::Blocked,
        (Outcome::Failed, Some(WAITING)) => RunResult::Waiting,
        (Outcome::Failed, _) => RunResult::Failed,
        _ if report.has_broken_outputs() => RunResult::Failed,
        (Outcome::Interrupted, _) => RunResult::Interrupted,
        (Outcome::Applied, _) => RunResult::Applied,
        (Outcome::NoChanges, _) => RunResult::Unchanged,
        (Outcome::Changes, _) => match &report.check {
            Some(check) if !check.allowed => RunResult::Refused,
            _ => RunResult::Changes,
        },
    }
}

/// The class of a run that the policy has refused.
pub(crate) const REFUSED: &str = "refused";
/// The classes of a run that was not started because of other layers.
pub(crate) const BLOCKED: &str = "blocked";
pub(crate) const WAITING: &str = "waiting";

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::CheckReport;

    fn report(status: Condition, count: u64) -> Report {
        let mut report = Report::new("check", Timestamp::now());
        report.outcome = Outcome::Changes;
        report.check = Some(CheckReport {
            status,
            allowed: true,
            counts: BTreeMap::from([("update".to_owned(), count)]),
            changes: vec![
                ListedChange {
                    address: "é".repeat(10_000),
                    action: "update".to_owned(),
                    refused: Some("x".repeat(10_000)),
                };
                100
            ],
            denials: Vec::new(),
            warnings: Vec::new(),
            destructive_sha256: None,
            approval: None,
            approval_expires: None,
            used_approval: None,
            policy_sha256: Sha256::of(b"policy"),
            state_bytes: Some(7),
        });
        report
    }

    fn failed(class: &str) -> Report {
        let mut report = Report::new("check", Timestamp::now());
        report.class = Some(class.to_owned());
        report.message = Some("é".repeat(100_000));
        report
    }

    #[test]
    fn a_failure_that_passes_keeps_what_was_found_and_others_are_errors_at_once() {
        let after = |report: &Report, before| status_of(report, "r/0".to_owned(), before, 2);
        let found = after(&report(Condition::Changed, 3), None);
        let first = after(&failed("transient"), Some(&found));
        assert_eq!((first.status, first.counts["update"]), (Condition::Changed, 3));
        assert_eq!(first.state_bytes, Some(7));
        assert_eq!(
            (first.changes.len(), first.last_success.clone()),
            (100, found.last_success.clone())
        );
        let second = after(&failed("transient"), Some(&first));
        assert_eq!((second.status, second.failed_in_a_row), (Condition::Error, 2));
        assert_eq!(after(&failed("config"), Some(&found)).status, Condition::Error);
        assert_eq!(after(&failed("transient"), None).status, Condition::Error);
        let again = after(&report(Condition::Ok, 0), Some(&second));
        assert_eq!((again.status, again.failed_in_a_row), (Condition::Ok, 0));
        assert_eq!(
            again.runs_by_class,
            BTreeMap::from([("ok".to_owned(), 2), ("transient".to_owned(), 2)])
        );
    }

    #[test]
    fn a_status_is_small_whatever_the_plan_names() {
        let found = status_of(&report(Condition::Changed, 3), "r/0".to_owned(), None, 1);
        let failed = status_of(&failed("config"), "r/0".to_owned(), Some(&found), 1);
        assert!(serde_json::to_vec(&failed).unwrap().len() < 200 << 10);
    }
}
