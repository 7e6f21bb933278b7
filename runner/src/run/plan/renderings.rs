//! The files from which a summary is made: the plan as JSON and as text, or the log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use datastore_api::{Attempt, ClientError, File, PlanFormat, RunKey, Sha256};

use crate::basis::binding::BindingError;
use crate::report::{Outcome, PlanReport};
use crate::run::Run;
use crate::run::artifacts::Artifacts;

/// The plan's renderings in the private directory, as the tool has shown it.
pub(super) const JSON: &str = "plan.json";
pub(super) const PRETTY: &str = "plan.txt";
/// One that is not completely downloaded yet, or not compared.
pub(in crate::run) const PARTIAL: &str = "rendering.partial";
/// The time to download those of an applied plan. The apply is done, and only the summary waits for them.
const LIMIT: Duration = Duration::from_secs(10);

/// Files from which a summary is made.
#[derive(Debug, Default)]
pub(crate) struct Renderings {
    /// The plan as JSON.
    pub(crate) json: Option<PathBuf>,
    /// The plan as text.
    pub(crate) pretty: Option<PathBuf>,
    /// The log of an apply that has made its own plan.
    pub(crate) log: Option<PathBuf>,
}

impl Run<'_> {
    /// The renderings of the plan that this run has made or applied, as far as they are available.
    pub(crate) async fn renderings(&self) -> Renderings {
        let report = &self.report;
        let has_planned = !self.job.action.is_apply() && report.plan.is_some();
        let has_applied = report.outcome == Outcome::Applied && report.applied_before.is_none();
        if has_applied && report.plan.is_none() {
            return Renderings { log: Some(self.log.path().to_owned()), ..Renderings::default() };
        }
        if has_applied && self.signals.stopped().is_none() {
            match tokio::time::timeout(LIMIT, self.fetch_renderings()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!("the summary lacks the applied plan: {error}"),
                Err(_) => tracing::warn!(
                    "the summary lacks the applied plan: its download takes longer than {} s",
                    LIMIT.as_secs()
                ),
            }
        }
        if !has_planned && !has_applied {
            return Renderings::default();
        }
        let existing = |name| Some(self.scratch.join(name)).filter(|path| path.exists());
        Renderings { json: existing(JSON), pretty: existing(PRETTY), log: None }
    }

    /// The attempt that this run is stored under.
    pub(crate) fn attempt(&self) -> Option<Attempt> {
        self.artifacts.as_ref().map(Artifacts::attempt)
    }

    /// The command that applies the plan that this run has stored, if there is something to apply.
    pub(crate) fn apply_command(&self) -> Option<String> {
        let is_stored = self.artifacts.is_some() || self.job.plan_file.is_some();
        let is_usable = self.report.outcome == Outcome::Changes && self.report.mocks.is_empty();
        let plan = format!("{}/{}", self.job.run.run, self.attempt().unwrap_or_default());
        self.apply_line(&plan).filter(|_| is_stored && is_usable)
    }

    /// Downloads the renderings of the applied plan, if a run in the datastore has made it.
    async fn fetch_renderings(&self) -> Result<(), ClientError> {
        let plan = self.report.plan.as_ref();
        let made_by = plan.and_then(|plan| Some((plan.run.as_ref()?.parse().ok()?, plan.attempt)));
        let (Some((run, attempt)), Some(client)) =
            (made_by, self.artifacts.as_ref().map(Artifacts::client))
        else {
            return Ok(());
        };
        let run = RunKey { run, ..self.job.run.clone() };
        let fetch = async |format, name| {
            let (file, to) = (File::Plan(format), self.scratch.join(name));
            // A download that is cut off must not be mistaken for a whole one.
            let partial = self.scratch.join(PARTIAL);
            let Some(sha256) = client.save_file(&run, attempt, &file, &partial).await? else {
                return Ok(());
            };
            match self.check_rendering(format, sha256) {
                Ok(()) => rename(&partial, &to),
                Err(error) => {
                    tracing::warn!("the summary lacks {}: {error}", file.name());
                    Ok(())
                }
            }
        };
        fetch(PlanFormat::Pretty, PRETTY).await?;
        fetch(PlanFormat::Json, JSON).await
    }

    /// Refuses another rendering than that of the applied plan.
    fn check_rendering(&self, format: PlanFormat, sha256: Sha256) -> Result<(), BindingError> {
        let Some(binding) = &self.binding else { return Ok(()) };
        let plan = self.report.plan.as_ref().and_then(PlanReport::name).unwrap_or_default();
        binding.check_rendering(&plan, format, Some(sha256))
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), ClientError> {
    Ok(fs_err::rename(from, to)?)
}
