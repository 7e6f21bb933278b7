//! Errors of a migration to another tool.

use crate::failure::{Failure, Kind};
use crate::run::migrate::error::MigrationError;

impl From<&MigrationError> for Failure {
    fn from(error: &MigrationError) -> Self {
        let kind = match error {
            MigrationError::Backup { .. } | MigrationError::Written { .. } => Kind::Integrity,
            MigrationError::Document(_) => Kind::Unclassified,
            _ => Kind::Config,
        };
        Self::new(kind, error).with_hint(next(error))
    }
}

fn next(error: &MigrationError) -> &'static str {
    match error {
        MigrationError::Table { .. } => {
            "write a JSON list of {\"from\": \">= 1.5.7, < 1.6\", \"to\": \">= 1.6.2\"} or {\"from\": ..., \"refused\": REASON}"
        }
        MigrationError::Path { .. } => {
            "do that first; or, if you have tried this path, allow it by a table of your own with --version-paths FILE"
        }
        MigrationError::Terragrunt => {
            "back up the state, run `terragrunt plan` with both tools (--tf-path), push the state with the next serial by tofu, \
             and record tofu with PUT /api/tools/NAMESPACE/LAYER"
        }
        MigrationError::RemoteRuns(_) => {
            "choose tofu where the runs are configured, or use another backend"
        }
        MigrationError::Encryption => {
            "migrate without it, and let tofu encrypt the state after that"
        }
        MigrationError::PartialPlan(_) => "nothing was changed; remove it from the variable",
        MigrationError::DataDir => "unset TF_DATA_DIR, or set it to a relative path",
        MigrationError::Checkout(_) => {
            "migrate in a directory that stays, or keep the state in a backend or in the datastore (--state datastore)"
        }
        MigrationError::Changes { .. } => {
            "apply them first, so that a plan finds no changes, and migrate then; what only one of the tools plans must be changed in \
             the code; an unfinished migration ends with --rollback"
        }
        MigrationError::Older { .. } => "migrate to that version or to a newer one",
        MigrationError::Backup { .. } => {
            "nothing was changed; run again, and check the datastore with `datastore verify`"
        }
        MigrationError::Written { .. } => {
            "compare the state with its copy, the newest snapshot in `datastore state ls`"
        }
        MigrationError::NothingToRollBack(_) => {
            "`datastore state show` names the migration of a layer and a workspace"
        }
        MigrationError::ChangedSince { .. } => {
            "nothing was changed: restoring the copy would lose what has changed; destroy or undo that by the tool that did it, or \
             restore the copy by hand (`datastore state pull --version`)"
        }
        MigrationError::Unfinished { .. } => {
            "the tool was not started; run `runner migrate --to tofu` again, which goes on where it ended, or `runner migrate --rollback`"
        }
        MigrationError::Unsupported => {
            "update the datastore, or give it a storage that can keep states"
        }
        MigrationError::Document(_) => {
            "check the state with `terraform state pull`, and report this"
        }
    }
}
