//! Which state in the datastore a job uses.

use datastore_api::state::StateKey;
use datastore_api::{RunKey, Sha256};

use crate::basis::place::DEFAULT_WORKSPACE;
use crate::cli::StateArgs;
use crate::order::identity::Identity;
use crate::order::job::{DatastoreState, JobError};
use crate::source::checkout::Source;
use crate::source::checkout::source_id::SourceId;

/// The longest place in bytes. A longer one is replaced by its digest.
const MAX_PLACE: usize = 1000;

/// The state that `--state datastore` requests.
pub(super) fn datastore_state(
    args: &StateArgs,
    run: &RunKey,
    (source, identity): (&Source, &Identity),
    (has_datastore, has_terragrunt): (bool, bool),
) -> Result<Option<DatastoreState>, JobError> {
    let refused = |reason: String| Err(JobError::Usage(reason));
    if args.state.is_none() {
        let flags = [("--migrate-state", args.migrate_state), ("--rebind", args.rebind)];
        return match flags.into_iter().find(|(_, is_set)| *is_set) {
            Some((flag, _)) => refused(format!(
                "{flag} is for a state in the datastore: add --state datastore (PLANCHA_STATE)"
            )),
            None => Ok(None),
        };
    }
    if !has_datastore {
        return refused(
            "--state datastore (PLANCHA_STATE) needs a datastore: name one with --datastore (PLANCHA_DATASTORE_URL)"
                .to_owned(),
        );
    }
    if has_terragrunt {
        return refused(
            "--state datastore (PLANCHA_STATE) does not work with terragrunt, which configures backends itself: leave it \
             out, and let `remote_state` of terragrunt.hcl configure a backend"
                .to_owned(),
        );
    }
    let workspace = identity.place.workspace.as_deref().unwrap_or(DEFAULT_WORKSPACE);
    let workspace = workspace.parse().map_err(|error| {
        JobError::Usage(format!("the workspace is no name of a state in the datastore: {error}"))
    })?;
    let RunKey { namespace, layer, .. } = run.clone();
    Ok(Some(DatastoreState {
        key: StateKey { namespace, layer, workspace },
        place: place(source, identity),
        migrates: args.migrate_state,
        rebinds: args.rebind,
    }))
}

/// Where the code is: the repository, or its path if no repository is known, and the module's path in it. An archive may
/// have the code of any repository.
fn place(source: &Source, identity: &Identity) -> Option<String> {
    let place = &identity.place;
    let is_known = !matches!(source, Source::Packed(_) | Source::Bundle(_));
    let local = || identity.source_id.as_ref().map(SourceId::root).filter(|_| is_known);
    let root = place.repository.as_deref().or_else(local)?;
    let whole = match place.shown_path().filter(|path| *path != ".") {
        Some(path) => format!("{root}//{path}"),
        None => root.to_owned(),
    };
    // The datastore takes no control characters, and no long text.
    let is_plain = whole.len() <= MAX_PLACE && !whole.contains(char::is_control);
    Some(if is_plain { whole } else { format!("sha256:{}", Sha256::of(whole.as_bytes())) })
}
