//! States that an earlier apply could not write to its backend. While one is kept, the backend does not know what that
//! apply created, and another apply would create it again.

use std::path::PathBuf;

use fs_err as fs;

use crate::order::job::Action;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::push::{Push, Unpushed, absolute};
use crate::run::unsent;
use crate::source::checkout::{Source, Workspace};
use crate::source::git::is_tracked;
use crate::source::states::{self, KeptState, PushRecord};

impl Run<'_> {
    /// Refuses an apply while such a state of its code or layer is kept; a plan only if the state is in the runner's own
    /// checkout. Else a plan warns. `program` is the one whose `state push` writes the state.
    pub(super) async fn check_unpushed(
        &self,
        workspace: &Workspace,
        program: String,
    ) -> Result<(), RunError> {
        let in_code = self.errored_in_code(workspace);
        let run = &self.job.run;
        let state_home = self.environment.state_home.as_deref();
        unsent::remove_leftovers(state_home, self.scratch, run);
        let kept = unsent::states(state_home, run);
        let unpushed = if let Some(first) = in_code.first() {
            let in_commit = is_tracked(first).await;
            let dir = workspace.kept.then(|| absolute(workspace.dir.clone()));
            let states = in_code.iter().map(|file| {
                let real = fs::canonicalize(file).ok();
                let record = kept.iter().find(|kept| real.as_ref() == Some(&kept.file));
                let record = record.and_then(|kept| kept.record.clone());
                (
                    absolute(file.clone()),
                    Push { dir: dir.clone(), ..self.push_of(record, &program) },
                )
            });
            Unpushed { states: states.collect(), in_commit }
        } else {
            let left = self.scratch.left_states(&unsent::layer_id(run));
            let states = kept.into_iter().chain(left);
            let states = states
                .map(|KeptState { file, record }| (file, self.push_of(record, &program)))
                .collect::<Vec<_>>();
            if states.is_empty() {
                return self.check_missing();
            }
            Unpushed { states, in_commit: false }
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

    /// Refuses an apply while the directory of such a state is missing, because the state may not be pushed. A plan
    /// warns.
    fn check_missing(&self) -> Result<(), RunError> {
        let state_home = self.environment.state_home.as_deref();
        let missing = unsent::missing_states(state_home, &self.job.run);
        let Some(state) = missing.into_iter().next() else { return Ok(()) };
        if matches!(self.job.action, Action::Apply(_)) {
            return Err(RunError::MissingState(state));
        }
        tracing::warn!("{state}: an apply is refused: {}", state.hint());
        Ok(())
    }

    /// The record of how a state of this run gets into its backend.
    pub(super) fn push_record(&self, program: String) -> PushRecord {
        PushRecord::new(program, self.job.place.workspace.clone(), &self.job.path)
    }

    /// How a state of an earlier apply gets into its backend. Without a record it may be of any workspace.
    fn push_of(&self, record: Option<PushRecord>, program: &str) -> Push {
        match record {
            Some(record) => Push::recorded(record),
            None => Push {
                program: Some(program.to_owned()),
                workspace: None,
                path: self.job.path.clone(),
                dir: None,
            },
        }
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
