//! Plans in the datastore: which one is to be applied, and its download.

use std::fmt;
use std::path::Path;

use bytes::Bytes;
use datastore_api::key::AttemptFiles;
use datastore_api::{Attempt, ClientError, File, Name, PlanFormat, RunKey, Sha256};

use crate::basis::binding;
use crate::basis::place::PlanPlace;
use crate::report::PlanRecord;
use crate::run::artifacts::{Artifacts, MAX_REPORT, REPORT, Server, other};
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
}

/// The result of a search for a layer's newest plan.
#[derive(Debug)]
pub(crate) enum NewestPlan {
    Found(Box<StoredPlan>),
    /// The layer has plans of other places only; this is the newest.
    Elsewhere {
        plan: String,
        place: String,
    },
    Missing,
}

impl StoredPlan {
    fn is_finished(&self) -> bool {
        self.record.as_ref().is_some_and(PlanRecord::is_finished)
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
    /// The plan of a run: that of `attempt`, else that of the latest attempt with a `plan.bin`. `None`: there is
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
            }));
        }
        let attempts = self.client.attempts(&self.sibling(run)).await?.attempts;
        let bin = File::Plan(PlanFormat::Bin);
        let found = attempts.iter().rev().find(|stored| {
            attempt.is_none_or(|attempt| attempt == stored.attempt)
                && stored.artifacts.iter().any(|artifact| artifact.name == bin.name())
        });
        let Some(AttemptFiles { attempt, artifacts }) = found else { return Ok(None) };
        let has_binding = artifacts.iter().any(|artifact| artifact.name == binding::FILE);
        let record = self.record_of(run, *attempt).await?;
        Ok(Some(StoredPlan { run: run.clone(), attempt: Some(*attempt), record, has_binding }))
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

    /// The newest finished plan of the layer that was made for this place, or whose place is not recorded. `source` is the
    /// source directory.
    pub(crate) async fn newest_plan(
        &self,
        here: &PlanPlace,
        source: Option<&Path>,
    ) -> Result<NewestPlan, ClientError> {
        let RunKey { namespace, layer, .. } = &self.run;
        let (mut cursor, mut other) = (None, None);
        loop {
            let page = self.client.runs(namespace, layer, cursor.as_deref()).await?;
            for run in page.runs.iter().filter_map(|run| run.run.parse().ok()) {
                let Some(plan) = self.plan_of(&run, None).await? else { continue };
                if !plan.is_finished() {
                    tracing::info!("skipping {plan}: its run did not finish");
                    continue;
                }
                match plan.record.as_ref().filter(|record| !record.is_of(here, source)) {
                    None => return Ok(NewestPlan::Found(Box::new(plan))),
                    Some(record) => {
                        let place = record.shown_place();
                        tracing::info!("skipping {plan}: it was made for another place ({place})");
                        other.get_or_insert_with(|| (plan.to_string(), place));
                    }
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(other.map_or(NewestPlan::Missing, |(plan, place)| {
                    NewestPlan::Elsewhere { plan, place }
                }));
            }
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
        let (run_key, file) = (self.sibling(run), other(REPORT));
        let download = self.client.get_file(&run_key, Some(attempt), &file).await?;
        let Some(download) = download else { return Ok(None) };
        match serde_json::from_slice(&download.bytes(MAX_REPORT).await?) {
            Ok(record) => Ok(Some(record)),
            Err(error) => {
                tracing::warn!("run.json of {run}/{attempt} cannot be read: {error}");
                Ok(None)
            }
        }
    }

    fn sibling(&self, run: &Name) -> RunKey {
        RunKey { run: run.clone(), ..self.run.clone() }
    }
}
