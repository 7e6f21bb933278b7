//! States that an earlier apply could not write to its backend. While one is kept, the backend does not know what that
//! apply created, and another apply would create it again.

use std::path::PathBuf;

use crate::basis::place::DEFAULT_WORKSPACE;
use crate::order::job::Action;
use crate::run::Run;
use crate::run::error::{Push, RunError, Unpushed};
use crate::run::unsent;
use crate::source::checkout::{Source, Workspace};
use crate::source::git::is_tracked;
use crate::source::states;

impl Run<'_> {
    /// Refuses an apply while such a state of its code or layer is kept; a plan only if the state is in the runner's own
    /// checkout. Else a plan warns. `program` is the one whose `state push` writes the state.
    pub(super) async fn check_unpushed(
        &self,
        workspace: &Workspace,
        program: String,
    ) -> Result<(), RunError> {
        let in_code = self.errored_in_code(workspace);
        let unpushed = if let Some(first) = in_code.first() {
            let in_commit = is_tracked(first).await;
            let dir = workspace.kept.then(|| workspace.dir.clone());
            let push = Box::new(self.push(program, dir));
            Unpushed { files: in_code.clone(), push, in_commit }
        } else {
            let run = &self.job.run;
            let mut files = unsent::states(self.environment.state_home.as_deref(), run);
            files.extend(self.scratch.left_states(&unsent::layer_id(run)));
            if files.is_empty() {
                return Ok(());
            }
            let mut push = Box::new(self.push(program, None));
            // Only a name that contains the workspace is that of one workspace alone.
            push.workspace = push.workspace.take().filter(|name| {
                name == DEFAULT_WORKSPACE || run.layer.as_ref().ends_with(&format!(".{name}"))
            });
            Unpushed { files, push, in_commit: false }
        };
        let is_own = !in_code.is_empty() && workspace.own.is_some() && !self.job.burrito;
        if is_own || matches!(self.job.action, Action::Apply(_)) {
            return Err(RunError::Unpushed(unpushed));
        }
        tracing::warn!(
            "{unpushed}: what that apply created may be missing in this plan, and an apply is refused: {}",
            unpushed.hint()
        );
        Ok(())
    }

    /// How a state of this run's workspace gets into its backend. `dir` is the module's directory, if it stays.
    pub(super) fn push(&self, program: String, dir: Option<PathBuf>) -> Push {
        let (workspace, path) = (self.job.place.workspace.clone(), self.job.path.clone());
        Push { program, workspace, path, dir }
    }

    /// The states in the directory of the module.
    fn errored_in_code(&self, workspace: &Workspace) -> Vec<PathBuf> {
        let Some(root) = &workspace.own else { return states::errored_in_place(&workspace.dir) };
        let found = states::errored(&workspace.dir);
        match &self.job.source {
            // The copy is removed: the files are named where they came from.
            Source::Directory(from) if !workspace.kept => {
                let below = found.iter().map(|file| file.strip_prefix(root).unwrap_or(file));
                below.map(|file| from.join(file)).collect()
            }
            _ => found,
        }
    }
}
