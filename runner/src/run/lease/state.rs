//! The tool works under the lease where the state is kept in the datastore: the number of the lease is in the addresses of
//! the backend, and its credential is the password.

use std::ffi::OsString;

use datastore_api::Client;
use datastore_api::client::{LeaseAnswer, StateOrigin};
use datastore_api::state::{GrantedLease, LayerTool, LeaseRequest, StateKey};
use secrecy::SecretString;

use crate::basis::backend::{self, Backend};
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::lease::address::Leads;
use crate::run::lease::{HeldLease, LeaseError, RunLease, release, state_variables};
use crate::run::prepare::{Prepared, init};

/// Settings that no variable replaces if the backend block has them, so that the tool would not work under the lease.
const OWN_SETTINGS: [&str; 2] = ["password", "username"];

impl Run<'_> {
    /// Has the tool work under the lease if the backend is a state of the datastore. Call it after init.
    pub(in crate::run) async fn use_backend(
        &mut self,
        prepared: &mut Prepared,
    ) -> Result<(), RunError> {
        let Some(datastore) = self.job.datastore.clone().filter(|_| !self.job.pod) else {
            return Ok(());
        };
        let Some(address) = self.backend_address(prepared).await? else { return Ok(()) };
        match Leads::of(&address, &datastore.settings().url) {
            Leads::Here(key) => {
                Box::pin(self.use_state(prepared, key, StateOrigin::default())).await
            }
            Leads::MaybeHere => {
                let ours = &datastore.settings().url;
                let line = format!(
                    "the backend's address {address} may be a state in the datastore {ours}: if it is, write it with that URL, so \
                     that the tool works under the lease of this run"
                );
                tracing::warn!("{line}");
                Ok(self.log.line(&line)?)
            }
            Leads::Elsewhere => Ok(()),
        }
    }

    /// The address of a backend `http`, without its query.
    async fn backend_address(
        &mut self,
        prepared: &mut Prepared,
    ) -> Result<Option<String>, RunError> {
        // Terragrunt runs init by itself, when it plans or applies.
        if self.report.backend.is_none() && prepared.terragrunt.is_some() {
            if let Some(planned) = self.planned_backend(prepared) {
                return Ok(planned.address().map(str::to_owned));
            }
            if matches!(self.lease, RunLease::None) {
                return Ok(None);
            }
            match self.step_with_retries(prepared, "init", || Ok(()), init).await {
                Ok(()) => self.describe(prepared)?,
                // Mock outputs may be allowed for an apply only.
                Err(RunError::Tool { .. }) => tracing::warn!(
                    "terragrunt init has failed, so it is not known before the apply whether the state is in the datastore"
                ),
                Err(error) => return Err(error),
            }
        }
        Ok(self.report.backend.as_ref().and_then(Backend::address).map(str::to_owned))
    }

    /// Releases the lease that a killed runner of this machine has left, if the backend is a state of the datastore: the tool of a plan
    /// could not lock it. Call it after init.
    pub(in crate::run) async fn release_left_backend_lease(&self) {
        let address = self.report.backend.as_ref().and_then(Backend::address);
        let (Some(address), Some(datastore)) = (address, &self.job.datastore) else { return };
        if let Leads::Here(key) = Leads::of(address, &datastore.settings().url) {
            self.release_left_lease(&key).await;
        }
    }

    /// Has the tool work with this state of the datastore under the lease, from now on. `origin` says where the code is.
    ///
    /// A lock that a dead run has left is an error, unless it may be removed.
    pub(in crate::run) async fn use_state(
        &mut self,
        prepared: &mut Prepared,
        key: StateKey,
        origin: StateOrigin,
    ) -> Result<(), RunError> {
        let Some(datastore) = self.job.datastore.clone() else { return Ok(()) };
        match &self.lease {
            RunLease::None => return Ok(()),
            RunLease::Unsupported => return Err(LeaseError::Unsupported(key).into()),
            RunLease::Refused(_) => {
                let RunLease::Refused(cause) = std::mem::take(&mut self.lease) else {
                    return Ok(());
                };
                return Err(LeaseError::Refused { key, cause }.into());
            }
            RunLease::Held(_) => {}
        }
        Box::pin(self.lease_state(&datastore, &key)).await?;
        self.check_own_settings(prepared, &key)?;
        self.check_stale_lock(&datastore, &key).await?;
        let variables = self.variables_of_state(&key, origin, None);
        prepared.env.retain(|(name, _)| variables.iter().all(|(ours, _)| ours != name));
        prepared.env.extend(variables);
        self.state_here = Some(key);
        Ok(())
    }

    /// Takes the lease of the state's layer if this run holds that of another one, and the credential for this state.
    async fn lease_state(&mut self, datastore: &Client, key: &StateKey) -> Result<(), RunError> {
        let Some(held) = self.lease.held() else { return Ok(()) };
        if held.is_of(key) && held.workspace == key.workspace {
            return Ok(());
        }
        if held.is_of(key) {
            let granted = self.granted_for(datastore, held, key);
            let granted = self.signals.or(granted).await.map_err(RunError::Stopped)??;
            if let RunLease::Held(held) = std::mem::take(&mut self.lease) {
                self.lease = self.hold(datastore, key, held.id, granted, held.file)?;
            }
            return Ok(());
        }
        // It has a lease by now: two runs that wait for each other's would wait for ever.
        let taken = match self.request_lease(datastore, key, false).await? {
            taken @ RunLease::Held(_) => taken,
            RunLease::Refused(cause) => {
                return Err(LeaseError::Refused { key: key.clone(), cause }.into());
            }
            _ => return Err(LeaseError::Unsupported(key.clone()).into()),
        };
        let line = format!(
            "the state is that of the layer {}/{}: this run takes its lease",
            key.namespace, key.layer
        );
        tracing::info!("{line}");
        self.log.line(&line)?;
        if let RunLease::Held(other) = std::mem::replace(&mut self.lease, taken) {
            release(datastore, *other).await;
        }
        Ok(())
    }

    /// The lease that this run holds, with a credential for another workspace.
    async fn granted_for(
        &self,
        datastore: &Client,
        HeldLease { namespace, layer, id, .. }: &HeldLease,
        key: &StateKey,
    ) -> Result<GrantedLease, LeaseError> {
        let request = LeaseRequest {
            holder: self.environment.redaction.text(&self.environment.holder),
            host: self.environment.host.clone(),
            run: Some(self.run_name()),
        };
        let workspace = Some(&key.workspace);
        match datastore.take_lease(namespace, layer, workspace, id, &request).await? {
            LeaseAnswer::Granted(granted) => Ok(*granted),
            LeaseAnswer::Held(holder) | LeaseAnswer::Lost(holder) => {
                Err(LeaseError::Held { layer: format!("{namespace}/{layer}"), holder })
            }
            LeaseAnswer::Unsupported => Err(LeaseError::Unsupported(key.clone())),
        }
    }

    /// Refuses a backend block that has a password: the tool would use it instead of the credential.
    fn check_own_settings(&self, prepared: &Prepared, key: &StateKey) -> Result<(), RunError> {
        let has_credential = self.lease.held().is_some_and(|lease| lease.credential(key).is_some());
        if !has_credential {
            return Ok(());
        }
        let data_dir = self.environment.tf_data_dir.as_deref();
        let is_terragrunt = prepared.terragrunt.is_some();
        let data_dirs = backend::data_dirs(&prepared.workspace.dir, data_dir, is_terragrunt);
        let set = OWN_SETTINGS.into_iter().find(|name| Backend::sets(&data_dirs, name));
        match set {
            Some(setting) => Err(LeaseError::OwnSetting { key: key.clone(), setting }.into()),
            None => Ok(()),
        }
    }

    /// The variables for a state in the datastore: with the number and the credential of the lease, if this run holds one. A
    /// plan holds none: `token` is then the password. `place` and `rebind` of `origin` are kept.
    pub(in crate::run) fn variables_of_state(
        &self,
        key: &StateKey,
        mut origin: StateOrigin,
        token: Option<&SecretString>,
    ) -> Vec<(String, OsString)> {
        let Some(datastore) = &self.job.datastore else { return Vec::new() };
        let lease = self.lease.held().filter(|lease| lease.is_of(key));
        origin.fence = lease.map(HeldLease::number);
        origin.run = Some(self.run_name());
        origin.tool = self.layer_tool();
        let password = lease.and_then(|lease| lease.credential(key)).or(token);
        state_variables(datastore, key, &origin, password)
    }

    /// This run and its attempt, as the datastore shows them.
    pub(in crate::run) fn run_name(&self) -> String {
        let run = &self.job.run.run;
        self.attempt().map_or_else(|| run.to_string(), |attempt| format!("{run}/{attempt}"))
    }

    /// The tool of this run, once it is installed.
    fn layer_tool(&self) -> Option<LayerTool> {
        let tool = self.report.tool.as_ref()?;
        Some(LayerTool { name: tool.name.clone(), version: tool.version.clone() })
    }
}
