//! The action `plan`: plan, show, store, annotate.

use std::path::Path;

use datastore_api::client::Upload;
use datastore_api::{Attempt, ClientError, File, PlanFormat, Sha256};
use fs_err as fs;
use jiff::Timestamp;

use crate::basis::plan_file;
use crate::order::layer;
use crate::process::private_file;
use crate::report::{Outcome, PlanReport};
use crate::run::artifacts::{Artifacts, Entry};
use crate::run::error::RunError;
use crate::run::plan_summary::Summary;
use crate::run::prepare::Prepared;
use crate::run::{PLAN_FILE, Run, open_artifacts, renderings};
use crate::tool::argv::Tool;
use crate::tool::terragrunt;

impl Run<'_> {
    /// Opens the datastore while the code is prepared, and plans.
    pub(super) async fn prepare_and_plan(&mut self) -> Result<(), RunError> {
        let signals = self.signals;
        let (artifacts, code) =
            tokio::join!(signals.or(open_artifacts(self.job)), self.check_out(None));
        // The error of the datastore first: without a datastore no failure can be stored.
        self.artifacts = artifacts.map_err(RunError::Stopped)??;
        let mut prepared = self.initialize(code?).await?;
        self.plan(&mut prepared).await
    }

    async fn plan(&mut self, prepared: &mut Prepared) -> Result<(), RunError> {
        let [bin, json, pretty] =
            [PLAN_FILE, renderings::JSON, renderings::PRETTY].map(|name| self.scratch.join(name));
        drop(private_file(&bin)?);
        let options = &self.job.options;
        let before = fs::metadata(self.log.path())?.len();
        self.step_with_mirror_fallback(prepared, "plan", |tool| tool.plan(&bin, options)).await?;
        self.find_mocks(prepared, before)?;
        self.record_lock_file(prepared).await?;
        self.find_backend(prepared, &bin);
        self.record_removed_state(prepared)?;
        let tool = &prepared.tool();

        let bin_file = (File::Plan(PlanFormat::Bin), Upload::file(&bin).await?);
        let sha256 = bin_file.1.sha256();
        let artifacts = self.artifacts.clone();
        let ahead = async {
            Ok::<_, RunError>(match &artifacts {
                // A finished plan is replaced only when the new one is complete with its renderings.
                Some(artifacts) if !artifacts.is_kept() => Some(artifacts.create(&bin_file).await),
                _ => None,
            })
        };
        // If one of them fails, the other is cancelled.
        let (ahead, summary) = tokio::try_join!(ahead, self.show(tool, &bin, &json, &pretty))?;
        self.signals.dismiss_guard();
        let short = summary.counts.to_string();
        tracing::info!("{short}");
        self.report.outcome = if summary.changes { Outcome::Changes } else { Outcome::NoChanges };
        self.report.plan =
            Some(PlanReport { sha256, run: None, attempt: None, counts: Some(summary.counts) });
        let rest = [
            (File::Plan(PlanFormat::Pretty), Upload::file(&pretty).await?),
            (File::Plan(PlanFormat::Json), Upload::file(&json).await?),
            (File::Plan(PlanFormat::Short), Upload::bytes(short)),
        ];
        let (signals, grace) = (self.signals, self.upload_grace());
        let stored = signals.within(grace, self.store_plan(&bin_file, &rest, ahead)).await;
        stored.map_err(RunError::Stopped)??;
        if let Some(path) = &self.job.plan_file {
            plan_file::export_plan(&bin, path, &self.report)?;
        }
        self.annotate_plan(sha256).await?;
        tracing::info!("{}", self.next_command());
        Ok(())
    }

    /// Renders the plan as JSON and as text, and summarizes the JSON.
    async fn show(
        &mut self,
        tool: &Tool<'_>,
        bin: &Path,
        json: &Path,
        pretty: &Path,
    ) -> Result<Summary, RunError> {
        let mut tool = *tool;
        let since = self.report.started.into();
        let ran_in = tool.terragrunt.and_then(|_| terragrunt::ran_in(tool.dir, since));
        match self.step_into("show json", &tool.show_json(bin), json).await {
            Err(RunError::Tool { .. }) if tool.terragrunt.is_some() => {
                // Mock outputs may be allowed for a plan only, and showing one needs no outputs.
                let line = "terragrunt cannot show its plan: running the tool without terragrunt to show it";
                tracing::warn!("{line}");
                self.log.line(line)?;
                tool.dir = ran_in.as_deref().unwrap_or(tool.dir);
                tool.terragrunt = None;
                self.step_into("show json", &tool.show_json(bin), json).await?;
            }
            shown => shown?,
        }
        let json = fs::File::open(json)?;
        let summary = tokio::task::spawn_blocking(move || Summary::from_json(json));
        self.step_into("show", &tool.show(bin), pretty).await?;
        Ok(summary.await.map_err(std::io::Error::other)??)
    }

    /// Stores the plan, its renderings, the log and the report. If one of them cannot be stored, the plan fails.
    async fn store_plan(
        &mut self,
        first: &Entry,
        rest: &[Entry],
        ahead: Option<Result<(), ClientError>>,
    ) -> Result<(), RunError> {
        let Some(artifacts) = &mut self.artifacts else {
            self.report.exit = self.job.action.success_code(self.report.outcome);
            return Ok(());
        };
        artifacts.create_all(first, rest, ahead).await?;
        if let Some(plan) = &mut self.report.plan {
            plan.run = Some(self.job.run.run.to_string());
            plan.attempt = Some(artifacts.attempt());
        }
        self.report.exit = self.job.action.success_code(self.report.outcome);
        Ok(artifacts.put_outcome(self.log.path(), &self.report).await?)
    }

    /// Writes the plan's annotations to the layer.
    async fn annotate_plan(&self, sum: Sha256) -> Result<(), RunError> {
        let attempt = self.artifacts.as_ref().map(Artifacts::attempt).or(self.job.attempt);
        let attempt = attempt.unwrap_or(Attempt(0));
        let revision = self.report.revision.as_deref();
        let run = &self.job.run.run;
        self.annotate(&layer::plan_annotations(Timestamp::now(), run, attempt, sum, revision)).await
    }

    /// Where the plan is stored, and the command that applies it.
    fn next_command(&self) -> String {
        let job = self.job;
        let stored = match (&self.artifacts, &job.plan_file) {
            (Some(artifacts), _) => format!("stored as {}/{}", job.run, artifacts.attempt()),
            (None, Some(path)) => format!("stored in {}", path.display()),
            (None, None) => {
                return "the plan is not stored: --datastore or --plan-file keeps it for an apply"
                    .to_owned();
            }
        };
        let attempt = self.artifacts.as_ref().map_or(Attempt(0), Artifacts::attempt);
        if !self.report.mocks.is_empty() {
            return format!("{stored}; an apply refuses it because of its mock outputs");
        }
        let plan = format!("{}/{attempt}", job.run.run);
        match &job.apply_command {
            Some(command) => format!("{stored}; apply it with: {}", command.line(&plan)),
            None => format!("{stored}; Burrito's controllers order its apply"),
        }
    }
}
