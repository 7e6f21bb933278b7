//! Secrets that only the code, the variables and the plan of a run show. They are masked as soon as they are known, in the log
//! also before.

use std::path::Path;
use std::time::Duration;

use datastore_api::PlanFormat;
use fs_err as fs;

use crate::process::redact::Redaction;
use crate::run::Run;
use crate::run::artifacts::{Artifacts, StoredPlan};
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::tool::sensitive::{self, Sources};

/// The plan to apply as JSON, in the private directory, until it is read.
pub(in crate::run) const PLANNED: &str = "planned.json";
/// The time to download it. It is done beside the checkout.
const LIMIT: Duration = Duration::from_secs(10);

impl Run<'_> {
    /// Masks the values of the variables that the root module declares as sensitive. Which ones terragrunt sets is known only
    /// from the plan.
    pub(super) fn redact_variables(&self, prepared: &Prepared) {
        let sources = Sources {
            dir: &prepared.workspace.dir,
            options: &self.job.options,
            inputs: &self.environment.inputs,
        };
        self.environment.redaction.add(sensitive::of_variables(&sources));
    }

    /// Masks what a plan marks as sensitive.
    pub(in crate::run) async fn redact_plan(&self, json: &Path) {
        redact_plan(&self.environment.redaction, json).await;
    }

    /// Masks what the stored plan marks as sensitive, before the tool applies it, if the datastore could not be asked for that.
    pub(in crate::run) async fn redact_marks(
        &mut self,
        prepared: &Prepared,
    ) -> Result<(), RunError> {
        match self.reviewed_json(prepared).await {
            Ok(json) => self.redact_plan(&json).await,
            Err(error @ (RunError::Stopped(_) | RunError::StoppedStep { .. })) => {
                return Err(error);
            }
            Err(error) => not_masked(&error),
        }
        Ok(())
    }

    /// Masks the secrets in the log that only became known while it was written.
    pub(in crate::run) async fn mask_log(&self) {
        let log = self.log.clone();
        let masked = tokio::task::spawn_blocking(move || log.mask_again()).await;
        if let Err(error) = masked.map_err(std::io::Error::other).flatten() {
            tracing::warn!("the log is incomplete, because it cannot be masked: {error}");
        }
    }
}

/// Masks what the plan to apply marks as sensitive: its variables are not given again. It is downloaded to a private file.
/// Returns false if the datastore could not be asked.
pub(in crate::run) async fn redact_stored_plan(
    redaction: &Redaction,
    artifacts: Option<&Artifacts>,
    plan: Option<&StoredPlan>,
    to: &Path,
) -> bool {
    let (Some(artifacts), Some(plan)) = (artifacts, plan) else { return true };
    let fetch = artifacts.fetch_rendering(plan, PlanFormat::Json, to);
    let is_read = match tokio::time::timeout(LIMIT, fetch).await {
        Ok(Ok(Some(_))) => {
            redact_plan(redaction, to).await;
            true
        }
        Ok(Ok(None)) => true,
        Ok(Err(error)) => {
            tracing::debug!("the plan as JSON is not read from the datastore: {error}");
            false
        }
        Err(_) => false,
    };
    if let Err(error) = fs::remove_file(to) {
        tracing::debug!("{error}");
    }
    is_read
}

async fn redact_plan(redaction: &Redaction, json: &Path) {
    let (redaction, json) = (redaction.clone(), json.to_owned());
    let read = tokio::task::spawn_blocking(move || {
        let secrets = sensitive::of_plan(fs::File::open(json)?)?;
        redaction.add(secrets);
        Ok::<_, std::io::Error>(())
    });
    if let Err(error) = read.await.map_err(std::io::Error::other).flatten() {
        not_masked(&error);
    }
}

fn not_masked(reason: &impl std::fmt::Display) {
    tracing::warn!("values that are sensitive only in the plan are not masked: {reason}");
}
