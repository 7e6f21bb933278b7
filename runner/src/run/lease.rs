//! The lease of a layer: while a run holds it, only the tool of this run may lock and write the states of the layer that the
//! datastore keeps.
//!
//! A run takes it before init, renews it in the background ([`renewal`]) and releases it at its end. Where the state is kept
//! in the datastore, the tool works under the lease ([`state`]). A datastore that does not answer a renewal is no loss: the run
//! goes on.

mod address;
pub(super) mod error;
pub(super) mod held;
mod own_file;
mod rejection;
mod renewal;
mod stale_lock;
mod state;
mod variables;

use std::time::{Duration, Instant};

use datastore_api::client::LeaseAnswer;
use datastore_api::state::{DEFAULT_WORKSPACE, GrantedLease, LeaseRequest, StateKey};
use datastore_api::{ClaimId, Client, ClientError, Name, chain};
use jiff::Timestamp;
use reqwest::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};

pub(crate) use error::{LeaseError, StaleLock};
pub(crate) use variables::state_variables;

use crate::process::redact::values;
use crate::run::Run;
use crate::run::artifacts::random_id;
use crate::run::error::RunError;
use crate::run::lease::address::Leads;
pub(crate) use crate::run::lease::held::HeldLease;
use crate::run::lease::held::RunLease;
use crate::run::lease::own_file::OwnFile;
use crate::run::lease::renewal::{Renewal, Renewed};

/// How long the release of a lease may take.
const RELEASE: Duration = Duration::from_secs(5);
/// How long a run that takes no lease waits for the tool of a killed one.
const ORPHAN: Duration = Duration::from_secs(5);
/// Between two tries to lock the file of the lease.
const PAUSE: Duration = Duration::from_millis(100);

