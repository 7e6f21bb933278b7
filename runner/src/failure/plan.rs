//! Errors of stored plans, of the comparison with what a plan was made of, and of `runner upload`.

use crate::basis::backend::DATASTORE;
use crate::basis::binding::BindingError;
use crate::basis::{BasisError, REVISION};
use crate::failure::{Failure, Kind, disk_hint};
use crate::run::artifacts::Defect;
use crate::run::stored_plan::StoredPlanError;
use crate::run::unsent::UploadError;
use crate::source::archive::ArchiveError;
use crate::source::path::{CHANGE_DIRECTORY, NO_CURRENT_DIRECTORY, is_in_removed_directory};
use crate::source::scratch::Held;

impl From<&UploadError> for Failure {
    fn from(error: &UploadError) -> Self {
        match error {
            UploadError::Client(_) => Self::new(Kind::Config, error),
            UploadError::Missing(dir) if is_in_removed_directory(dir) => {
                let next = format!("{NO_CURRENT_DIRECTORY}: {CHANGE_DIRECTORY}");
                Self::new(Kind::Config, error).with_hint(&next)
            }
            UploadError::Missing(_) => Self::new(Kind::Config, error).with_hint(
                "the directory is removed once everything is sent; if it was not, name the directory of the printed \
                 command",
            ),
            UploadError::Directory { next, .. } => Self::new(Kind::Config, error).with_hint(next),
            UploadError::States(states) => {
                Self::new(Kind::Config, error).with_hint(&states.hint())
            }
            UploadError::MissingState(state) => {
                Self::new(Kind::Config, error).with_hint(&state.hint())
            }
            UploadError::OtherDatastore { command, .. } => {
                Self::new(Kind::Config, error).with_hint(&format!(
                    "nothing was sent; run `{command}`, or name another datastore with --datastore"
                ))
            }
            UploadError::Damaged { .. } => Self::new(Kind::Integrity, error).with_hint(
                "nothing was sent; remove that file if you can do without it (not applied.json; without \
                 SHA256SUMS no file is verified), and run the same command again",
            ),
            UploadError::Later { .. } => Self::new(Kind::Config, error).with_hint(
                "nothing was sent; run the same command with the version of Plancha that wrote the file, or a later one",
            ),
            UploadError::Usage(_) => Self::new(Kind::Usage, error),
            UploadError::Datastore(cause) => Self {
                hint: Some(
                    "run the same command again: what was sent is not sent twice".to_owned(),
                ),
                ..Self::of_datastore(cause, error)
            },
            UploadError::Others { .. } => Self::new(Kind::Integrity, error).with_hint(
                "nothing was replaced; compare the files, and delete the directory if you do not \
                 need them",
            ),
            UploadError::Io(_) => Self::new(Kind::Unclassified, error),
        }
    }
}

