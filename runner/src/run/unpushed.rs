//! States that an earlier apply could not write to its backend. While one is kept, the backend does not know what that
//! apply created, and another apply would create it again.

use std::collections::BTreeSet;
use std::path::PathBuf;

use fs_err as fs;

use crate::order::job::Action;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::push::{MissingState, Push, Unpushed, absolute};
use crate::run::unsent;
use crate::source::checkout::source_id::{SourceId, may_be_same};
use crate::source::checkout::{Source, Workspace};
use crate::source::git::is_tracked;
use crate::source::states::{self, PushRecord};

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
        let left = self.scratch.left_states(&unsent::layer_id(run));
        let kept = unsent::states(state_home, run).into_iter().chain(left).collect::<Vec<_>>();
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
            let states = kept.into_iter().filter(|state| self.may_be_ours(state.source.as_deref()));
            // Several links and records may lead to one state.
            let mut files = BTreeSet::new();
            let states = states.filter(|state| files.insert(state.file.clone()));
            let states = states.map(|state| (state.file, self.push_of(state.record, &program)));
            let states = states.collect::<Vec<_>>();
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
        let mut missing = unsent::missing_states(state_home, &self.job.run).into_iter();
        let is_ours = |state: &MissingState| self.may_be_ours(state.source.as_deref());
        let Some(state) = missing.find(is_ours) else {
            return Ok(());
        };
        if matches!(self.job.action, Action::Apply(_)) {
            return Err(RunError::MissingState(state));
        }
        tracing::warn!("{state}: an apply is refused: {}", state.hint());
        Ok(())
    }

    /// Warns of what earlier applies may have left, and what refuses nothing.
    pub(super) fn warn_of_earlier_applies(&self) {
        self.warn_of_unreadable();
        self.warn_of_other_code();
    }

    /// Warns if states and records of earlier runs cannot be found. The disk of a pod has none.
    fn warn_of_unreadable(&self) {
        let state_home = self.environment.state_home.as_deref().filter(|_| !self.job.pod);
        if let Some(error) = unsent::unreadable(state_home, &self.job.run) {
            tracing::warn!(
                "cannot find out whether an earlier apply of this layer has left a state or a record: {error}"
            );
        }
    }

    /// Warns of such states of layers that have the same name, but other code. They refuse nothing.
    fn warn_of_other_code(&self) {
        let (state_home, run) = (self.environment.state_home.as_deref(), &self.job.run);
        let layer = format!("{}/{}", run.namespace, run.layer);
        let is_other = |source: &Option<String>| !self.may_be_ours(source.as_deref());
        let ours = self.source_id.as_ref().map(SourceId::root).unwrap_or_default();
        for state in unsent::states(state_home, run).into_iter().filter(|s| is_other(&s.source)) {
            tracing::warn!(
                "{} is a state that an earlier apply could not write to its backend. It is {}. This code is from {ours}, \
                 so an apply is not refused. If it is the same code, do not apply. To push the state: {}",
                state.file.display(),
                state.described(Some(&layer)),
                Unpushed::kept([state.clone()]).steps()
            );
        }
        let missing = unsent::missing_states(state_home, run).into_iter();
        for state in missing.filter(|state| is_other(&state.source)) {
            let source = state.source.as_deref().unwrap_or_default();
            tracing::warn!(
                "{state}. Its layer has the same name, {layer}, but its code is from {source}. This code is from \
                 {ours}, so an apply is not refused: {}",
                state.hint()
            );
        }
    }

    /// Whether the code of a state may be that of this run.
    fn may_be_ours(&self, source: Option<&str>) -> bool {
        may_be_same(source, self.source_id.as_ref().map(SourceId::root))
    }

    /// The record of how a state of this run gets into its backend.
    pub(super) fn push_record(&self, program: String, workspace: &Workspace) -> PushRecord {
        let place = &self.job.place;
        let placed = || place.path.as_ref().map_or_else(|| self.job.path.clone(), PathBuf::from);
        let path = self.path_in_snapshot.clone().unwrap_or_else(placed);
        let dir = workspace.kept.then_some(&*workspace.dir);
        PushRecord::new(program, place.workspace.clone(), &path)
            .of_code(self.source_id.as_ref(), dir)
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
