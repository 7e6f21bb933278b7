//! What a run records of the code, backend and tool of its plan, and what an apply compares with that.

use std::path::Path;

use datastore_api::Attempt;

use crate::basis::Basis;
use crate::basis::backend::{self, Backend};
use crate::basis::configuration;
use crate::basis::plan_file::{self, Contents};
use crate::order::job::{Action, Apply};
use crate::report::Report;
use crate::run::action::{PLAN_FILE, Ready, Run, RunError};
use crate::run::artifacts::Artifacts;
use crate::source::checkout::{Source, Workspace};
use crate::source::git::is_code_changed;
use crate::tool::terragrunt;
use crate::version::ToolName;

impl Run<'_> {
    /// Compares what init has shown with what the plan was made of. From here on the report is the plan's.
    pub(super) fn compare(
        &mut self,
        from: &Apply,
        basis: &Basis,
        ready: &Ready,
    ) -> Result<(), RunError> {
        if ready.terragrunt.is_some() {
            // It initializes when it applies. What its cache shows is of the last time.
            self.describe(ready)?;
        }
        if let (Some(theirs), Some(ours)) = (basis.made_in(), self.report.directory.as_deref())
            && theirs != ours
        {
            tracing::warn!("the plan was made in {theirs}; it is applied in {ours}");
        }
        let Report { backend, configuration_sha256, providers, .. } = &self.report;
        if let Some(configuration) = *configuration_sha256 {
            basis.check_initialized(backend.as_ref(), configuration, providers.as_ref())?;
        }
        if let Apply::File(path) = from
            && basis.is_bare_file()
        {
            self.compare_contents(path, basis, ready)?;
        }
        self.report.revision = basis.revision_or(self.report.revision.take());
        Ok(())
    }

    /// Compares a plan file without a record by what it contains.
    fn compare_contents(&self, path: &Path, basis: &Basis, ready: &Ready) -> Result<(), RunError> {
        let (dir, tofu) = (&ready.workspace.dir, ready.installed.tool == ToolName::Tofu);
        let variables = &self.environment.backend;
        let contents = Contents::read(&self.scratch.join(PLAN_FILE), dir, variables);
        let record = plan_file::record_path(path);
        let Some(contents) = contents else {
            tracing::warn!(
                "there is no record {} of the plan {}: its place, backend and configuration are not compared",
                record.display(),
                path.display()
            );
            return Ok(());
        };
        tracing::warn!(
            "there is no record {} of the plan {}: only what the plan contains is compared",
            record.display(),
            path.display()
        );
        // Terragrunt has copied the code to its cache, and added files to it.
        let is_copied = ready.terragrunt.is_some();
        let difference = if is_copied { None } else { contents.difference(dir, tofu)? };
        let (workspace, backend) =
            (self.job.place.workspace.as_ref(), self.report.backend.as_ref());
        Ok(basis.check_contents(&contents, workspace, backend, difference)?)
    }

    /// Takes the backend from the plan itself where the data directory does not show it, as with terragrunt.
    pub(super) fn find_backend(&mut self, ready: &Ready, plan: &Path) {
        if self.report.backend.is_none() {
            let (dir, variables) = (&ready.workspace.dir, &self.environment.backend);
            let contents = Contents::read(plan, dir, variables);
            self.report.backend = contents.and_then(|contents| contents.backend);
        }
    }

    /// Records the dependencies whose outputs terragrunt has made up, as it says in the log since `before`.
    pub(super) fn find_mocks(&mut self, ready: &Ready, before: u64) -> Result<(), RunError> {
        if ready.terragrunt.is_none() {
            return Ok(());
        }
        self.report.mocks = terragrunt::mocks(self.log.reader(before)?)?;
        if self.report.mocks.is_empty() {
            return Ok(());
        }
        let dependencies = self.report.mocks.join(", ");
        let line = match self.job.action {
            Action::Plan { .. } => format!(
                "this plan uses mock outputs, not the real ones of {dependencies}: plan again when that is \
                 applied (an apply refuses this plan)"
            ),
            Action::Apply(_) => {
                format!("this apply has used mock outputs, not the real ones of {dependencies}")
            }
        };
        tracing::warn!("{line}");
        Ok(self.log.line(&line)?)
    }

    /// What an apply compares of this plan, or with that of the plan.
    pub(super) fn describe(&mut self, ready: &Ready) -> Result<(), RunError> {
        let (dir, environment) = (&ready.workspace.dir, self.environment);
        let data_dir = environment.tf_data_dir.as_deref();
        let data_dirs = backend::data_dirs(dir, data_dir, ready.terragrunt.is_some());
        let workspace = self.job.place.workspace.as_deref().unwrap_or_default();
        let variables = &environment.backend;
        self.report.backend = Backend::of_module(dir, &data_dirs, workspace, variables);
        self.report.configuration_sha256 = Some(configuration::digest(dir)?);
        Ok(())
    }

    /// Whether the code is that of the plan: a directory is used as it is, and a bundle may lack the
    /// plan's commit.
    pub(super) async fn check_code(
        &self,
        basis: &Basis,
        workspace: &Workspace,
    ) -> Result<(), RunError> {
        let ours = workspace.revision.as_deref();
        if let Source::Directory(dir) = &self.job.source {
            let dirty = ours.is_some_and(|ours| ours.ends_with("-dirty"));
            let changed = dirty && is_code_changed(dir, &self.job.ours).await;
            return Ok(basis.check_revision(ours, changed)?);
        }
        if let (Some(theirs), Some(ours)) = (basis.commit(), ours) {
            let line = if theirs == ours {
                format!("working on the plan's commit {ours}")
            } else {
                format!("the bundle lacks the plan's commit {theirs}: working on {ours}")
            };
            tracing::info!("{line}");
            self.log.line(&line)?;
        }
        Ok(())
    }

    /// Where the plan is, and which command applies it.
    pub(super) fn next_command(&self) -> String {
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
            return format!("{stored}; an apply refuses it, for its mock outputs");
        }
        let plan = format!("{}/{attempt}", job.run.run);
        match &job.apply_command {
            Some(command) => format!("{stored}; apply it with: {}", command.line(&plan)),
            None => format!("{stored}; Burrito's controllers order its apply"),
        }
    }
}