impl Run<'_> {
    /// Takes the lease of the layer, before init. A pod of Burrito's takes none: its controllers run one at a time.
    pub(super) async fn take_lease(&mut self) -> Result<(), RunError> {
        let Some(datastore) = self.job.datastore.clone().filter(|_| !self.job.pod) else {
            return Ok(());
        };
        let key = self.own_state_key();
        self.lease = Box::pin(self.request_lease(&datastore, &key, true)).await?;
        let line = match &self.lease {
            RunLease::None => return Ok(()),
            RunLease::Held(lease) => {
                format!("this run holds the lease {} of the layer {}", lease.number, self.layer_name())
            }
            RunLease::Unsupported => {
                "the datastore is older than this runner, and has no leases: another run of this layer is not excluded"
                    .to_owned()
            }
            RunLease::Refused(error) => format!(
                "the lease of the layer is not taken, so another run is not excluded: {}",
                chain(&**error)
            ),
        };
        if self.lease.held().is_some() {
            tracing::info!("{line}");
        } else {
            tracing::warn!("{line}");
        }
        Ok(self.log.line(&line)?)
    }

    /// Releases the lease of a runner of this machine that was killed: the tool of a plan could not lock the state.
    pub(super) async fn release_left_lease(&self, key: &StateKey) {
        let Some(datastore) = &self.job.datastore else { return };
        let StateKey { namespace, layer, .. } = key;
        let url = &datastore.settings().url;
        let file = self.environment.own_state_home();
        let file = file.map(|home| OwnFile::lock(home, url, (namespace, layer)));
        // A runner that lives has it, or there was none.
        let Some(Ok(Some(file))) = file else { return };
        // The tool of a killed runner gets a signal to stop, and ends soon.
        let ended = async {
            while file.has_orphan() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        drop(self.signals.or(tokio::time::timeout(ORPHAN, ended)).await);
        match self.signals.or(release_left(datastore, (namespace, layer), &file)).await {
            Ok(Ok(true)) => file.remove(),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                tracing::warn!("the lease of a killed runner is not released: {}", chain(&error));
            }
            Err(_) => {}
        }
    }

    /// Finds out after a failure whether the lease is lost: the tool may have failed because of that before the renewal knew.
    pub(crate) async fn check_lease(&self) {
        let (Some(lease), Some(_)) = (self.lease.held(), &self.state_here) else { return };
        if lease.lost().is_none() {
            let check = lease.renewal.check();
            drop(tokio::time::timeout(RELEASE, check).await);
        }
    }

    /// The state of this run's layer and workspace in the datastore.
    pub(super) fn own_state_key(&self) -> StateKey {
        let (namespace, layer) = (self.job.run.namespace.clone(), self.job.run.layer.clone());
        let workspace = self.job.place.workspace.as_deref().unwrap_or(DEFAULT_WORKSPACE);
        let workspace = workspace.parse().unwrap_or_else(|_| default_workspace());
        StateKey { namespace, layer, workspace }
    }

    fn layer_name(&self) -> String {
        format!("{}/{}", self.job.run.namespace, self.job.run.layer)
    }

    /// Asks for the lease of the layer of this state, with a credential for the state.
    async fn request_lease(
        &self,
        datastore: &Client,
        key: &StateKey,
        may_wait: bool,
    ) -> Result<RunLease, RunError> {
        let StateKey { namespace, layer, workspace } = key;
        let locked = self.signals.or(self.lock_file(datastore, key, may_wait)).await;
        let file = match locked.map_err(RunError::Stopped)? {
            Ok(file) => file,
            Err(error) => return without_lease(error),
        };
        let id = random_id();
        // First, so that a later run finds it also if this one is killed before it has the answer.
        if let Some(file) = &file {
            let recorded = file.record(&id, &self.scratch.join(""));
            recorded.unwrap_or_else(|error| tracing::debug!("{error}"));
        }
        let request = LeaseRequest {
            holder: self.environment.redaction.text(&self.environment.holder),
            host: self.environment.host.clone(),
            run: Some(self.run_name()),
        };
        // A lease that is granted after a signal is released at the end of the run.
        let answer = datastore.take_lease(namespace, layer, Some(workspace), &id, &request);
        let granted = match self.signals.shortly(answer).await.map_err(RunError::Stopped)? {
            Ok(LeaseAnswer::Granted(granted)) => granted,
            Ok(LeaseAnswer::Held(holder) | LeaseAnswer::Lost(holder)) => {
                file.into_iter().for_each(OwnFile::remove);
                return Err(
                    LeaseError::Held { layer: format!("{namespace}/{layer}"), holder }.into()
                );
            }
            Ok(LeaseAnswer::Unsupported) => {
                file.into_iter().for_each(OwnFile::remove);
                return Ok(RunLease::Unsupported);
            }
            Err(error) => {
                if is_refused(&error) {
                    file.into_iter().for_each(OwnFile::remove);
                }
                // Else it may be granted all the same, and the file stays.
                return without_lease(error);
            }
        };
        if let Some(dead) = &granted.lease.took_over {
            tracing::warn!(
                "the lease of the layer {namespace}/{layer} had expired: {dead} has held it"
            );
        }
        self.hold(datastore, key, id, *granted, file)
    }

    /// Starts to renew a lease that was granted.
    fn hold(
        &self,
        datastore: &Client,
        key: &StateKey,
        id: ClaimId,
        GrantedLease { lease, credential }: GrantedLease,
        file: Option<OwnFile>,
    ) -> Result<RunLease, RunError> {
        let StateKey { namespace, layer, workspace } = key.clone();
        let number = lease.number;
        let credential = self.redacted(credential);
        let renewed = Renewed {
            settings: datastore.settings().clone(),
            namespace: namespace.clone(),
            layer: layer.clone(),
            id: id.clone(),
            number,
            credential: credential.clone(),
        };
        let clock = lease.renewed.parse::<Timestamp>().ok().map(|time| (time, Instant::now()));
        let renewal = Renewal::start(renewed, &lease, self.signals)?;
        Ok(RunLease::Held(Box::new(HeldLease {
            namespace,
            layer,
            id,
            number,
            workspace,
            credential,
            file,
            clock,
            renewal,
        })))
    }

    /// The credential, which is masked from now on.
    fn redacted(&self, credential: Option<String>) -> Option<SecretString> {
        let credential = SecretString::from(credential?);
        let secret =
            values::secret("the credential of the lease", credential.expose_secret().as_bytes());
        self.environment.redaction.add([secret]);
        Some(credential)
    }

    /// The file of the lease on this machine. A runner that has it may be about to release its lease: with `may_wait` its end
    /// is waited for, and so is the end of the tool of one that was killed. Its lease is released then.
    async fn lock_file(
        &self,
        datastore: &Client,
        StateKey { namespace, layer, .. }: &StateKey,
        may_wait: bool,
    ) -> Result<Option<OwnFile>, ClientError> {
        let url = &datastore.settings().url;
        let home = self.environment.own_state_home();
        let lock = || home.map(|home| OwnFile::lock(home, url, (namespace, layer))).transpose();
        let mut waits = false;
        let file = loop {
            match lock() {
                Ok(Some(None)) if may_wait => {}
                Ok(Some(Some(file))) if may_wait && file.has_orphan() => {}
                Ok(file) => break file.flatten(),
                Err(error) => {
                    tracing::debug!("a later run cannot know that this one was killed: {error}");
                    break None;
                }
            }
            if !std::mem::replace(&mut waits, true) {
                tracing::info!(
                    "another runner of this machine, or the tool of a killed one, has the lease of the layer {namespace}/{layer}: \
                     waiting for it"
                );
            }
            tokio::time::sleep(PAUSE).await;
        };
        let Some(file) = file else { return Ok(None) };
        let is_free = release_left(datastore, (namespace, layer), &file).await?;
        Ok(is_free.then_some(file))
    }

    /// Releases the lease at the end of the run. A failure changes nothing about its result.
    pub(crate) async fn release_lease(&mut self) {
        let RunLease::Held(lease) = std::mem::take(&mut self.lease) else { return };
        let Some(datastore) = &self.job.datastore else { return };
        let released = release(datastore, *lease);
        if self.signals.within(self.upload_grace(), released).await.is_err() {
            tracing::warn!("the lease is not released, and expires by itself: stopped");
        }
    }

    /// How an error names the lease of this run, which is a lock for a tool that does not work under it. The tool does not always
    /// know the holder.
    pub(crate) fn own_lock(&self) -> Option<String> {
        Some(format!("(lock ID lease-{})", self.lease.held()?.number))
    }

    /// Who has the layer instead, if the lease was lost.
    pub(crate) fn lost_lease(&self) -> Option<&str> {
        self.lease.held().and_then(HeldLease::lost)
    }
}

