//! Errors of a state in the datastore.

use crate::failure::{Failure, Kind};
use crate::run::prepare::datastore_state::error::{Local, MissingIn, StateError};

const REMOTE_STATE: &str = "nothing was planned or applied; set `username` and `password` in the `config` of that \
                            terraform_remote_state, or take the outputs with --var-from";

impl From<&StateError> for Failure {
    fn from(error: &StateError) -> Self {
        let kind = match error {
            StateError::LocalLock { .. } | StateError::Held { .. } => Kind::Locked,
            StateError::OtherRead { .. } => Kind::Datastore,
            _ => Kind::Config,
        };
        Self::new(kind, error).with_hint(&next(error))
    }
}

fn next(error: &StateError) -> String {
    match error {
        StateError::Declared(declared) if declared.is_cloud() => {
            "leave out --state datastore (PLANCHA_STATE), or remove the `cloud` block after you have moved its state: \
             `terraform state pull` prints it, and `datastore state push` stores it"
        }
        StateError::Declared(_) => {
            "leave out --state datastore (PLANCHA_STATE); or remove the block after you have moved its state: \
             `terraform state pull` prints it, and `datastore state push` stores it"
        }
        StateError::Unsupported => {
            "update the datastore, or give it another storage (or `datastore serve --single-replica`), or leave out --state datastore (PLANCHA_STATE) and configure a backend"
        }
        StateError::OtherPlace { .. } => {
            "give this code a layer of its own with --name; if it is the same module in another place, record that with \
             --rebind"
        }
        StateError::Local { local, .. } => return of_local(local),
        StateError::InTheWay(_) => {
            "move it out of that directory, or name another --work-dir; --migrate-state moves it into the datastore if that \
             has none"
        }
        StateError::LocalLock { lock, .. } => {
            return format!(
                "nothing was moved; wait until that process has ended; if it was killed, remove {}",
                lock.display()
            );
        }
        StateError::Changing(_) => {
            "compare it with the state in the datastore (`datastore state pull`), which may be an older one of it, and \
             run again when nothing else works with it"
        }
        StateError::Workspace { .. } => {
            "use a variable instead of terraform.workspace, or configure a backend that has workspaces"
        }
        StateError::RemoteState(_) => REMOTE_STATE,
        StateError::OtherBackend { .. } => {
            "nothing was planned or applied; remove the option from the variable, or leave out --state datastore \
             (PLANCHA_STATE)"
        }
        StateError::NotUsed => {
            "nothing was planned or applied; remove the `backend` block from override files and from files that the runner \
             cannot parse, or leave out --state datastore (PLANCHA_STATE)"
        }
        StateError::Forgotten { .. } => {
            "nothing was planned or applied; add --state datastore (PLANCHA_STATE), or give this code a layer of its own with \
             --name; --new-state begins a new state, and creates everything again"
        }
        StateError::OtherRead { .. } => {
            "nothing was applied; a proxy between the tool and the datastore has answered instead of it: check what answers at \
             the URL of the datastore, and run again"
        }
        StateError::Torn { .. } => {
            "nothing was moved; restore the file (its backup is FILE.backup, if the tool has made one), and run again"
        }
        StateError::OwnFile(_) => "rename that file: its name is that of the runner's own file for --state datastore",
        StateError::Held { .. } | StateError::Lost { .. } => of_missing(error),
    }
    .to_owned()
}

fn of_missing(error: &StateError) -> &'static str {
    if matches!(error, StateError::Lost { place: MissingIn::Backend, .. }) {
        return "restore the state from the history of its backend, or check that the backend is the right one; --new-state plans \
                without one, and creates everything again";
    }
    if matches!(error, StateError::Held { .. }) {
        return "run again when that run has ended; if it is dead, `datastore state ls` shows the lock, and `datastore state unlock` \
                releases it";
    }
    "restore the state (`datastore state ls`, `undelete`, `push`), or move it from where it is; --new-state plans without one, \
     and creates everything again"
}

fn of_local(local: &Local) -> String {
    match local {
        Local::File(_) => {
            "move it into the datastore with --migrate-state; remove the file if it is not needed any more".to_owned()
        }
        Local::Backend { data_dir, .. } => format!(
            "configure that backend, print the state with `terraform state pull` into a file, remove the backend and {}, and \
             put the file beside the code as terraform.tfstate: --migrate-state moves it into the datastore",
            data_dir.display()
        ),
    }
}
