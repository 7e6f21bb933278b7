//! The record that an apply was made: `applied.json` of its attempt, and the same under the digest of the
//! plan. It is created once, and never replaced.

use datastore_api::client::{Condition, Upload};
use datastore_api::{AppliedKey, Attempt, Client, ClientError, Name, RunKey, Sha256};
use jiff::Timestamp;
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};

use crate::report::{PlanRecord, PlanReport, Report};
use crate::run::artifacts::{APPLIED, other};

/// What an apply is recorded as, where the tool made its own plan.
const UNPLANNED: &str = "unplanned";

/// Version 1 of the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    version: u32,
    pub(crate) namespace: String,
    pub(crate) layer: String,
    pub(crate) run: String,
    pub(crate) attempt: Attempt,
    /// The digest of the plan, or that there was none.
    pub(crate) applied: String,
    #[serde(default)]
    pub(crate) plan: Option<PlanReport>,
    /// What the layer's annotation `apply-sum` is to be.
    #[serde(default)]
    pub(crate) sum: Option<String>,
    #[serde(default)]
    pub(crate) revision: Option<String>,
    /// When the apply had succeeded.
    #[serde(default)]
    at: Option<Timestamp>,
}

impl Record {
    /// Of the apply that has just succeeded.
    pub(crate) fn new(
        run: &RunKey,
        attempt: Attempt,
        report: &Report,
        sum: Option<String>,
    ) -> Self {
        let plan = report.plan.clone();
        let applied = plan.as_ref().map(|plan| plan.sha256.to_string());
        Self {
            version: 1,
            namespace: run.namespace.to_string(),
            layer: run.layer.to_string(),
            run: run.run.to_string(),
            attempt,
            applied: applied.unwrap_or_else(|| UNPLANNED.to_owned()),
            plan,
            sum,
            revision: report.revision.clone(),
            at: Some(Timestamp::now()),
        }
    }

    /// As older versions recorded it in `run.json`.
    pub(crate) fn of_report(run: &RunKey, attempt: Attempt, report: PlanRecord) -> Option<Self> {
        let PlanRecord { applied, plan, revision, .. } = report;
        Some(Self {
            version: 1,
            namespace: run.namespace.to_string(),
            layer: run.layer.to_string(),
            run: run.run.to_string(),
            attempt,
            applied: applied?,
            plan,
            sum: None,
            revision,
            at: None,
        })
    }

    pub(crate) fn parse(json: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(json).map_err(|error| error.to_string())
    }

    pub(crate) fn to_json(&self) -> String {
        let json = serde_json::to_string_pretty(self);
        json.expect("a record has only text keys and numbers") + "\n"
    }

    /// The digest of the plan that was applied, if there was one.
    pub(crate) fn plan_sha256(&self) -> Option<Sha256> {
        self.applied.parse().ok()
    }

    pub(crate) fn is_of(&self, plan: Sha256) -> bool {
        self.plan_sha256() == Some(plan)
    }

    /// The run whose apply it is.
    pub(crate) fn run_key(&self) -> Result<RunKey, datastore_api::InvalidName> {
        Ok(RunKey {
            namespace: self.namespace.parse()?,
            layer: self.layer.parse()?,
            run: self.run.parse::<Name>()?,
        })
    }

    /// Stores it as that of an attempt. One that is there already says as much.
    pub(crate) async fn store(
        &self,
        client: &Client,
        run: &RunKey,
        attempt: Attempt,
    ) -> Result<(), ClientError> {
        let (file, json) = (other(APPLIED), Upload::bytes(self.to_json()));
        there_already(client.put_file(run, attempt, &file, &json, Condition::Create).await)
    }

    /// Stores it under the digest of its plan, if it has one.
    pub(crate) async fn store_for_plan(
        &self,
        client: &Client,
        run: &RunKey,
    ) -> Result<(), ClientError> {
        let Some(plan) = self.plan_sha256() else { return Ok(()) };
        let json = Upload::bytes(self.to_json());
        there_already(client.put_applied(&applied_key(run, plan), &json).await)
    }
}

/// Where the record of a plan of this layer is.
pub(crate) fn applied_key(run: &RunKey, plan: Sha256) -> AppliedKey {
    AppliedKey { namespace: run.namespace.clone(), layer: run.layer.clone(), plan }
}

fn there_already(stored: Result<(), ClientError>) -> Result<(), ClientError> {
    match stored {
        Err(error) if error.status() == Some(StatusCode::PRECONDITION_FAILED) => Ok(()),
        stored => stored,
    }
}