/// Releases the lease that the file of a killed runner names, if it names one, unless its tool still works. Returns whether no
/// lease is left.
async fn release_left(
    datastore: &Client,
    (namespace, layer): (&Name, &Name),
    file: &OwnFile,
) -> Result<bool, ClientError> {
    let Some(id) = file.left() else { return Ok(true) };
    if file.has_orphan() {
        tracing::warn!(
            "the tool of a killed runner still works, and keeps the lease of the layer {namespace}/{layer}"
        );
        return Ok(false);
    }
    datastore.release_lease(namespace, layer, &id).await?;
    tracing::info!(
        "a runner of this machine that may have held the lease of the layer {namespace}/{layer} was killed: its lease is released"
    );
    Ok(true)
}

/// Releases a lease.
async fn release(datastore: &Client, lease: HeldLease) {
    let HeldLease { namespace, layer, id, file, renewal, .. } = lease;
    let is_lost = renewal.lost().is_some();
    drop(renewal);
    let datastore = datastore.once(RELEASE);
    let released = async {
        if is_lost {
            return Ok(());
        }
        datastore.release_lease(&namespace, &layer, &id).await
    };
    match released.await {
        Ok(()) => drop(file.map(OwnFile::remove)),
        // The file stays: a later run of this machine releases the lease.
        Err(error) => tracing::warn!(
            "the lease of the layer {namespace}/{layer} is not released, and expires by itself: {}",
            chain(&error)
        ),
    }
}

/// Whether an address of the backend `http` is that of a state in this datastore.
pub(in crate::run) fn leads_here(address: &str, datastore: &Client) -> bool {
    matches!(Leads::of(address, &datastore.settings().url), Leads::Here(_))
}

/// A run whose request for a lease was refused goes on. One whose datastore is not well now, or did not answer, does not: it may
/// have leases, and another run may hold this one.
fn without_lease(error: ClientError) -> Result<RunLease, RunError> {
    if is_refused(&error) {
        return Ok(RunLease::Refused(Box::new(error)));
    }
    Err(LeaseError::Datastore(error).into())
}

/// Whether the lease was refused for good: for want of a right, or because the storage of this datastore cannot keep leases
/// safely.
fn is_refused(error: &ClientError) -> bool {
    matches!(error.status(), Some(StatusCode::FORBIDDEN | StatusCode::NOT_IMPLEMENTED))
}

fn default_workspace() -> Name {
    DEFAULT_WORKSPACE.parse().expect("a valid name")
}
