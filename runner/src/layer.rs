//! The layer: where a job comes from, and where its annotations go.
//!
//! The document is Burrito's `TerraformLayer` (`config.terraform.padok.cloud/v1alpha1`); only what the
//! runner reads of it is known here.

mod file;

use std::collections::BTreeMap;

use datastore_api::{Attempt, Sha256};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Deserialize;

pub(crate) use self::file::{LayerError, LayerFile};

/// What annotations of the runner begin with.
const PREFIX: &str = "runner.terraform.padok.cloud/";

/// A `TerraformLayer`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Layer {
    #[serde(default)]
    pub(crate) metadata: Metadata,
    #[serde(default)]
    pub(crate) spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spec {
    pub(crate) path: Option<String>,
    #[serde(default)]
    pub(crate) terraform: ToolSpec,
    #[serde(default)]
    pub(crate) opentofu: ToolSpec,
    #[serde(default)]
    pub(crate) terragrunt: ToolSpec,
    #[serde(default)]
    pub(crate) remediation_strategy: RemediationStrategy,
}

/// Whether a tool is meant, and which version of it. An empty version is none.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ToolSpec {
    pub(crate) enabled: Option<bool>,
    pub(crate) version: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RemediationStrategy {
    pub(crate) apply_without_plan_artifact: Option<bool>,
}

impl Layer {
    /// The value of the runner's annotation `key` (`plan-run`, `plan-sum` ...), unless empty.
    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        let value = self.metadata.annotations.as_ref()?.get(&format!("{PREFIX}{key}"))?;
        (!value.is_empty()).then_some(value)
    }
}

/// Annotations to be written, in this order; those without a value are taken away, since they would
/// tell of another run.
pub(crate) type Annotations = Vec<(String, Option<String>)>;

fn annotation(key: &str, value: Option<String>) -> (String, Option<String>) {
    (format!("{PREFIX}{key}"), value)
}

/// What a plan leaves on its layer.
pub(crate) fn plan_annotations(
    now: Timestamp,
    run: &datastore_api::Name,
    attempt: Attempt,
    sum: Sha256,
    revision: Option<&str>,
) -> Annotations {
    vec![
        annotation("plan-date", Some(unix_date(now))),
        annotation("plan-run", Some(format!("{run}/{attempt}"))),
        annotation("plan-sum", Some(sum.to_base64())),
        annotation("plan-commit", revision.map(str::to_owned)),
    ]
}

/// What an apply leaves on its layer. The sum is the plan's, in base64: the controllers compare the
/// two texts.
pub(crate) fn apply_annotations(
    now: Timestamp,
    sum: Option<&str>,
    revision: Option<&str>,
) -> Annotations {
    vec![
        annotation("apply-date", Some(unix_date(now))),
        annotation("apply-sum", sum.map(str::to_owned)),
        annotation("apply-commit", revision.map(str::to_owned)),
    ]
}

/// Go's `time.UnixDate`, always in UTC: Burrito's controllers parse exactly this, and would take any
/// zone's abbreviation for an offset of 0.
fn unix_date(now: Timestamp) -> String {
    now.to_zoned(TimeZone::UTC).strftime("%a %b %e %H:%M:%S UTC %Y").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_gos_unix_dates_with_a_space_padded_day() {
        let date = |text: &str| unix_date(text.parse().unwrap());
        assert_eq!(date("2026-08-01T09:05:03Z"), "Sat Aug  1 09:05:03 UTC 2026");
        assert_eq!(date("2026-11-20T23:59:59+02:00"), "Fri Nov 20 21:59:59 UTC 2026");
    }

    #[test]
    fn a_plan_and_an_apply_leave_burritos_annotations() {
        let now = "2026-08-01T09:05:03Z".parse().unwrap();
        let sum = Sha256::of(b"");
        let run = "r".parse().unwrap();
        let plan = plan_annotations(now, &run, Attempt(2), sum, Some("abc"));
        let lines = |annotations: Annotations| {
            let line = |(key, value): (String, Option<String>)| {
                key + "=" + value.as_deref().unwrap_or("(none)") + "\n"
            };
            annotations.into_iter().map(line).collect::<String>()
        };
        insta::assert_snapshot!(lines(plan), @r"
        runner.terraform.padok.cloud/plan-date=Sat Aug  1 09:05:03 UTC 2026
        runner.terraform.padok.cloud/plan-run=r/2
        runner.terraform.padok.cloud/plan-sum=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=
        runner.terraform.padok.cloud/plan-commit=abc
        ");
        insta::assert_snapshot!(lines(apply_annotations(now, Some("sum="), None)), @r"
        runner.terraform.padok.cloud/apply-date=Sat Aug  1 09:05:03 UTC 2026
        runner.terraform.padok.cloud/apply-sum=sum=
        runner.terraform.padok.cloud/apply-commit=(none)
        ");
    }
}
