//! States that an earlier apply could not write to its backend. While one is kept, the backend does not know what that
//! apply created, and another apply would create it again.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use datastore_api::{Sha256, chain};
use fs_err as fs;

use crate::basis::backend::Backend;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::push::{MissingState, Origin, Push, Unpushed, absolute};
use crate::run::unsent::{self, StateContents};
use crate::source::checkout::source_id::{SourceId, may_be_same};
use crate::source::checkout::{Source, Workspace};
use crate::source::git::is_tracked;
use crate::source::regular::unless_missing;
use crate::source::scratch;
use crate::source::states::{self, KeptState, PushRecord};

/// What is found of such states.
struct Found {
    unpushed: Unpushed,
    /// Whether they are in the directory of the module.
    in_code: bool,
    /// The runner's copies of all of them, if the backend of this run may show that they are pushed.
    copies: Option<Vec<KeptState>>,
}

impl Run<'_> {
    /// Looks for such states of this code or layer after the checkout. An apply is refused, unless the backend may have
    /// them by now: then [`Self::check_pushed`] decides. A plan is refused only if the state is in the runner's own
    /// checkout, else it warns. `program` is the one whose `state push` writes the state.
    pub(in crate::run) async fn check_unpushed(
        &self,
        workspace: &Workspace,
        program: &str,
    ) -> Result<(), RunError> {
        let Some(found) = self.found_unpushed(workspace, program).await? else {
            return self.check_missing();
        };
        let is_own = found.in_code && workspace.own.is_some() && !self.job.burrito;
        let is_apply = self.job.action.is_apply();
        if is_apply && found.copies.is_some() {
            tracing::info!("{}: it is compared with the backend after init", found.unpushed);
            return self.check_missing();
        }
        let unpushed = found.unpushed;
        if is_own || is_apply {
            return Err(RunError::Unpushed(unpushed));
        }
        tracing::warn!(
            "{unpushed}: what that apply created may be missing in this plan, and an apply is refused: {}",
            unpushed.hint()
        );
        Ok(())
    }

    /// Looks for such states again before the tool applies: another apply of this layer may have left one since the
    /// checkout. The copies of those that the backend has are removed. Others refuse the apply.
    pub(in crate::run) async fn check_pushed(
        &mut self,
        prepared: &Prepared,
        program: &str,
    ) -> Result<(), RunError> {
        let Some(found) = self.found_unpushed(&prepared.workspace, program).await? else {
            return self.check_missing();
        };
        let Some(copies) = found.copies else { return Err(RunError::Unpushed(found.unpushed)) };
        self.check_missing()?;
        let backend = self.pull_state(prepared).await?;
        let (mut kept, mut differences) = (Vec::new(), Vec::new());
        for state in copies {
            let stored = match &backend {
                Ok(backend) => StateContents::read(&state.file)
                    .map_err(|error| error.to_string())
                    .and_then(|state| state.check_stored(backend)),
                Err(reason) => {
                    Err(format!("it is unknown whether the backend has it by now: {reason}"))
                }
            };
            match stored {
                Ok(()) => remove_pushed(&state)?,
                Err(difference) => {
                    differences.push(difference);
                    kept.push(state);
                }
            }
        }
        if kept.is_empty() {
            return Ok(());
        }
        let unpushed = self.unpushed(kept, program);
        Err(RunError::Unpushed(Unpushed { differences, ..unpushed }))
    }

    /// The state in the backend of this run. The inner error is the reason why it cannot be read.
    async fn pull_state(
        &mut self,
        prepared: &Prepared,
    ) -> Result<Result<StateContents, String>, RunError> {
        let file = self.scratch.join("pulled");
        let pulled = self.read_state(prepared, &file).await;
        let contents = match pulled {
            Ok(()) => StateContents::read(&file).map_err(|error| {
                format!("the output of `state pull` is no state: {}", scratch::reason(&error))
            }),
            Err(stopped) if stopped.is_stop() => return Err(stopped),
            Err(error) => Err(chain(&error)),
        };
        unless_missing(fs::remove_file(file))?;
        Ok(contents)
    }

    /// The same as [`Self::find_unpushed`]. If a directory cannot be read, an apply is refused, and a plan warns.
    async fn found_unpushed(
        &self,
        workspace: &Workspace,
        program: &str,
    ) -> Result<Option<Found>, RunError> {
        self.check_readable()?;
        match self.find_unpushed(workspace, program).await {
            Ok(found) => Ok(found),
            Err(cause) => self.unreadable(cause).map(|()| None),
        }
    }

    /// Looks for such states: in the directory of the module, and if there is none, those that are kept.
    async fn find_unpushed(
        &self,
        workspace: &Workspace,
        program: &str,
    ) -> io::Result<Option<Found>> {
        let in_code = self.errored_in_code(workspace)?;
        let kept = self.kept_states()?;
        if !in_code.is_empty() {
            let unpushed = self.unpushed_in_code(in_code, &kept, workspace, program).await;
            return Ok(Some(Found { unpushed, in_code: true, copies: None }));
        }
        let ours = self.state_key();
        let states = kept
            .into_iter()
            .filter(|state| state.is_version_of(ours) || self.may_be_ours(state.source.as_deref()));
        // Several links and records may lead to one state.
        let mut files = BTreeSet::new();
        let states = states.filter(|state| files.insert(state.file.clone())).collect::<Vec<_>>();
        if states.is_empty() {
            return Ok(None);
        }
        let copies = states.iter().all(|state| self.may_be_pushed(state)).then(|| states.clone());
        Ok(Some(Found { unpushed: self.unpushed(states, program), in_code: false, copies }))
    }

    /// The states in the directory of the module. Those that are part of the source are named only if there are no others.
    async fn unpushed_in_code(
        &self,
        mut files: Vec<PathBuf>,
        kept: &[KeptState],
        workspace: &Workspace,
        program: &str,
    ) -> Unpushed {
        let mut part_of = Vec::new();
        for file in &files {
            part_of.push(self.part_of(file, workspace).await);
        }
        let mut origin = part_of.first().cloned().flatten();
        if part_of.iter().any(Option::is_none) {
            let mut part_of = part_of.iter();
            files.retain(|_| part_of.next().is_some_and(Option::is_none));
            origin = None;
        }
        let dir = workspace.kept.then(|| absolute(workspace.dir.clone()));
        let state_home = self.environment.state_home.as_deref();
        let (mut states, mut others) = (Vec::new(), Vec::new());
        for file in files {
            let real = fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
            let same = kept.iter().find(|kept| kept.is_of(&real)).cloned();
            // The apply may have had another name, or another workspace, which is part of the default name.
            let same = same.or_else(|| unsent::copy_of(state_home, self.scratch, &real));
            let copy = same.as_ref().and_then(|kept| kept.copy.clone());
            let push = self.push_of(same.and_then(|kept| kept.record), program);
            states.push((absolute(file), Push { dir: dir.clone(), ..push }));
            others.extend(copy);
        }
        Unpushed { states, others, origin: origin.map(Box::new), ..Unpushed::default() }
    }

    /// What a state in the directory of the module is part of, if every run gets it from there.
    async fn part_of(&self, file: &Path, workspace: &Workspace) -> Option<Origin> {
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let root = workspace.own.as_deref().map(real).unwrap_or_default();
        if let (Source::Packed(packed), Ok(below)) =
            (&self.job.source, real(file).strip_prefix(root))
            && workspace.packed_states.iter().any(|state| state == below)
        {
            return Some(Origin::Archive { file: packed.path.clone(), state: below.to_owned() });
        }
        if !is_tracked(file).await {
            return None;
        }
        Some(match &self.job.source {
            Source::Git(git) if git.is_bundle() => Origin::Bundle,
            _ => Origin::Commit,
        })
    }

    /// Identifies the state of this run in its backend. Known after init, if at all.
    pub(in crate::run) fn state_key(&self) -> Option<Sha256> {
        let workspace = self.job.place.workspace.as_deref().unwrap_or_default();
        let backend = self.report.backend.as_ref()?;
        self.state_file_key().or_else(|| backend.state_key(workspace))
    }

    /// The states that are kept for this layer, and after init those of the same state in the backend. Those that killed
    /// runs have left are copied first.
    fn kept_states(&self) -> io::Result<Vec<KeptState>> {
        let run = &self.job.run;
        let state_home = self.environment.state_home.as_deref();
        unsent::remove_leftovers(state_home, self.scratch, run);
        let layer = unsent::layer_id(run);
        unsent::adopt_left(state_home, self.scratch, run, &layer)?;
        let mut kept = unsent::states(state_home, run);
        let left = self.scratch.left_states(&layer)?.into_iter().map(unsent::read_left);
        let is_copied =
            |left: &KeptState| kept.iter().any(|state| state.others.contains(&left.file));
        let left = left.filter(|left| !is_copied(left)).collect::<Vec<_>>();
        kept.extend(left);
        for killed in &self.killed {
            let left = unsent::left_by(state_home, killed)?.into_iter();
            let others = left.filter(|state| !kept.iter().any(|kept| kept.is_of(&state.file)));
            let others = others.collect::<Vec<_>>();
            kept.extend(others);
        }
        if let Some(key) = self.state_key() {
            let versions = unsent::versions_of(state_home, self.scratch, key).into_iter();
            let others = versions.filter(|state| !kept.iter().any(|kept| kept.file == state.file));
            let others = others.collect::<Vec<_>>();
            kept.extend(others);
        }
        Ok(kept)
    }

    /// Whether the backend of this run may show that a state is pushed: it is a copy that can be compared, and of this
    /// module and workspace.
    fn may_be_pushed(&self, state: &KeptState) -> bool {
        let Some(record) = &state.record else { return false };
        state.copy.is_some()
            && (state.is_version_of(self.state_key())
                || record.path == self.recorded_path()
                    && record.workspace == self.job.place.workspace)
            && states::is_whole(&state.file)
            && StateContents::read(&state.file).is_ok_and(|state| state.is_comparable())
    }

    fn unpushed(&self, states: Vec<KeptState>, program: &str) -> Unpushed {
        // Another name does not help where the state is the same.
        let ours = self.state_key();
        let mut of_others = states.iter().filter(|state| !state.is_version_of(ours));
        let other_source = of_others.find_map(|state| self.other_source(state.source.as_ref()));
        let (mut files, mut others) = (Vec::new(), Vec::new());
        for state in states {
            files.push((state.file, self.push_of(state.record, program)));
            others.extend(state.others);
        }
        Unpushed { states: files, others, other_source, ..Unpushed::default() }
    }

    /// Refuses an apply while the directory of such a state is missing, because the state may not be pushed. A plan
    /// warns.
    fn check_missing(&self) -> Result<(), RunError> {
        let state_home = self.environment.state_home.as_deref();
        let of_layer = self.scratch.missing_code(&unsent::layer_id(&self.job.run));
        let of_state = self.killed.iter().filter_map(|killed| killed.missing_code().transpose());
        let of_state = of_state.collect::<io::Result<Vec<_>>>();
        let (killed, of_state) = match of_layer.and_then(|of_layer| Ok((of_layer, of_state?))) {
            Ok(killed) => killed,
            Err(cause) => return self.unreadable(cause),
        };
        let killed = killed.iter().map(MissingState::of_code);
        let missing = unsent::missing_states(state_home, &self.job.run).into_iter();
        let is_ours = |state: &MissingState| self.may_be_ours(state.source.as_deref());
        let missing = missing.chain(killed).filter(is_ours);
        let Some(mut state) = missing.chain(of_state.iter().map(MissingState::of_code)).next()
        else {
            return Ok(());
        };
        state.source = self.other_source(state.source.as_ref());
        if self.job.action.is_apply() {
            return Err(RunError::MissingState(state));
        }
        tracing::warn!("{state}: an apply is refused: {}", state.hint());
        Ok(())
    }

    /// Refuses an apply if states of earlier runs cannot be found. A plan warns. The disk of a pod has none.
    fn check_readable(&self) -> Result<(), RunError> {
        let state_home = self.environment.state_home.as_deref().filter(|_| !self.loses_disk());
        unsent::unreadable(state_home, &self.job.run).map_or(Ok(()), |cause| self.unreadable(cause))
    }

    /// Refuses an apply because a directory cannot be read. A plan warns.
    fn unreadable(&self, cause: io::Error) -> Result<(), RunError> {
        let error = RunError::UnreadableDirectory(cause);
        if self.job.action.is_apply() {
            return Err(error);
        }
        tracing::warn!("{}", chain(&error));
        Ok(())
    }

    /// Warns of such states of layers that have the same name, but other code. They refuse nothing.
    pub(in crate::run) fn warn_of_other_code(&self) {
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

    /// The source of a state, if it is not that of this run. It may have the same code.
    fn other_source(&self, source: Option<&String>) -> Option<String> {
        let ours = self.source_id.as_ref().map(SourceId::root);
        source.filter(|source| ours.is_some_and(|ours| ours != *source)).cloned()
    }

    /// Whether the code of a state may be that of this run.
    fn may_be_ours(&self, source: Option<&str>) -> bool {
        may_be_same(source, self.source_id.as_ref().map(SourceId::root))
    }

    /// The record of how a state of this run gets into its backend.
    pub(in crate::run) fn push_record(&self, program: String, workspace: &Workspace) -> PushRecord {
        let dir = workspace.kept.then_some(&*workspace.dir);
        PushRecord::new(program, self.job.place.workspace.clone(), &self.recorded_path())
            .of_code(self.source_id.as_ref(), dir)
            .of_state(self.state_key())
            .with_variables(self.backend_variables())
            .of_file(self.job.state_files.as_ref().and_then(|files| files.output.as_deref()))
            .in_datastore(self.datastore_name())
    }

    /// The names of the variables that say which backend the tool uses.
    fn backend_variables(&self) -> Vec<String> {
        let environment = self.environment;
        let arguments = ["TF_CLI_ARGS", "TF_CLI_ARGS_init"].into_iter();
        let arguments = arguments.filter(|name| environment.inputs.contains_key(OsStr::new(name)));
        let data_dir = environment.tf_data_dir.as_ref().map(|_| "TF_DATA_DIR");
        let of_backend = self.report.backend.iter().flat_map(Backend::variables);
        let of_backend = of_backend.filter(|name| environment.backend.contains_key(name));
        // Several parts of the identity may be read from one variable.
        let of_backend = of_backend.collect::<BTreeSet<_>>();
        arguments.chain(data_dir).chain(of_backend).map(str::to_owned).collect()
    }

    /// The path of the module inside its repository, as records have it.
    pub(in crate::run) fn recorded_path(&self) -> PathBuf {
        let place = &self.job.place;
        let placed = || place.path.as_ref().map_or_else(|| self.job.path.clone(), PathBuf::from);
        let path = self.path_in_snapshot.clone().unwrap_or_else(placed);
        // JSON has only UTF-8.
        path.to_string_lossy().into_owned().into()
    }

    /// How a state of an earlier apply gets into its backend. Without a record it may be of any workspace.
    fn push_of(&self, record: Option<PushRecord>, program: &str) -> Push {
        match record {
            Some(record) => Push::recorded(record),
            None => Push {
                program: Some(program.to_owned()),
                path: self.job.path.clone(),
                ..Push::default()
            },
        }
    }

    /// The states in the directory of the module.
    fn errored_in_code(&self, workspace: &Workspace) -> io::Result<Vec<PathBuf>> {
        let Some(root) = &workspace.own else { return states::errored_in_place(&workspace.dir) };
        let found = states::errored(&workspace.dir)?;
        Ok(match &self.job.source {
            // The copy is removed: the files are named where they came from.
            Source::Directory(from) if !workspace.kept => {
                let below = found.iter().map(|file| file.strip_prefix(root).unwrap_or(file));
                let from = workspace.copied_from.as_ref().unwrap_or(from);
                below.map(|file| from.join(file)).collect()
            }
            _ => found,
        })
    }
}

/// Removes the copy of a state that the backend has.
fn remove_pushed(state: &KeptState) -> Result<(), RunError> {
    let Some(copy) = &state.copy else { return Ok(()) };
    unsent::remove_copy(copy)?;
    let others = std::iter::once(&state.file).chain(&state.others).filter(|file| *file != copy);
    let others = others.map(|file| format!("; remove {} as well", file.display()));
    tracing::info!(
        "the backend has the state of an earlier apply by now, so its copy {} is removed{}",
        copy.display(),
        others.collect::<String>()
    );
    Ok(())
}
