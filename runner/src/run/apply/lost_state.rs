//! Refuses an apply whose local state would be removed with the run's private directory. With terragrunt the
//! backend is read from the plan, or found by an init of terragrunt's.

use std::path::{Path, PathBuf};

use crate::basis::Basis;
use crate::basis::backend::{self, Backend};
use crate::basis::local_state::Initialized;
use crate::basis::place::DEFAULT_WORKSPACE;
use crate::basis::plan_file::Contents;
use crate::cli::Environment;
use crate::run::error::RunError;
use crate::run::prepare::{Prepared, init};
use crate::run::{PLAN_FILE, Run};
use crate::source::checkout::Workspace;
use crate::source::scratch;
use crate::tool::terragrunt;

impl Run<'_> {
    /// Refuses an apply whose state would be lost. In a pod of Burrito's this is only a warning.
    pub(super) async fn check_lost_state(
        &mut self,
        prepared: &mut Prepared,
    ) -> Result<(), RunError> {
        if prepared.state_copy.is_some() {
            return Ok(());
        }
        let Some(state) = self.lost_state(prepared).await? else { return Ok(()) };
        let lost = RunError::LocalState(state);
        if !self.job.burrito {
            return Err(lost);
        }
        tracing::warn!("{lost}");
        Ok(())
    }

    /// Records that the plan names a local state inside the directory that is removed after this run.
    pub(in crate::run) fn record_removed_state(
        &mut self,
        prepared: &Prepared,
    ) -> Result<(), RunError> {
        let Workspace { own: Some(removed), kept: false, .. } = &prepared.workspace else {
            return Ok(());
        };
        if prepared.state_copy.is_some() {
            return Ok(());
        }
        let Environment { tf_data_dir, tf_workspace, .. } = self.environment;
        let (data, workspace) = (tf_data_dir.as_deref(), tf_workspace.as_deref());
        for dir in self.tool_dirs(prepared) {
            let module = Initialized { dir: &dir, data, workspace };
            if let Some(state) = module.absolute_in(removed)? {
                tracing::warn!(
                    "an apply of this plan will be refused: the backend is local, and its file {} is removed when \
                     this run ends",
                    state.display()
                );
                self.report.removed_state = Some(state);
                break;
            }
        }
        Ok(())
    }

    /// Refuses a plan whose state was inside the directory that was removed after it, wherever it is applied. In a pod
    /// of Burrito's this is only a warning.
    pub(super) fn check_planned_state(&self, basis: Option<&Basis>) -> Result<(), RunError> {
        let recorded = basis.and_then(Basis::removed_state).map(Path::to_owned);
        let Some(state) = recorded.or_else(|| self.state_of_removed_scratch()) else {
            return Ok(());
        };
        let lost = RunError::PlannedState(state);
        if !self.job.burrito {
            return Err(lost);
        }
        tracing::warn!("{lost}");
        Ok(())
    }

    /// The plan's state file, if its path leads into the private directory of a run that has ended. Runners before
    /// `removed_state` did not record this.
    fn state_of_removed_scratch(&self) -> Option<PathBuf> {
        self.report.plan.as_ref()?;
        let variables = &self.environment.backend;
        // With no directory to be relative to, the path stays absolute.
        let contents = Contents::read(&self.scratch.join(PLAN_FILE), Path::new(""), variables)?;
        if contents.workspace.is_some_and(|workspace| workspace != DEFAULT_WORKSPACE) {
            return None;
        }
        let file = contents.backend?.state_file()?.to_owned();
        let scratch = file.ancestors().find(|dir| scratch::is_scratch(dir))?;
        (file.is_absolute() && !scratch.exists()).then_some(file)
    }

    /// The state file, if it would be removed with the run's private directory.
    async fn lost_state(&mut self, prepared: &mut Prepared) -> Result<Option<PathBuf>, RunError> {
        let Workspace { own: Some(removed), kept: false, .. } = &prepared.workspace else {
            return Ok(None);
        };
        let removed = removed.clone();
        let Environment { tf_data_dir, tf_workspace, .. } = self.environment;
        let (data, workspace) = (tf_data_dir.as_deref(), tf_workspace.as_deref());
        if prepared.terragrunt.is_some() {
            if let Some(backend) = self.planned_backend(prepared) {
                let module = Initialized { dir: &prepared.workspace.dir, data, workspace };
                return Ok(module.lost_of(&backend, &removed)?);
            }
            // In a pod no separate init is run: the backend is known only during the apply.
            if self.job.burrito {
                return Ok(None);
            }
            if self.report.backend.is_none() {
                self.step_with_mirror_fallback(prepared, "init", init).await?;
            }
        }
        for dir in self.tool_dirs(prepared) {
            let module = Initialized { dir: &dir, data, workspace };
            if let Some(state) = module.lost_with(&removed)? {
                return Ok(Some(state));
            }
        }
        Ok(None)
    }

    /// The backend that the plan file names, if it can be read.
    pub(in crate::run) fn planned_backend(&self, prepared: &Prepared) -> Option<Backend> {
        self.report.plan.as_ref()?;
        let variables = &self.environment.backend;
        Contents::read(&self.scratch.join(PLAN_FILE), &prepared.workspace.dir, variables)?.backend
    }

    /// The directories in which the tool works. With terragrunt these are in its cache.
    pub(super) fn tool_dirs(&self, prepared: &Prepared) -> Vec<PathBuf> {
        let dir = &prepared.workspace.dir;
        let data = self.environment.tf_data_dir.as_deref();
        if prepared.terragrunt.is_none() || data.is_some_and(|data| data.components().count() > 1) {
            return vec![dir.clone()];
        }
        let found = backend::data_dirs(dir, data, true);
        let found = found.iter().filter_map(|data_dir| data_dir.parent()).map(PathBuf::from);
        let found = found.collect::<Vec<_>>();
        if !found.is_empty() {
            return found;
        }
        // A module without providers and backend has no data directory.
        vec![terragrunt::ran_in(dir, self.report.started.into()).unwrap_or_else(|| dir.clone())]
    }
}