impl From<&StoredPlanError> for Failure {
    fn from(error: &StoredPlanError) -> Self {
        match error {
            StoredPlanError::Missing { pod: true, .. } => Self::new(Kind::Config, error).with_hint(
                "plan the layer again: Burrito's controllers do so at the next commit, or when its annotation \
                 api.terraform.padok.cloud/sync-now is set to true",
            ),
            StoredPlanError::Missing { .. }
            | StoredPlanError::NoneHere { .. }
            | StoredPlanError::Unreadable(_)
            | StoredPlanError::Unfinished(_) => {
                Self::new(Kind::Config, error).with_hint("plan first, or name another plan")
            }
            StoredPlanError::Defective { defect, older, .. } => {
                Self::new(Kind::Integrity, error).with_hint(&of_defective(defect, older.as_deref()))
            }
            StoredPlanError::Uncertain { plan, .. } => Self::new(Kind::Integrity, error).with_hint(&format!(
                "nothing was applied; plan again, or name the plan: --plan RUN/ATTEMPT (the clock of the datastore or of a \
                 runner was wrong, or the run of {plan} has had another attempt since)"
            )),
            StoredPlanError::NotStored { .. }
            | StoredPlanError::Destroys { .. }
            | StoredPlanError::DestroysByArgument(_)
            | StoredPlanError::NotDestroy(_) => of_destroy(error),
            StoredPlanError::NotAPlan { .. } => Self::new(Kind::Config, error).with_hint(
                "nothing was applied; name a file that `runner plan --plan-file FILE` has written with the same tool",
            ),
            StoredPlanError::Basis(cause) => cause.into(),
            StoredPlanError::Repository(cause) => cause.as_ref().into(),
            StoredPlanError::Binding(cause) => cause.into(),
            StoredPlanError::NoSnapshot(_) | StoredPlanError::SnapshotDeleted(_) => {
                Self::new(Kind::Config, error).with_hint(
                    "nothing was applied; plan again with --snapshot=always, or apply on the source itself with \
                     --snapshot=never",
                )
            }
            StoredPlanError::NoConfiguration(_) => Self::new(Kind::Integrity, error).with_hint(
                "nothing was applied; plan again, or apply on the source itself with --snapshot=never",
            ),
            StoredPlanError::Snapshot { cause, .. } => of_snapshot(cause, error),
            StoredPlanError::DigestMismatch { .. } => Self::new(Kind::Integrity, error)
                .with_hint("nothing was applied; plan again, and find out who wrote the other one"),
            StoredPlanError::Unchecked(_) => {
                Self::new(Kind::Integrity, error).with_hint("nothing was applied; plan again")
            }
            StoredPlanError::Record { .. } => Self::new(Kind::Integrity, error).with_hint(
                "nothing was applied; plan again, or remove the record to have only what the plan itself \
                 contains compared",
            ),
            StoredPlanError::Damaged { .. } => Self::new(Kind::Integrity, error).with_hint(
                "nothing was applied; plan again (`datastore verify` lists what else is damaged)",
            ),
            StoredPlanError::Datastore(cause) => Self::of_datastore(cause, error),
            StoredPlanError::Io(cause) => Self {
                hint: disk_hint(cause).map(str::to_owned),
                ..Self::new(Kind::Unclassified, error)
            },
        }
    }
}

/// A plan of `runner destroy` is missing, or is to be applied by `runner apply`, or the other way round.
fn of_destroy(error: &StoredPlanError) -> Failure {
    let next = match error {
        StoredPlanError::Destroys { approve, .. } => {
            let command = approve.as_deref().unwrap_or("runner destroy --approve DIGEST");
            format!("nothing was applied; to destroy everything: {command}")
        }
        StoredPlanError::DestroysByArgument(plan) => {
            format!("nothing was applied; to destroy what this plan destroys: --plan {plan}")
        }
        StoredPlanError::NotStored { .. } => "nothing was destroyed; check the digest, the namespace and the name of the \
             layer, or run `runner destroy` here and approve its plan"
            .to_owned(),
        _ => "nothing was destroyed; run `runner destroy` and approve the digest of its plan, or apply this one with \
             `runner apply`"
            .to_owned(),
    };
    Failure::new(Kind::Config, error).with_hint(&next)
}

/// The next step where the newest plan is not whole. `older` is the newest one that is.
fn of_defective(defect: &Defect, older: Option<&str>) -> String {
    let wait = match defect {
        Defect::NoReport => "if its run still works, wait until that has ended, else ",
        Defect::NoPlan | Defect::Unreadable(_) => "",
    };
    let older = older.map(|older| format!("; to apply the older plan, name it: --plan {older}"));
    format!("nothing was applied; {wait}plan again{}", older.unwrap_or_default())
}

fn of_snapshot(cause: &ArchiveError, error: &StoredPlanError) -> Failure {
    match cause {
        ArchiveError::File(_, cause) => Failure {
            hint: disk_hint(cause).map(str::to_owned),
            ..Failure::new(Kind::Unclassified, error)
        },
        _ => Failure::new(Kind::Integrity, error).with_hint("nothing was applied; plan again"),
    }
}

