//! The state in the datastore, for a module without a backend: what is checked before init, the file and the variables
//! that make the tool use it, and what is checked after init.

pub(crate) mod error;
mod local;
pub(in crate::run) mod used;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use datastore_api::state::{DEFAULT_WORKSPACE, StateHead};
use datastore_api::{Client, ClientError, chain};
use fs_err as fs;
use reqwest::StatusCode;
use serde_json::Value;

use crate::basis::plan_file;
use crate::order::job::DatastoreState;
use crate::process::text::one_line;
use crate::run::Run;
use crate::run::artifacts::LastApply;
use crate::run::error::RunError;
use crate::run::lease::leads_here;
use crate::run::prepare::Prepared;
use crate::run::prepare::datastore_state::error::{Local, MissingIn, StateError};
use crate::run::prepare::datastore_state::local::{has_own_backend, remove_states};
use crate::run::prepare::datastore_state::used::UsedState;
use crate::run::push::Unpushed;
use crate::run::unsent;
use crate::source::checkout::Workspace;
use crate::source::references::{self, RemoteState};
use crate::tool::cli_args::other_backend;
use crate::tool::declared_backend::declared_backend;
use crate::tool::state_file;

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
        let used = UsedState::create(&prepared.workspace, follows_init).map_err(|error| {
            if error.kind() == std::io::ErrorKind::AlreadyExists {
                let file = Path::new(state_file::NAME);
                return RunError::from(StateError::OwnFile(file.to_owned()));
            }
            error.into()
        })?;
        prepared.state = Some(used);
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
        self.check_remote_states(&prepared.workspace, &data_dir)?;
        match &used.lock_file {
            Some(lock_file) => Ok(lock_file.follow(dir)?),
            None => Ok(()),
        }
    }

    /// Refuses a configuration with which the tool would send the token elsewhere.
    fn check_remote_states(&self, workspace: &Workspace, data_dir: &Path) -> Result<(), RunError> {
        let Some(datastore) = &self.job.datastore else { return Ok(()) };
        if datastore.settings().token.secret()?.is_none() {
            return Ok(());
        }
        let is_own = |address: &str| leads_here(address, datastore);
        match references::remote_state(&workspace.dir, data_dir, is_own)? {
            Some(RemoteState::Foreign(file)) => {
                return Err(StateError::RemoteState(of_source(workspace, &file)).into());
            }
            Some(RemoteState::Unknown(file)) => tracing::warn!(
                "{} may read another state over HTTP: without a `password` for it in its `config`, the tool sends the token of \
                 this run to its `address`",
                of_source(workspace, &file).display()
            ),
            None => {}
        }
        Ok(())
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
        &mut self,
        state: &DatastoreState,
        workspace: &Workspace,
    ) -> Result<(), RunError> {
        let Some(datastore) = &self.job.datastore else { return Ok(()) };
        let head = self.head(datastore, state).await?;
        check_place(state, &head)?;
        self.known_lineage = head.version.as_ref().map(|version| version.lineage.clone());
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
                // Under the lease of this run the lock is that of a dead one.
                if let Some(lock) = head.lock.as_ref().filter(|_| self.lease.held().is_none()) {
                    let who = lock.get("Who").and_then(Value::as_str).unwrap_or("another run");
                    return Err(StateError::Held { missing, who: one_line(who) }.into());
                }
                self.check_earlier_applies(&missing, MissingIn::Datastore).await?;
            }
        }
        remove_states(workspace)
    }

    /// Refuses to plan without a state although the layer was applied and not destroyed since: everything would be created
    /// again. `missing` says which state there is not.
    pub(in crate::run) async fn check_earlier_applies(
        &self,
        missing: &str,
        place: MissingIn,
    ) -> Result<(), RunError> {
        // A destroy and a migration examine themselves what it means that there is no state.
        let makes_plan = self.job.action.makes_plan() && !self.job.action.destroys();
        if makes_plan {
            let kept = unsent::states(self.environment.state_home.as_deref(), &self.job.run);
            if !kept.is_empty() {
                return Err(RunError::Unpushed(Unpushed::kept(kept)));
            }
        }
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
                Err(StateError::Lost { missing, run, place }.into())
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

    /// Refuses to plan with a new local state if the datastore has a state of this layer: a run without `--state datastore`
    /// would create everything again.
    pub(in crate::run) async fn check_forgotten_state(
        &self,
        prepared: &Prepared,
    ) -> Result<(), RunError> {
        let job = self.job;
        let Some(datastore) = &job.datastore else { return Ok(()) };
        let is_local = self.report.backend.as_ref().is_some_and(|backend| backend.kind == "local");
        if !is_local
            || !job.action.makes_plan()
            || job.burrito
            || job.state.is_some()
            || job.state_files.is_some()
        {
            return Ok(());
        }
        let file = self.local_state_file(prepared)?;
        if file.is_some_and(|file| fs::metadata(file).is_ok_and(|file| file.len() > 0)) {
            return Ok(());
        }
        let key = self.own_state_key();
        let head = match self.signals.or(datastore.states(&key, None, 1, None)).await {
            Ok(Ok(states)) => states.head,
            // It cannot keep states, or the caller may not read them.
            Ok(Err(
                error @ (ClientError::Unsupported { .. }
                | ClientError::Refused { status: StatusCode::FORBIDDEN, .. }),
            )) => {
                tracing::debug!("whether the datastore has a state of {key}: {}", chain(&error));
                return Ok(());
            }
            Ok(Err(error)) => return Err(error.into()),
            Err(stop) => return Err(RunError::Stopped(stop)),
        };
        let Some(version) = head.version else { return Ok(()) };
        if job.new_state {
            tracing::warn!(
                "the datastore has a state of {key}, which is not used because of --new-state"
            );
            return Ok(());
        }
        Err(StateError::Forgotten { key, serial: version.serial }.into())
    }

    /// Refuses a plan of another state than that of the datastore: something in between has answered for it.
    pub(in crate::run) fn check_planned_lineage(&self, plan: &Path) -> Result<(), RunError> {
        match plan_file::version_in_plan(plan) {
            Some(read) => self.check_lineage(&read.lineage),
            // Tofu may have encrypted it.
            None => Ok(()),
        }
    }

    /// Reads the state by the tool before it plans and applies in one.
    pub(in crate::run) async fn check_read_lineage(
        &mut self,
        prepared: &Prepared,
    ) -> Result<(), RunError> {
        if self.known_lineage.is_none() || self.report.plan.is_some() {
            return Ok(());
        }
        let state = self.report_of_state(prepared, false).await?;
        self.check_lineage(&state.lineage.unwrap_or_default())
    }

    fn check_lineage(&self, read: &str) -> Result<(), RunError> {
        match (&self.known_lineage, &self.job.state) {
            (Some(known), Some(state)) if known != read => {
                let (key, known, read) = (state.key.clone(), known.clone(), read.to_owned());
                Err(StateError::OtherRead { key, known, read }.into())
            }
            _ => Ok(()),
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
