//! Plans in the datastore: which one is to be applied, and its download.

use std::fmt;
use std::path::Path;

use bytes::Bytes;
use datastore_api::key::AttemptFiles;
use datastore_api::{Attempt, ClientError, File, Name, PlanFormat, RunKey, Sha256};

use crate::basis::binding;
use crate::report::PlanRecord;
use crate::run::artifacts::{APPLIED, Artifacts, MAX_REPORT, REPORT, Server, other};
use crate::source::snapshot;

/// A plan in the datastore.
#[derive(Clone, Debug)]
pub(crate) struct StoredPlan {
    pub(crate) run: Name,
    /// None: the latest, which Burrito's datastore finds.
    pub(crate) attempt: Option<Attempt>,
    /// Its `run.json`, if that could be read.
    pub(crate) record: Option<PlanRecord>,
    /// Whether it has a `binding.json`.
    pub(crate) has_binding: bool,
    /// Why it is not whole, although its run stored it.
    pub(crate) defect: Option<Defect>,
}

/// What a stored plan lacks. A run that did not finish its plan is no defect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Defect {
    #[error("its plan.bin is missing")]
    NoPlan,
    #[error("its run.json is missing")]
    NoReport,
    #[error("its run.json cannot be read: {0}")]
    Unreadable(String),
}

impl StoredPlan {
    pub(super) fn is_finished(&self) -> bool {
        self.record.as_ref().is_some_and(PlanRecord::is_finished)
    }

    /// Its digest, by its `run.json`.
    pub(super) fn sha256(&self) -> Option<Sha256> {
        Some(self.record.as_ref()?.plan.as_ref()?.sha256)
    }
}

impl fmt::Display for StoredPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempt {
            Some(attempt) => write!(f, "{}/{attempt}", self.run),
            None => write!(f, "{}", self.run),
        }
    }
}

impl Artifacts {
    /// The plan of a run: that of `attempt`, else that of the latest attempt that stored one. `None`: there is
    /// no such plan.
    pub(crate) async fn plan_of(
        &self,
        run: &Name,
        attempt: Option<Attempt>,
    ) -> Result<Option<StoredPlan>, ClientError> {
        if self.server == Server::Burritos {
            return Ok(Some(StoredPlan {
                run: run.clone(),
                attempt,
                record: None,
                has_binding: false,
                defect: None,
            }));
        }
        let attempts = self.client.attempts(&self.sibling(run)).await?.attempts;
        let is_wanted = |files: &&AttemptFiles| attempt.is_none_or(|named| named == files.attempt);
        let mut later = None;
        for files in attempts.iter().rev().filter(is_wanted) {
            if let Some(plan) = self.plan_in(run, files).await? {
                if let Some(Defect::Unreadable(error)) = &plan.defect {
                    tracing::warn!("run.json of {plan} cannot be read: {error}");
                }
                if let Some(later) = later {
                    tracing::warn!("attempt {later} of {run} stored no plan: taking {plan}");
                }
                return Ok(Some(plan));
            }
            later = later.or(failed_attempt(files));
        }
        Ok(None)
    }

    /// The plan in these files of an attempt, also if it is not whole.
    pub(super) async fn plan_in(
        &self,
        run: &Name,
        files: &AttemptFiles,
    ) -> Result<Option<StoredPlan>, ClientError> {
        let attempt = files.attempt;
        let has = |name: &str| files.artifacts.iter().any(|file| file.name == name);
        let (has_plan, has_binding) = (has(File::Plan(PlanFormat::Bin).name()), has(binding::FILE));
        if !has_plan && (has(APPLIED) || !has_binding && !has(REPORT)) {
            return Ok(None);
        }
        let (record, defect) = match self.report_of(run, attempt).await? {
            Some(Ok(record)) if has_plan => (Some(record), None),
            Some(Ok(record)) if record.has_planned(run, attempt) => {
                (Some(record), Some(Defect::NoPlan))
            }
            Some(Err(error)) => (None, Some(Defect::Unreadable(error.to_string()))),
            // It is stored before the report.
            None if has_binding => (None, Some(Defect::NoReport)),
            None if has_plan => (None, None),
            _ => return Ok(None),
        };
        let (run, attempt) = (run.clone(), Some(attempt));
        Ok(Some(StoredPlan { run, attempt, record, has_binding, defect }))
    }

