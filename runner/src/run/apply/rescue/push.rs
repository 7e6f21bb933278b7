//! One try to push a state: only if lineage and serial show that the backend's is an earlier version of it, and never with
//! `-force`.

use std::path::Path;
use std::time::Duration;

use fs_err as fs;

use crate::run::Run;
use crate::run::apply::rescue::own_lock::OwnLock;
use crate::run::prepare::{Prepared, copy_state};
use crate::run::push::ErroredState;
use crate::run::unsent::StateContents;
use crate::source::regular::{if_there, unless_missing};
use crate::tool::diagnosis::Class;

/// Whether another try can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    Yes,
    /// Only if someone changes something, such as credentials.
    IfLost,
    No,
}

/// Why a state is not pushed.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) reason: String,
    pub(super) again: Again,
    /// How long the backend asks to wait.
    pub(super) wait: Option<Duration>,
    pub(super) class: Class,
}

impl Refused {
    pub(super) fn finally(reason: String) -> Self {
        Self { reason, again: Again::No, wait: None, class: Class::Unknown }
    }
}

impl Run<'_> {
    /// Pushes the state, unless the backend has it or another one. Each try reads credentials again: its commands are new
    /// processes.
    pub(super) async fn try_push(
        &mut self,
        prepared: &mut Prepared,
        errored: &ErroredState,
        own_lock: &OwnLock,
    ) -> Result<(), Refused> {
        let refreshed = self.refresh_cli_config(prepared);
        refreshed.map_err(|error| Refused::finally(error.to_string()))?;
        let [file] = &*errored.files else {
            return Err(Refused::finally("there are several".to_owned()));
        };
        let ours = StateContents::read(file);
        let ours = ours.map_err(|error| Refused::finally(error.to_string()))?;
        let is_own = errored.own.is_some() && prepared.terragrunt.is_none();
        let backend = self.pull(prepared).await?;
        if ours.check_stored(&backend).is_ok() {
            return Ok(());
        }
        ours.check_replaces(&backend, is_own).map_err(Refused::finally)?;
        self.push(prepared, file, own_lock).await?;
        let stored = self.pull(prepared).await?;
        // The tool gives an empty state, pushed to a backend that has none, another lineage.
        let are_empty = ours.is_empty() && stored.is_empty();
        if are_empty || !ours.is_comparable() || !stored.is_comparable() {
            return Ok(());
        }
        ours.check_stored(&stored)
            .map_err(|difference| Refused::finally(format!("after the push {difference}")))
    }

    /// Pushes the state. A lock that the tool of this run did not release is freed once.
    async fn push(
        &mut self,
        prepared: &Prepared,
        file: &Path,
        own_lock: &OwnLock,
    ) -> Result<(), Refused> {
        if let Some(copy) = &prepared.state_copy {
            // The run writes it to --state-out.
            let copied = copy_state(file, copy);
            return copied.map_err(|error| Refused::finally(error.to_string()));
        }
        let push = prepared.tool().state_push(file);
        let (text, refused) = match self.deliver_by("state push", &push, None).await {
            Ok(()) => return Ok(()),
            Err(failed) => failed,
        };
        if refused.class != Class::Lock {
            return Err(refused);
        }
        let id = match own_lock.id_in(&text) {
            Ok(id) => id,
            Err(reason) => {
                let reason = format!("{}; the lock is not freed, because {reason}", refused.reason);
                return Err(Refused { reason, ..refused });
            }
        };
        self.say(&format!(
            "the lock {id} of the state is that of the apply of this run, whose tool has ended: it is freed"
        ));
        let unlock = prepared.tool().force_unlock(&id);
        self.deliver_by("force-unlock", &unlock, None).await.map_err(|(_, refused)| refused)?;
        self.deliver_by("state push", &push, None).await.map_err(|(_, refused)| refused)
    }

    /// The state in the backend.
    async fn pull(&mut self, prepared: &Prepared) -> Result<StateContents, Refused> {
        if let Some(copy) = &prepared.state_copy {
            let read = if_there(StateContents::read(copy));
            let read = read.map_err(|error| Refused::finally(error.to_string()))?;
            return Ok(read.unwrap_or_default());
        }
        let file = self.scratch.join("pulled");
        let pull = prepared.tool().state_pull();
        let pulled = self.deliver_by("state pull", &pull, Some(&file)).await;
        let contents = match pulled {
            Ok(()) => StateContents::read(&file).map_err(|error| {
                Refused::finally(format!("the output of `state pull` is no state: {error}"))
            }),
            Err((_, refused)) => Err(refused),
        };
        // It holds secrets, and the private directory may stay.
        unless_missing(fs::remove_file(&file))
            .map_err(|error| Refused::finally(error.to_string()))?;
        contents
    }
}
