//! Errors of the commands that show runs.

use datastore_api::chain;

use crate::basis::binding::BindingError;
use crate::failure::{Failure, Kind, disk_hint};
use crate::show::ShowError;

impl From<&ShowError> for Failure {
    fn from(error: &ShowError) -> Self {
        match error {
            ShowError::Job(cause) => cause.into(),
            ShowError::NoRuns { .. } => Self::new(Kind::Config, error).with_hint(
                "plan it first, or name another layer with DIR, --name or --namespace, or another datastore",
            ),
            ShowError::NoRun { .. } => Self::new(Kind::Config, error).with_hint(
                "`runner runs` lists them; a run of another layer is named NAMESPACE/LAYER/RUN, or with DIR or --name",
            ),
            ShowError::NoAttempt { .. } => {
                Self::new(Kind::Config, error).with_hint("name one of these, or none for the latest")
            }
            ShowError::NothingStored { .. } => Self::new(Kind::Config, error)
                .with_hint("wait until it has ended, or name another attempt"),
            ShowError::Unsent { command, .. } => {
                Self::new(Kind::Config, error).with_hint(&format!("send them with `{command}`"))
            }
            ShowError::NoLog { .. } => Self::new(Kind::Config, error).with_hint(
                "a run stores its log while it works, or at its end if the datastore takes no live logs; `runner show` has what is \
                 known of this attempt",
            ),
            ShowError::Binding(BindingError::Unsigned { .. } | BindingError::Signature { .. }) => {
                Self::new(Kind::Integrity, error).with_hint(
                    "check that --verify-key is the key of the planning runs, and find out who stored this plan",
                )
            }
            ShowError::Binding(_) => Self::new(Kind::Integrity, error).with_hint(
                "do not rely on what is stored of this plan: plan again, and find out who changed its files",
            ),
            ShowError::NotJudged { .. } => Self::new(Kind::Config, error).with_hint(
                "name the output of `show -json` of saved plans, or a layer with stored plans",
            ),
            ShowError::Policy(cause) => cause.into(),
            ShowError::Judged { source, .. } => Self {
                message: chain(error),
                ..Self::from(source)
            },
            ShowError::Datastore(cause) => Self::of_datastore(cause, error),
            ShowError::Pager { .. } => Self::new(Kind::Config, error)
                .with_hint("correct PLANCHA_PAGER or PAGER, or use --no-pager"),
            ShowError::Closed => Self::new(Kind::Unclassified, error),
            ShowError::Output(_) => Self::new(Kind::Unclassified, error)
                .with_hint("check where stdout goes: free some space there, or write to another file"),
            ShowError::Io(cause) => Self {
                hint: disk_hint(cause).map(str::to_owned),
                ..Self::new(Kind::Unclassified, error)
            },
        }
    }
}