impl From<&BindingError> for Failure {
    fn from(error: &BindingError) -> Self {
        let next = match error {
            BindingError::Unreadable { .. } | BindingError::Missing { .. } => {
                "nothing was applied; plan again, and find out who changed the files of the plan"
            }
            BindingError::Report { .. } => {
                "nothing was applied; plan again, or name the plan that you have reviewed: --plan RUN/ATTEMPT; find \
                 out who changed the files of the plan, unless its run failed after it had stored them"
            }
            BindingError::Unsigned { .. } => {
                "nothing was applied; plan again with --signing-key, or apply without --verify-key"
            }
            BindingError::Unplanned => {
                "plan first, with --signing-key, and apply that plan; or leave out --verify-key"
            }
            BindingError::Signature { .. } => {
                "nothing was applied; check that --verify-key is the key of the planning runs; plan again"
            }
            BindingError::UnreadProvider { .. } => {
                "nothing was applied; make the file of this development override readable, or use the provider's package"
            }
            BindingError::Differs { .. } => "nothing was applied; plan again",
        };
        Self::new(Kind::Integrity, error).with_hint(next)
    }
}

/// The next step for a plan of something else.
fn of_elsewhere(what: &str, theirs: &str) -> &'static str {
    if what == "backend" && theirs.starts_with(DATASTORE) {
        "nothing was applied; the state is in the datastore: apply with --state datastore (PLANCHA_STATE), or plan again \
         without it"
    } else if what == REVISION {
        "nothing was applied; name the plan's revision (--revision), plan the ordered one, or name the plan and leave out \
         --strict: --plan RUN/ATTEMPT"
    } else {
        "nothing was applied; plan here, or apply where the plan was made"
    }
}

impl From<&BasisError> for Failure {
    fn from(error: &BasisError) -> Self {
        let (kind, next) = match error {
            BasisError::Repository(cause) => return cause.as_ref().into(),
            BasisError::Unrecorded { .. } => (
                Kind::Config,
                "plan again, or name the plan with --plan or --plan-file, and without --strict",
            ),
            BasisError::Elsewhere { what, theirs, .. } => {
                (Kind::Integrity, of_elsewhere(what, theirs))
            }
            BasisError::Mocks { .. } => (
                Kind::Integrity,
                "nothing was applied; plan again when the dependency is applied, or apply the mock outputs with \
                 `runner apply --allow-mocks` (PLANCHA_ALLOW_MOCKS=1)",
            ),
            BasisError::Changed { is_in_snapshot: true, .. } => (
                Kind::Integrity,
                "nothing was applied; plan again, or apply exactly this plan, in its snapshot, with --snapshot=always",
            ),
            BasisError::Changed { .. } => (Kind::Integrity, "nothing was applied; plan again"),
            BasisError::NoConfiguration { .. } => (
                Kind::Integrity,
                "nothing was applied; run the apply where the code is, or plan with --snapshot=always: an apply in an \
                 empty directory works in the snapshot",
            ),
            BasisError::Module { .. } => (
                Kind::Integrity,
                "nothing was applied; plan again, and name the module by a commit or an exact version; \
                 --snapshot=always keeps the modules with the plan. If only old files in .terraform/modules differ, \
                 delete that directory first",
            ),
            BasisError::UnreadModules { .. } => (
                Kind::Integrity,
                "nothing was applied; delete .terraform/modules, which init downloads again, and apply again",
            ),
            BasisError::UnreadFiles { .. } => (
                Kind::Integrity,
                "nothing was applied; make these files and directories readable, and apply again",
            ),
            BasisError::AbsolutePaths { held: Some(Held::Now), .. } => {
                (Kind::Integrity, "nothing was applied; apply again when no other run works here")
            }
            BasisError::AbsolutePaths { held: Some(Held::DuringPlan), .. } => (
                Kind::Integrity,
                "nothing was applied; plan again when no other run works here, or plan and apply with --work-dir DIR",
            ),
            BasisError::AbsolutePaths { .. } => (
                Kind::Integrity,
                "nothing was applied; use path.module instead of path.cwd or abspath(), or plan and apply in the same \
                 directory with --work-dir DIR, or in the source itself with --snapshot=never",
            ),
            BasisError::OtherState { .. } => (
                Kind::Integrity,
                "nothing was applied; remove the option from the variable, and set the path in the backend `local`",
            ),
            BasisError::Tool { .. } => {
                (Kind::Integrity, "nothing was applied; leave out the flag, or plan again with it")
            }
        };
        Self::new(kind, error).with_hint(next)
    }
}
