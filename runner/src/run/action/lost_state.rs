//! Whether the state of an apply would be removed with the run's own directory. With terragrunt the plan itself
//! says which backend it has, else terragrunt's init.

use std::path::PathBuf;

use crate::basis::backend::{self, Backend};
use crate::basis::local_state::Initialized;
use crate::basis::plan_file::Contents;
use crate::cli::Environment;
use crate::run::action::{PLAN_FILE, Ready, Run, RunError, init};
use crate::source::checkout::Workspace;
use crate::tool::terragrunt;

impl Run<'_> {
    /// Refuses an apply whose state would be lost; a pod of Burrito's is only warned.
    pub(super) async fn check_lost_state(&mut self, ready: &mut Ready) -> Result<(), RunError> {
        let Some(state) = self.lost_state(ready).await? else { return Ok(()) };
        let lost = RunError::LocalState(state);
        if !self.job.burrito {
            return Err(lost);
        }
        tracing::warn!("{lost}");
        Ok(())
    }

    /// The state file, if it is removed with the run's own directory.
    async fn lost_state(&mut self, ready: &mut Ready) -> Result<Option<PathBuf>, RunError> {
        let Workspace { own: Some(removed), kept: false, .. } = &ready.workspace else {
            return Ok(None);
        };
        let removed = removed.clone();
        let Environment { tf_data_dir, tf_workspace, .. } = self.environment;
        let (data, workspace) = (tf_data_dir.as_deref(), tf_workspace.as_deref());
        if ready.terragrunt.is_some() {
            if let Some(backend) = self.planned_backend(ready) {
                let module = Initialized { dir: &ready.workspace.dir, data, workspace };
                return Ok(module.lost_of(&backend, &removed)?);
            }
            // In a pod its own init, in its apply, is the first that shows the backend.
            if self.job.burrito {
                return Ok(None);
            }
            self.step_past_mirror(ready, "init", init).await?;
        }
        for dir in self.worked_in(ready) {
            let module = Initialized { dir: &dir, data, workspace };
            if let Some(state) = module.lost_with(&removed)? {
                return Ok(Some(state));
            }
        }
        Ok(None)
    }

    /// The backend that the plan to apply was made with, if that can be read.
    fn planned_backend(&self, ready: &Ready) -> Option<Backend> {
        self.report.plan.as_ref()?;
        let variables = &self.environment.backend;
        Contents::read(&self.scratch.join(PLAN_FILE), &ready.workspace.dir, variables)?.backend
    }

    /// Where the tool works: with terragrunt, where it was initialized.
    fn worked_in(&self, ready: &Ready) -> Vec<PathBuf> {
        let dir = &ready.workspace.dir;
        let data = self.environment.tf_data_dir.as_deref();
        if ready.terragrunt.is_none() || data.is_some_and(|data| data.components().count() > 1) {
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
