//! The lease of a layer: while a run holds it, only the tool of this run may lock and write the states of the layer that the
//! datastore keeps.

mod variables;

use std::ffi::OsString;

use datastore_api::client::StateOrigin;
use datastore_api::state::{DEFAULT_WORKSPACE, LayerTool, StateKey};
use datastore_api::{ClaimId, Name};
use secrecy::SecretString;

pub(crate) use variables::state_variables;

use crate::run::Run;

/// A lease that this run holds.
#[derive(Debug)]
pub(crate) struct HeldLease {
    namespace: Name,
    layer: Name,
    id: ClaimId,
    number: u64,
    /// The workspace whose state the credential is for.
    workspace: Name,
    credential: Option<SecretString>,
}

impl HeldLease {
    /// Its fencing number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The password for this state, if the caller may use it: it outlives the caller's token.
    pub(crate) fn credential(&self, key: &StateKey) -> Option<&SecretString> {
        let StateKey { namespace, layer, workspace } = key;
        let is_ours =
            (namespace, layer, workspace) == (&self.namespace, &self.layer, &self.workspace);
        self.credential.as_ref().filter(|_| is_ours)
    }
}

impl Run<'_> {
    /// The state of this run's layer and workspace in the datastore.
    pub(super) fn own_state_key(&self) -> StateKey {
        let (namespace, layer) = (self.job.run.namespace.clone(), self.job.run.layer.clone());
        let workspace = self.job.place.workspace.as_deref().unwrap_or(DEFAULT_WORKSPACE);
        let workspace = workspace.parse().unwrap_or_else(|_| default_workspace());
        StateKey { namespace, layer, workspace }
    }

    /// The variables for a state in the datastore: with the number and the credential of the lease, if this run holds one. A
    /// plan holds none: `token` is then the password. `place` and `rebind` of `origin` are kept.
    pub(super) fn variables_of_state(
        &self,
        key: &StateKey,
        mut origin: StateOrigin,
        token: Option<&SecretString>,
    ) -> Vec<(String, OsString)> {
        let Some(datastore) = &self.job.datastore else { return Vec::new() };
        let lease = self.lease.as_ref();
        origin.fence = lease.map(HeldLease::number);
        origin.run = Some(self.run_name());
        origin.tool = self.layer_tool();
        let password = lease.and_then(|lease| lease.credential(key)).or(token);
        state_variables(datastore, key, &origin, password)
    }
}

impl Run<'_> {
    /// This run and its attempt, as the datastore shows them.
    fn run_name(&self) -> String {
        let run = &self.job.run.run;
        self.attempt().map_or_else(|| run.to_string(), |attempt| format!("{run}/{attempt}"))
    }

    /// The tool of this run, once it is installed.
    fn layer_tool(&self) -> Option<LayerTool> {
        let tool = self.report.tool.as_ref()?;
        Some(LayerTool { name: tool.name.clone(), version: tool.version.clone() })
    }
}

fn default_workspace() -> Name {
    DEFAULT_WORKSPACE.parse().expect("a valid name")
}
