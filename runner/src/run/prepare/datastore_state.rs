//! The state in the datastore, for a module without a backend: what is checked before init, the file and the variables
//! that make the tool use it, and what is checked after init.

pub(crate) mod error;
mod local;
pub(in crate::run) mod used;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use datastore_api::Client;
use datastore_api::state::{DEFAULT_WORKSPACE, StateHead};
use fs_err as fs;

use crate::order::job::{Action, Apply, DatastoreState};
use crate::run::Run;
use crate::run::artifacts::LastApply;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::prepare::datastore_state::error::{Local, StateError};
use crate::run::prepare::datastore_state::local::{has_own_backend, remove_states};
use crate::run::prepare::datastore_state::used::UsedState;
use crate::source::checkout::Workspace;
use crate::source::references;
use crate::tool::cli_args::other_backend;
use crate::tool::declared_backend::declared_backend;

/// Variables of the backend that may be the user's, for another backend.
const CLEARED: [&str; 4] = [
    "TF_HTTP_USERNAME",
    "TF_HTTP_PASSWORD",
    "TF_HTTP_CLIENT_CERTIFICATE_PEM",
    "TF_HTTP_CLIENT_PRIVATE_KEY_PEM",
];

impl Run<'_> {
    /// Refuses a module that has a backend. It is known as soon as the code is there.
    pub(super) fn check_no_backend(&self, workspace: &Workspace) -> Result<(), RunError> {
        if self.job.state.is_none() {
            return Ok(());
        }
        if let Some((option, variable)) = other_backend(&self.environment.inputs) {
            return Err(StateError::OtherBackend { option, variable }.into());
        }
        match declared_backend(&workspace.dir)? {
            Some(declared) => Err(StateError::Declared(declared).into()),
            None => Ok(()),
        }
    }

    /// Makes the tool use the state in the datastore, if the job keeps it there.
    pub(super) async fn use_datastore_state(
        &mut self,
        prepared: &mut Prepared,
    ) -> Result<(), RunError> {
        let Some(state) = &self.job.state else { return Ok(()) };
        Box::pin(self.check_datastore_state(state, &prepared.workspace)).await?;
        let follows_init = !self.job.action.migrates();
        prepared.state = Some(UsedState::create(&prepared.workspace, follows_init)?);
        self.set_state_variables(prepared)?;
        // An apply has taken the lease of the layer.
        Box::pin(self.use_state(prepared, state.key.clone(), state.origin())).await
    }

    /// Sets the variables by which the tool reaches the state in the datastore: again when the token may have been renewed.
    pub(in crate::run) fn set_state_variables(
        &self,
        prepared: &mut Prepared,
    ) -> Result<(), RunError> {
        let (Some(state), Some(datastore)) = (&self.job.state, &self.job.datastore) else {
            return Ok(());
        };
        let token = datastore.settings().token.secret()?;
        let variables = self.variables_of_state(&state.key, state.origin(), token.as_ref());
        // For the tool an empty one is not set.
        let mut own = CLEARED.map(|name| (name, OsString::new())).to_vec();
        own.push(("TF_HTTP_CLIENT_CA_CERTIFICATE_PEM", trusted(datastore)?.into()));
        // The backend has no workspaces: the name is a part of the address.
        own.push(("TF_WORKSPACE", DEFAULT_WORKSPACE.into()));
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        let all = own.chain(variables).collect::<Vec<_>>();
        prepared.env.retain(|(name, _)| all.iter().all(|(own, _)| own != name));
        prepared.env.extend(all);
        Ok(())
    }

    /// Checks after init that the tool uses the state in the datastore, and nothing else that the runner does not know of.
    pub(super) fn check_used_state(&self, prepared: &Prepared) -> Result<(), RunError> {
        self.check_own_backend(prepared)?;
        let (Some(state), Some(used)) = (&self.job.state, &prepared.state) else { return Ok(()) };
        let dir = &prepared.workspace.dir;
        let data_dir = dir.join(self.environment.data_dir());
        if state.key.workspace.as_ref() != DEFAULT_WORKSPACE
            && let Some(file) = references::names_workspace(dir, &data_dir)?
        {
            let name = state.key.workspace.clone();
            let file = of_source(&prepared.workspace, &file);
            return Err(StateError::Workspace { workspace: name, file }.into());
        }
        match &used.lock_file {
            Some(lock_file) => Ok(lock_file.follow(dir)?),
            None => Ok(()),
        }
    }

    /// Checks after init that the tool uses the state in the datastore, if the job keeps it there.
    pub(super) fn check_own_backend(&self, prepared: &Prepared) -> Result<(), RunError> {
        let data_dir = prepared.workspace.dir.join(self.environment.data_dir());
        if prepared.uses_datastore_state() && !has_own_backend(&data_dir)? {
            return Err(StateError::NotUsed.into());
        }
        Ok(())
    }

    /// Compares what the datastore has with what the source has, and with what was applied before.
    async fn check_datastore_state(
        &self,
        state: &DatastoreState,
        workspace: &Workspace,
    ) -> Result<(), RunError> {
        let Some(datastore) = &self.job.datastore else { return Ok(()) };
        let head = self.head(datastore, state).await?;
        check_place(state, &head)?;
        let exists = head.version.is_some();
        match self.local_state(state, workspace)? {
            Some(local) if exists => {
                tracing::warn!("{local} is not used: the datastore has a state of {}", state.key);
            }
            Some(Local::File(file)) if state.migrates => {
                self.migrate(datastore, state, &file, workspace).await?;
            }
            Some(local) => return Err(StateError::Local { local, key: state.key.clone() }.into()),
            None if exists => {}
            None => {
                let deleted = head.deleted.map(|at| format!(" (it was deleted at {at})"));
                let missing = format!(
                    "the datastore has no state of {}{}",
                    state.key,
                    deleted.unwrap_or_default()
                );
                self.check_earlier_applies(&missing).await?;
            }
        }
        remove_states(workspace)
    }

    /// Refuses to plan without a state although the layer was applied and not destroyed since: everything would be created
    /// again. `missing` says which state there is not.
    pub(in crate::run) async fn check_earlier_applies(
        &self,
        missing: &str,
    ) -> Result<(), RunError> {
        let makes_plan = match &self.job.action {
            Action::Plan { .. } | Action::Apply(Apply::Unplanned(_)) => true,
            // The others examine themselves what it means that there is no state.
            Action::Apply(_) | Action::Destroy(_) | Action::Migrate(_) => false,
        };
        let Some(artifacts) = self.artifacts.as_ref().filter(|_| makes_plan) else { return Ok(()) };
        if self.job.new_state {
            tracing::warn!("{missing}: planning without one because of --new-state");
            return Ok(());
        }
        let workspace = self.job.place.workspace.as_deref();
        let last = self.signals.or(artifacts.last_apply(workspace)).await;
        match last.map_err(RunError::Stopped)? {
            Ok(LastApply::None) => Ok(()),
            Ok(LastApply::Applied(run)) => {
                let missing = missing.to_owned();
                Err(StateError::Lost { missing, run }.into())
            }
            Ok(LastApply::Unknown(reason)) => {
                tracing::warn!(
                    "{missing}, and it is not known whether this layer was applied before: {reason}"
                );
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn head(
        &self,
        datastore: &Client,
        state: &DatastoreState,
    ) -> Result<StateHead, RunError> {
        let states = datastore.states(&state.key, None, 1, None);
        match self.signals.or(states).await.map_err(RunError::Stopped)? {
            Ok(states) => Ok(states.head),
            Err(error) if error.lacks_route() => Err(StateError::Unsupported.into()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A file of the source, by its path there if the tool works in a copy, else below the runner's directory.
fn of_source(workspace: &Workspace, file: &Path) -> PathBuf {
    let below = workspace.own.as_deref().and_then(|own| file.strip_prefix(own).ok());
    let Some(below) = below else { return file.to_owned() };
    workspace.copied_from.as_ref().map_or_else(|| below.to_owned(), |source| source.join(below))
}

/// Refuses the state of other code.
fn check_place(state: &DatastoreState, head: &StateHead) -> Result<(), StateError> {
    let (Some(theirs), Some(ours)) = (&head.place, &state.place) else { return Ok(()) };
    if theirs == ours {
        return Ok(());
    }
    let (key, theirs, ours) = (state.key.clone(), theirs.clone(), ours.clone());
    if state.rebinds {
        tracing::info!(
            "the state of {key} was written for {theirs}: an apply records {ours} (--rebind)"
        );
        return Ok(());
    }
    Err(StateError::OtherPlace { key, theirs, ours })
}

/// The certificates that the tool trusts for the datastore instead of the system's; empty if none are named.
fn trusted(datastore: &Client) -> Result<String, RunError> {
    let mut all = String::new();
    for file in &datastore.settings().ca_files {
        all.push_str(&fs::read_to_string(file)?);
        all.push('\n');
    }
    Ok(all)
}
