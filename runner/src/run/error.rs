//! Why a run failed. What an error means for the exit code, and what to do about it, is decided by
//! [`crate::failure`].

use std::path::PathBuf;

use datastore_api::ClientError;

use crate::basis::BasisError;
use crate::order::layer::LayerError;
use crate::process::Stop;
use crate::release::ReleaseError;
use crate::run::artifacts::OpenError;
use crate::run::plan_summary::PlanError;
use crate::run::stored_plan::StoredPlanError;
use crate::run::unsent::quoted;
use crate::source::error::CheckoutError;
use crate::source::scratch::ScratchError;
use crate::tool::diagnostics::Diagnostics;
use crate::version::VersionError;

/// The run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Checkout(#[from] CheckoutError),
    #[error(transparent)]
    Version(#[from] VersionError),
    #[error(transparent)]
    Release(#[from] ReleaseError),
    #[error("{tool} {step} failed with exit code {code}{}", .errors.first().map(|error| format!(": {error}")).unwrap_or_default())]
    Tool {
        tool: String,
        step: &'static str,
        code: i32,
        errors: Diagnostics,
        dir: PathBuf,
        /// Whether the log goes into a datastore.
        stored: bool,
    },
    #[error("{tool} {step} {end}")]
    Killed {
        tool: String,
        step: &'static str,
        end: String,
        /// The signal that asked the runner to stop, if one did.
        stop: Option<Stop>,
    },
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    StoredPlan(#[from] StoredPlanError),
    #[error(transparent)]
    Basis(#[from] BasisError),
    #[error("the state would be lost: the backend is local, and its file {} is removed when the run ends", .0.display())]
    LocalState(PathBuf),
    #[error("the state would be lost: the plan's backend is local, and its file {} is in the directory that was removed after the plan", .0.display())]
    PlannedState(PathBuf),
    #[error("{cause}; the backend did not take the state, which is in {}", listed(&.errored.files))]
    Errored {
        #[source]
        cause: Box<RunError>,
        errored: ErroredState,
    },
    #[error("{} is a state that an earlier apply could not write to its backend", .file.display())]
    Unpushed { file: PathBuf, dir: PathBuf },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Applied(AppliedError),
    #[error("the datastore")]
    Datastore(#[from] ClientError),
    #[error("the annotations could not be written ({annotations})")]
    Annotate { annotations: String, source: LayerError },
    #[error("what {tool} {step} prints could not be kept")]
    Incomplete {
        tool: String,
        step: &'static str,
        #[source]
        cause: std::io::Error,
    },
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("stopped by {0}")]
    Stopped(Stop),
}

fn listed(files: &[PathBuf]) -> String {
    let files = files.iter().map(|file| file.display().to_string());
    files.collect::<Vec<_>>().join(", ")
}

/// The plan was applied, but a step after that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppliedError {
    #[error("applied, but the annotations could not be written: {reason} ({values})")]
    Unannotated { reason: String, values: String, hint: String },
    #[error("applied, but not all of it is stored: {reason}")]
    Unsent { reason: String, hint: String },
}

/// State files that the tool could not write to the backend (`errored.tfstate`).
#[derive(Debug)]
pub(crate) struct ErroredState {
    /// Where they are now.
    pub(crate) files: Vec<PathBuf>,
    /// The program whose `state push` writes them to the backend.
    pub(crate) program: String,
    /// The directory of the module, unless it is removed with the run.
    pub(crate) dir: Option<PathBuf>,
    /// Whether the datastore has a copy; `None` outside of a pod.
    pub(crate) stored: Option<bool>,
}

impl ErroredState {
    /// The commands that write the state to its backend.
    pub(crate) fn hint(&self) -> String {
        let Self { program, dir, stored, .. } = self;
        let place = dir.as_ref().map_or_else(
            || "in a checkout of the same commit".to_owned(),
            |dir| format!("in {}", dir.display()),
        );
        let files = self.files.iter().map(|file| quoted(&file.to_string_lossy()));
        let push = files.map(|file| format!("`{program} state push {file}`"));
        let push = push.collect::<Vec<_>>().join(", ");
        let copy = match stored {
            Some(true) => {
                "; the file goes with this pod: the datastore has it as errored.tfstate of the attempt"
            }
            Some(false) => {
                "; the file goes with this pod, and is not stored: copy it before the pod ends"
            }
            None => "",
        };
        format!(
            "resources may exist that only this file records: before anything else plans or applies, run \
             `{program} init` and then {push} {place}, and remove the file{copy}"
        )
    }
}