    /// The `binding.json` of a plan, as it is stored. `None`: there is none.
    pub(crate) async fn binding_of(&self, plan: &StoredPlan) -> Result<Option<Bytes>, ClientError> {
        if !plan.has_binding {
            return Ok(None);
        }
        let (run, file) = (self.sibling(&plan.run), other(binding::FILE));
        match self.client.get_file(&run, plan.attempt, &file).await? {
            Some(download) => download.bytes(MAX_REPORT).await.map(Some),
            None => Ok(None),
        }
    }

    /// Downloads a plan into a private file. `None`: it has been deleted.
    pub(crate) async fn fetch_plan(
        &self,
        plan: &StoredPlan,
        to: &Path,
    ) -> Result<Option<Sha256>, ClientError> {
        let run = self.sibling(&plan.run);
        let recorded = plan.record.as_ref().and_then(|record| record.plan.as_ref());
        let recorded = recorded.map(|recorded| recorded.sha256);
        let file = File::Plan(PlanFormat::Bin);
        self.client.save_recorded_file(&run, plan.attempt, &file, recorded, to).await
    }

    /// Downloads a rendering of a plan into a private file. `None`: there is none.
    pub(crate) async fn fetch_rendering(
        &self,
        plan: &StoredPlan,
        format: PlanFormat,
        to: &Path,
    ) -> Result<Option<Sha256>, ClientError> {
        let run = self.sibling(&plan.run);
        self.client.save_file(&run, plan.attempt, &File::Plan(format), to).await
    }

    /// Downloads the snapshot of a plan into a private file. `None`: it has been deleted.
    pub(crate) async fn fetch_snapshot(
        &self,
        plan: &StoredPlan,
        to: &Path,
    ) -> Result<Option<Sha256>, ClientError> {
        let (run, file) = (self.sibling(&plan.run), other(snapshot::FILE));
        self.client.save_file(&run, plan.attempt, &file, to).await
    }

    /// The `run.json` of an attempt. `None`: there is none, or it cannot be read.
    pub(super) async fn record_of(
        &self,
        run: &Name,
        attempt: Attempt,
    ) -> Result<Option<PlanRecord>, ClientError> {
        Ok(match self.report_of(run, attempt).await? {
            Some(Err(error)) => {
                tracing::warn!("run.json of {run}/{attempt} cannot be read: {error}");
                None
            }
            report => report.transpose().ok().flatten(),
        })
    }

    /// The `run.json` of an attempt. `None`: there is none.
    async fn report_of(
        &self,
        run: &Name,
        attempt: Attempt,
    ) -> Result<Option<serde_json::Result<PlanRecord>>, ClientError> {
        let (run, file) = (self.sibling(run), other(REPORT));
        let download = self.client.get_file(&run, Some(attempt), &file).await?;
        let Some(download) = download else { return Ok(None) };
        Ok(Some(serde_json::from_slice(&download.bytes(MAX_REPORT).await?)))
    }

    pub(super) fn sibling(&self, run: &Name) -> RunKey {
        RunKey { run: run.clone(), ..self.run.clone() }
    }
}

/// The attempt, if it has failed before it stored a plan. The claim of an apply has no files yet.
pub(super) fn failed_attempt(files: &AttemptFiles) -> Option<Attempt> {
    let has = |name: &str| files.artifacts.iter().any(|file| file.name == name);
    Some(files.attempt).filter(|_| has(REPORT) && !has(APPLIED))
}
