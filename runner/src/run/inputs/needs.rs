//! Whether the layers are as declared that this one needs, and that are not run by the same command: by their statuses in the
//! datastore.

use datastore_api::client::Upload;
use datastore_api::status::{Condition, LayerStatus, RunResult, STATUS};
use datastore_api::{Client, ClientError};

use crate::order::inputs::LayerRef;
use crate::report::CHECK;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::inputs::error::InputsError;
use crate::run::inputs::graph::document;

impl Run<'_> {
    /// Refuses to check or converge a layer while one that it needs is not as declared.
    pub(in crate::run) async fn check_needs(&self) -> Result<(), RunError> {
        let Some(client) = &self.job.datastore else { return Ok(()) };
        if !self.job.action.is_judged() {
            return Ok(());
        }
        let is_check = self.job.action.is_check();
        let mut blocked = Vec::new();
        for layer in &self.job.inputs.elsewhere {
            let status = self.signals.or(status_of(client, layer)).await;
            let status = status.map_err(RunError::Stopped)??;
            if let Some(why) = in_the_way(status.as_ref(), is_check) {
                blocked.push(format!("{layer}, {why}"));
            }
        }
        if blocked.is_empty() { Ok(()) } else { Err(InputsError::Blocked(blocked).into()) }
    }
}

/// Why a layer that needs another one must not start. `is_check`: nothing is applied.
fn in_the_way(status: Option<&LayerStatus>, is_check: bool) -> Option<String> {
    let Some(status) = status else {
        return Some("of which no status is recorded".to_owned());
    };
    let run = status.run.as_ref().map(|run| format!(" ({run})")).unwrap_or_default();
    // A check changes nothing, so one that fails says only what its condition says.
    let is_bad =
        !matches!(status.result, RunResult::Unchanged | RunResult::Changes | RunResult::Applied);
    if is_bad && status.action != CHECK {
        return Some(format!("whose last run was {}{run}", past(status.result)));
    }
    if let Some(stale) = status.stale.as_ref().filter(|_| !is_check) {
        return Some(format!("which must run again first: {stale}"));
    }
    let is_good = match status.status {
        Condition::Ok => true,
        Condition::Changed => is_check,
        _ => false,
    };
    (!is_good).then(|| format!("whose status is {}{run}", status.status))
}

fn past(result: RunResult) -> &'static str {
    match result {
        RunResult::Refused => "refused by the policy",
        RunResult::Failed => "a failure",
        other => other.as_str(),
    }
}

/// The status of a layer; `None`: none is recorded.
pub(super) async fn status_of(
    client: &Client,
    layer: &LayerRef,
) -> Result<Option<LayerStatus>, InputsError> {
    let json = client.get_document(&document(layer, STATUS)).await;
    let json = json.map_err(InputsError::of_datastore("the status", layer))?;
    let Some(json) = json else { return Ok(None) };
    serde_json::from_slice(&json).map(Some).map_err(|error| InputsError::Unreadable {
        layer: layer.to_string(),
        reason: format!("its {STATUS}: {error}"),
    })
}

/// Replaces the status of a layer.
pub(super) async fn put_status(
    client: &Client,
    layer: &LayerRef,
    status: &LayerStatus,
) -> Result<(), ClientError> {
    let json = serde_json::to_vec_pretty(status).map_err(|error| ClientError::Answer {
        call: STATUS.to_owned(),
        reason: error.to_string(),
    })?;
    client.put_document(&document(layer, STATUS), &Upload::bytes(json)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_need_that_is_as_declared_lets_a_layer_start() {
        let status = |json: &str| -> LayerStatus {
            let json = format!("{{\"version\": 1, \"ended\": \"t\", \"run\": \"r/0\", {json}}}");
            serde_json::from_str(&json).unwrap()
        };
        let why = |json: &str, is_check| in_the_way(Some(&status(json)), is_check);
        let ok = r#""status": "ok", "result": "applied", "action": "converge""#;
        assert_eq!(why(ok, false), None);
        let failed_check = r#""status": "ok", "result": "failed", "action": "check""#;
        assert_eq!(why(failed_check, false), None);
        let pending = r#""status": "changed", "result": "changes", "action": "check""#;
        assert_eq!(why(pending, true), None);
        for (json, is_check, text) in [
            (pending, false, "whose status is changed (r/0)"),
            (
                r#""status": "ok", "result": "failed", "action": "converge""#,
                false,
                "whose last run was a failure (r/0)",
            ),
            (
                r#""status": "destructively_changed", "result": "refused", "action": "converge""#,
                true,
                "whose last run was refused by the policy (r/0)",
            ),
            (
                r#""status": "destructively_changed", "result": "refused", "action": "check""#,
                true,
                "whose status is destructively_changed (r/0)",
            ),
            (
                r#""status": "error", "result": "waiting", "action": "converge""#,
                true,
                "whose last run was waiting (r/0)",
            ),
            (
                r#""status": "ok", "result": "applied", "action": "converge", "stale": "x has changed""#,
                false,
                "which must run again first: x has changed",
            ),
        ] {
            assert_eq!(why(json, is_check).as_deref(), Some(text));
        }
        assert!(in_the_way(None, true).unwrap().contains("no status"));
    }
}
