//! The record of an apply, `applied.json`: which plan was applied, by which attempt. It does not know where
//! records are stored.

use datastore_api::{Attempt, Name, RunKey, Sha256};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::basis::order::{OrderKey, OrderRecord};
use crate::basis::place::PlanPlace;
use crate::report::{EarlierApply, PlanRecord, PlanReport, Report};

/// The value of `applied` where the tool made its own plan.
const UNPLANNED: &str = "unplanned";
/// The version of this document, and of `attempt.json`.
const VERSION: u32 = 1;

/// The version of such a document, if this program does not know it.
pub(crate) fn later_version(json: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Versioned { version } = serde_json::from_slice(json).ok()?;
    (version > VERSION).then_some(version)
}

/// Version 1 of the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AppliedRecord {
    version: u32,
    pub(crate) namespace: String,
    pub(crate) layer: String,
    pub(crate) run: String,
    pub(crate) attempt: Attempt,
    /// The SHA-256 digest of the plan, or [`UNPLANNED`].
    pub(crate) applied: String,
    #[serde(default)]
    pub(crate) plan: Option<PlanReport>,
    /// The value for the layer's annotation `apply-sum`.
    #[serde(default)]
    pub(crate) sum: Option<String>,
    #[serde(default)]
    pub(crate) revision: Option<String>,
    /// Where it was applied. Older versions did not record it.
    #[serde(default)]
    place: Option<PlanPlace>,
    /// The directory of code that is in no repository.
    #[serde(default)]
    directory: Option<String>,
    /// When the apply succeeded. After the kill of its runner this is not known.
    #[serde(default)]
    pub(crate) at: Option<Timestamp>,
    /// What an apply without a stored plan was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<OrderRecord>,
    /// The key under which it was ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) order_key: Option<OrderKey>,
}

impl AppliedRecord {
    /// The record of an apply that has just succeeded.
    pub(crate) fn new(
        run: &RunKey,
        attempt: Attempt,
        report: &Report,
        sum: Option<String>,
    ) -> Self {
        let plan = report.plan.clone();
        let applied = plan.as_ref().map(|plan| plan.sha256.to_string());
        Self {
            version: VERSION,
            namespace: run.namespace.to_string(),
            layer: run.layer.to_string(),
            run: run.run.to_string(),
            attempt,
            applied: applied.unwrap_or_else(|| UNPLANNED.to_owned()),
            plan,
            sum,
            revision: report.revision.clone(),
            place: report.place.clone(),
            directory: report.directory.clone(),
            at: Some(Timestamp::now()),
            order: None,
            order_key: None,
        }
    }

    /// The record of an apply of which it is not known when it succeeds.
    pub(crate) fn of_unknown_time(self) -> Self {
        Self { at: None, ..self }
    }

    /// The record that older versions kept in `run.json`.
    pub(crate) fn of_report(run: &RunKey, attempt: Attempt, report: PlanRecord) -> Option<Self> {
        let PlanRecord { applied, plan, revision, place, directory, .. } = report;
        Some(Self {
            version: VERSION,
            namespace: run.namespace.to_string(),
            layer: run.layer.to_string(),
            run: run.run.to_string(),
            attempt,
            applied: applied?,
            plan,
            sum: None,
            revision,
            place,
            directory,
            at: None,
            order: None,
            order_key: None,
        })
    }

    /// Parses `applied.json`.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(json).map_err(|error| error.to_string())
    }

    /// The document.
    pub(crate) fn to_json(&self) -> String {
        let json = serde_json::to_string_pretty(self);
        json.expect("a record has only text keys and numbers") + "\n"
    }

    /// The attempt that applied.
    pub(crate) fn applied_by(&self) -> EarlierApply {
        EarlierApply { run: self.run.clone(), attempt: self.attempt }
    }

    /// The digest of the plan that was applied, if there was one.
    pub(crate) fn plan_sha256(&self) -> Option<Sha256> {
        self.applied.parse().ok()
    }

    /// The digests under which the layer has this record: that of the plan, and that of the order's key.
    pub(crate) fn digests(&self) -> impl Iterator<Item = Sha256> {
        let key = self.order_key.map(OrderKey::record_sha256);
        self.plan_sha256().into_iter().chain(key)
    }

    /// Whether this plan was applied.
    pub(crate) fn is_of(&self, plan: Sha256) -> bool {
        self.plan_sha256() == Some(plan)
    }

    /// Whether both record the same apply: the same attempt has applied the same.
    pub(crate) fn is_same_apply(&self, other: &Self) -> bool {
        let key = |record: &Self| {
            let Self { namespace, layer, run, attempt, applied, .. } = record.clone();
            (namespace, layer, run, attempt, applied)
        };
        key(self) == key(other)
    }

    /// Where it was applied and where the run of `report` is, if these are two places. What one side does not know
    /// is not compared. Code outside of git has no place; there the directory is compared.
    pub(crate) fn other_place(&self, report: &Report) -> Option<(String, String)> {
        let (theirs, ours) = (self.place.as_ref()?, report.place.as_ref()?);
        if !theirs.agrees_with(ours) {
            return Some((theirs.to_string(), ours.to_string()));
        }
        if theirs.path.is_some() || ours.path.is_some() {
            return None;
        }
        let (theirs, ours) = (self.directory.as_ref()?, report.directory.as_ref()?);
        (theirs != ours)
            .then(|| (format!("the directory {theirs}"), format!("the directory {ours}")))
    }

    /// Whether it was applied to the code of this report: the same place, directory and commit, as far as they are needed to
    /// know the code. What is not recorded is not known to be the same.
    pub(crate) fn is_of_code(&self, report: &Report) -> bool {
        let has_path =
            |place: &Option<PlanPlace>| place.as_ref().is_some_and(|place| place.path.is_some());
        let is_known =
            (has_path(&self.place) && has_path(&report.place) && report.revision.is_some())
                || (self.directory.is_some() && report.directory.is_some());
        is_known && self.revision == report.revision && self.other_place(report).is_none()
    }

    /// The run that applied.
    pub(crate) fn run_key(&self) -> Result<RunKey, datastore_api::InvalidName> {
        Ok(RunKey {
            namespace: self.namespace.parse()?,
            layer: self.layer.parse()?,
            run: self.run.parse::<Name>()?,
        })
    }
}
