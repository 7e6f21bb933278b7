//! Refuses an apply whose local state would be removed with the run's private directory. With terragrunt the
//! backend is read from the plan, or found by an init of terragrunt's.

use std::path::PathBuf;

use crate::basis::backend::{self, Backend};
use crate::basis::local_state::Initialized;
use crate::basis::plan_file::Contents;
use crate::cli::Environment;
use crate::run::error::RunError;
use crate::run::prepare::{Prepared, init};
use crate::run::{PLAN_FILE, Run};
use crate::source::checkout::Workspace;
use crate::tool::terragrunt;

impl Run<'_> {
    /// Refuses an apply whose state would be lost. In a pod of Burrito's this is only a warning.
    pub(super) async fn check_lost_state(
        &mut self,
        prepared: &mut Prepared,
    ) -> Result<(), RunError> {
        let Some(state) = self.lost_state(prepared).await? else { return Ok(()) };
        let lost = RunError::LocalState(state);
        if !self.job.burrito {
            return Err(lost);
        }
        tracing::warn!("{lost}");
        Ok(())
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
            self.step_with_mirror_fallback(prepared, "init", init).await?;
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
    fn planned_backend(&self, prepared: &Prepared) -> Option<Backend> {
        self.report.plan.as_ref()?;
        let variables = &self.environment.backend;
        Contents::read(&self.scratch.join(PLAN_FILE), &prepared.workspace.dir, variables)?.backend
    }

    /// The directories in which the tool works. With terragrunt these are in its cache.
    fn tool_dirs(&self, prepared: &Prepared) -> Vec<PathBuf> {
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
