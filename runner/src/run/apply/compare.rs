//! Compares the code, the backend and the tool with the record of the plan, before anything is applied.

use std::collections::BTreeSet;
use std::path::Path;

use fs_err as fs;

use crate::basis::Basis;
use crate::basis::backend::Backend;
use crate::basis::order::OrderKey;
use crate::basis::outside_files::Outside;
use crate::basis::plan_file::{self, Contents, StateVersion};
use crate::order::job::Apply;
use crate::report::{AppliedRecord, Report};
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::prepare::describe::has_other_files;
use crate::run::stored_plan::Choice;
use crate::run::{PLAN_FILE, Run};
use crate::source::checkout::{Source, Workspace};
use crate::source::git::OrderedRevision;
use crate::version::ToolName;

impl Run<'_> {
    /// Compares backend, configuration and providers, which are known after init, with the plan's.
    pub(super) async fn compare(
        &mut self,
        from: &Apply,
        choice: &Choice,
        prepared: &Prepared,
    ) -> Result<(), RunError> {
        let basis = &choice.basis;
        if prepared.terragrunt.is_some() {
            // It runs init during the apply. Until then its cache shows an earlier run.
            self.describe(prepared)?;
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
            self.compare_contents(path, basis, prepared)?;
        }
        self.compare_directory(basis, &prepared.workspace)?;
        // Terragrunt runs init in a cache, during the apply.
        if let Some(binding) = &choice.binding
            && prepared.is_snapshot
            && prepared.terragrunt.is_none()
        {
            binding.check_lock_file(&choice.name(), self.report.lock_file_sha256)?;
        }
        if prepared.terragrunt.is_none() {
            self.compare_modules(basis, prepared).await?;
        }
        if let Some(binding) = &choice.binding {
            // Terragrunt's init takes the lock file of the code, if there is one.
            let is_compared = |address: &str| binding.compares_provider(address);
            let (ours, unread) = self.provider_digests(prepared, is_compared).await?;
            binding.check_providers(&choice.name(), &ours, &unread)?;
        }
        Ok(())
    }

    /// Compares the directory with the plan's, if nothing else distinguishes two modules of equal code: no repository is known,
    /// each is to have a local state beside it, and there was none yet.
    fn compare_directory(&self, basis: &Basis, workspace: &Workspace) -> Result<(), RunError> {
        let is_beside = self.report.backend.as_ref().is_some_and(Backend::is_beside_code);
        let is_in_place = workspace.own.is_none() && self.report.directory.is_some();
        if !is_beside || !is_in_place {
            return Ok(());
        }
        let state = plan_file::version_in_plan(&self.scratch.join(PLAN_FILE));
        if state.is_some_and(|state| state.lineage.is_empty()) {
            basis.check_made_in(&workspace.dir)?;
        }
        Ok(())
    }

    /// Refuses the newest plan, which another run has applied, if it was made of other code than this one: that of another branch
    /// or directory. Nothing of this code is applied then. The same order, by its key or by the plan that it names, is not
    /// compared.
    pub(super) async fn check_applied_code(
        &self,
        record: &AppliedRecord,
        choice: Option<&Choice>,
        code: Result<Prepared, RunError>,
    ) -> Result<(), RunError> {
        let job = self.job;
        let key = |key: Option<OrderKey>| key.map(|key| key.sha256);
        let is_order = record.order_key.is_some() && key(record.order_key) == key(self.order_key);
        let is_named = job.named.plan || job.action.approved().is_some();
        let is_own = job.pod || record.run == job.run.run.as_ref() || is_order || is_named;
        let Some(choice) = choice.filter(|choice| choice.basis.is_strict() && !is_own) else {
            return Ok(());
        };
        let basis = &choice.basis;
        let directory = match &code {
            Ok(prepared) if prepared.workspace.own.is_none() => {
                Some(prepared.workspace.dir.clone())
            }
            // A copy, or the plan's snapshot.
            Ok(_) => None,
            // It is other code, whether it was copied or not.
            Err(_) if matches!(choice.snapshot(job), Ok(None)) => {
                job.source.directory().map(|dir| dir.join(&job.path))
            }
            Err(_) => None,
        };
        if let Some(directory) = directory {
            basis.check_directory_alone(&directory)?;
        }
        match code {
            Err(RunError::Basis(error)) if error.is_of_other_code() => return Err(error.into()),
            _ => {}
        }
        let Some(ordered) = OrderedRevision::of(&job.source, self.environment) else {
            return Ok(());
        };
        let compared = self.signals.or(basis.check_not_moved(&ordered)).await;
        Ok(compared.map_err(RunError::Stopped)??)
    }

    /// Compares the files outside of the source that the configuration names, whatever the source is, when the plan is
    /// fetched.
    pub(super) async fn compare_outside_files(
        &self,
        choice: Option<&Choice>,
        workspace: &Workspace,
    ) -> Result<(), RunError> {
        let basis = choice.map(|choice| &choice.basis);
        let Some(basis) = basis.filter(|basis| basis.outside_files().is_some()) else {
            return Ok(());
        };
        let (dir, home) = (workspace.dir.clone(), self.environment.home.clone());
        let (own, called) = (self.job.ignored_paths.clone(), basis.called_modules().clone());
        let basis = basis.clone();
        let plan = self.scratch.join(PLAN_FILE);
        let compared = tokio::task::spawn_blocking(move || {
            basis.check_outside_files(Outside::list(dir, called, home, own), &plan)
        });
        let compared = self.signals.or(compared).await.map_err(RunError::Stopped)?;
        Ok(compared.map_err(std::io::Error::other)??)
    }

    /// Compares the modules that init has downloaded with those of the plan.
    async fn compare_modules(&self, basis: &Basis, prepared: &Prepared) -> Result<(), RunError> {
        let (basis, dir) = (basis.clone(), prepared.workspace.dir.clone());
        let data_dir = self.environment.data_dir().to_owned();
        let compared = tokio::task::spawn_blocking(move || basis.check_modules(&dir, &data_dir));
        Ok(compared.await.map_err(std::io::Error::other)??)
    }

    /// Compares the state with that of which the plan was made, as late as possible: another apply changes it.
    pub(super) async fn compare_state(
        &mut self,
        choice: &Choice,
        prepared: &Prepared,
    ) -> Result<(), RunError> {
        let Some(binding) = choice.binding.as_ref().filter(|binding| binding.state.is_some())
        else {
            return Ok(());
        };
        if prepared.terragrunt.is_some() {
            return Ok(());
        }
        let plan = &choice.name();
        let file = self.scratch.join("state");
        if prepared.state_copy.is_some() {
            self.read_state(prepared, &file).await?;
        } else {
            let program = prepared.tool().state_pull();
            self.step_into_with_retries("state pull", &program, &file).await?;
        }
        let read = fs::File::open(&file).and_then(StateVersion::read);
        fs::remove_file(&file)?;
        match read {
            Ok(state) => {
                binding.check_state(plan, &state)?;
                self.planned_state = Some(state);
                Ok(())
            }
            // The tool compares it as well, though without these words.
            Err(error) => {
                tracing::warn!("the state is not compared with that of the plan {plan}: {error}");
                Ok(())
            }
        }
    }

    /// Compares the contents of a plan file that has no record beside it.
    fn compare_contents(
        &self,
        path: &Path,
        basis: &Basis,
        prepared: &Prepared,
    ) -> Result<(), RunError> {
        let (dir, tofu) = (&prepared.workspace.dir, prepared.installed.tool == ToolName::Tofu);
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
        // Terragrunt copies the code to its cache and adds files.
        let is_copied = prepared.terragrunt.is_some();
        let difference = if is_copied { None } else { contents.difference(dir, tofu)? };
        let (workspace, backend) =
            (self.job.place.workspace.as_ref(), self.report.backend.as_ref());
        Ok(basis.check_contents(&contents, workspace, backend, difference)?)
    }

    /// Checks that the code is at the plan's commit, and where the plan needs it. A directory and an archive are used as
    /// they are, and a bundle may lack the commit.
    pub(in crate::run) async fn check_code(
        &self,
        basis: &Basis,
        workspace: &Workspace,
    ) -> Result<(), RunError> {
        let dir = fs::canonicalize(&workspace.dir)?;
        basis.check_directory(&dir, self.scratch)?;
        basis.check_configuration(&dir)?;
        let (ours, called) = (workspace.revision.as_deref(), basis.called_modules());
        match &self.job.source {
            Source::Directory(dir) if ours.is_some_and(|ours| ours.ends_with("-dirty")) => {
                let is_terragrunt = basis.terragrunt(self.job).is_some();
                basis.check_revision(ours, self.changed_code(dir, is_terragrunt, called).await)?;
            }
            Source::Directory(_) | Source::Packed(_) => {
                let unknown = workspace.unknown_changes.clone();
                basis.check_revision(ours, unknown.map_or(Ok(BTreeSet::new()), Err))?;
            }
            _ => {}
        }
        if !self.job.pod {
            basis.check_read_files(workspace)?;
        }
        if let Some(recorded) = basis.named_files().filter(|_| has_other_files(workspace)) {
            let left_out = self.left_out(workspace, called, recorded.is_untracked_only).await;
            if let Some(left_out) = left_out.transpose() {
                basis.check_named_files(&workspace.dir, left_out)?;
            }
        }
        if let Source::Directory(_) | Source::Packed(_) = &self.job.source {
            return Ok(basis.check_source(workspace.sha256)?);
        }
        if let (Some(theirs), Some(ours)) = (basis.commit(), ours) {
            let line = if theirs == ours.strip_suffix("-dirty").unwrap_or(ours) {
                format!("working on the plan's commit {ours}")
            } else {
                basis.check_tip(theirs, ours)?;
                format!("the bundle lacks the plan's commit {theirs}: working on {ours}")
            };
            tracing::info!("{line}");
            self.log.line(&line)?;
        }
        Ok(())
    }
}
