//! A job: everything that a run needs to know, parsed and checked. How it is made of flags, a manifest or a pod's
//! objects is in [`crate::order::command_line`] and [`crate::order::pod`].

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use datastore_api::client::StateOrigin;
use datastore_api::state::StateKey;
use datastore_api::{Attempt, Client, RunKey, Sha256};

use crate::basis::binding::{KeyError, SigningKey, VerifyKey};
use crate::basis::place::PlanPlace;
use crate::cli::Separator;
use crate::cli::{
    BindingArgs, LimitArgs, PlanName, PreflightMode, RetryArgs, SnapshotMode, ToolArgs,
};
pub(crate) use crate::order::action::{
    Action, Apply, Approval, ApprovedSet, Converge, Destroy, Migrate,
};
use crate::order::apply_command::ApplyCommand;
use crate::order::hooks::Hooks;
use crate::order::inputs::{InputError, Inputs};
use crate::order::layer::{ClusterError, LayerError, LayerHandle};
use crate::policy::{Policy, PolicyError};
use crate::run::artifacts::AttemptRef;
use crate::source::checkout::Source;
use crate::source::checkout::source_id::SourceId;
use crate::source::path::{CHANGE_DIRECTORY, NO_CURRENT_DIRECTORY};
use crate::source::states::file::StateFiles;
use crate::tool::argv::PlanOptions;
use crate::version::ToolName;

/// A job: plan, apply, destroy, check or converge one root module.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent flag")]
pub(crate) struct Job {
    pub(crate) action: Action,
    /// Namespace, layer and run.
    pub(crate) run: RunKey,
    /// The attempt, if it was named.
    pub(crate) attempt: Option<Attempt>,
    /// The lowest attempt number that this run may take, if none was named.
    pub(crate) lowest_attempt: Attempt,
    /// Whether this command has stored an attempt of the run before.
    pub(crate) has_earlier_attempts: bool,
    pub(crate) source: Source,
    /// The working directory inside the source.
    pub(crate) path: PathBuf,
    /// The directory for a source that is cloned or copied, if it is to be kept.
    pub(crate) work_dir: Option<PathBuf>,
    /// Whether submodules and LFS files are fetched, and required where the code needs them.
    pub(crate) submodules: bool,
    /// The place of the code. A stored plan must be of the same place.
    pub(crate) place: PlanPlace,
    /// Where the code comes from; `None` in a pod whose repository is unknown.
    pub(crate) source_id: Option<SourceId>,
    /// What flags or variables named explicitly.
    pub(crate) named: Named,
    /// The command that applies the plan; none in a pod of Burrito's, whose controllers decide it.
    pub(crate) apply_command: Option<ApplyCommand>,
    /// Where annotations go.
    pub(crate) layer: Option<LayerHandle>,
    /// The tool, if flags or the layer name it.
    pub(crate) tool: Option<ToolName>,
    /// The version of the tool that flags or the layer request, and the name of the flag or field.
    pub(crate) request: Option<(String, &'static str)>,
    /// If terragrunt runs the tool: its requested version, and the name of the flag or field.
    pub(crate) terragrunt: Option<(String, &'static str)>,
    pub(crate) tools: ToolArgs,
    pub(crate) options: PlanOptions,
    /// The files of the state, if flags name them.
    pub(crate) state_files: Option<StateFiles>,
    /// Whether an apply goes on if the state fills the Secret of the backend `kubernetes`.
    pub(crate) allow_large_state: bool,
    pub(crate) datastore: Option<Client>,
    /// The state, if it is in the datastore.
    pub(crate) state: Option<DatastoreState>,
    /// Whether to plan without a state although the layer was applied before (`--new-state`).
    pub(crate) new_state: bool,
    /// Whether to apply without a stored plan even if this run has been applied before (`--again`).
    pub(crate) again: bool,
    /// Whether a plan without changes keeps the layer's `apply-sum` as its `plan-sum` (`--skip-empty-plans`).
    pub(crate) skip_empty_plans: bool,
    /// The name of the order, which is applied once under whatever run (`--order-key`).
    pub(crate) order_key: Option<String>,
    /// Whether a plan stores a snapshot of its working directory, and an apply works in that of its plan.
    pub(crate) snapshot: SnapshotMode,
    /// The key that signs a plan.
    pub(crate) signing_key: Option<SigningKey>,
    /// The key by which the plan to apply must be signed.
    pub(crate) verify_key: Option<VerifyKey>,
    /// Whether to apply a plan that terragrunt made with mock outputs.
    pub(crate) allow_mocks: bool,
    /// Programs before and after an apply.
    pub(crate) hooks: Hooks,
    /// Whether the plan is refused for every difference, also if it is named.
    pub(crate) strict: bool,
    /// How the credentials are examined before init.
    pub(crate) preflight: PreflightMode,
    /// How long the lease of a dead run must have expired until its lock of the state is removed (`--break-stale-lock`).
    /// `None`: never.
    pub(crate) break_stale_lock: Option<Duration>,
    /// Without a datastore: the file that the plan is written to or read from.
    pub(crate) plan_file: Option<PathBuf>,
    pub(crate) grace: Duration,
    /// How often failed steps are run again.
    pub(crate) retry: RetryArgs,
    /// Limits of time.
    pub(crate) limits: LimitArgs,
    /// Files that the runner writes beside the code, as absolute paths. They are no changes of the code.
    pub(crate) ignored_paths: Vec<PathBuf>,
    /// Whether the program was called as `burrito`. It then tolerates what Burrito's runner tolerates.
    pub(crate) burrito: bool,
    /// Whether Burrito's controllers started this pod. They decide the attempt and show the reason of a failure.
    pub(crate) pod: bool,
    /// The URL of a provider mirror that is tried before the registries.
    pub(crate) provider_mirror: Option<String>,
    /// What a check or converge compares its plan with.
    pub(crate) judging: Option<Judging>,
    /// The layers that this one needs, and the outputs that it takes.
    pub(crate) inputs: Inputs,
}

/// How a plan is judged, and what follows.
#[derive(Clone, Debug)]
pub(crate) struct Judging {
    pub(crate) policy: Arc<Policy>,
    /// How long an approval is valid.
    pub(crate) approval_lifetime: Duration,
    /// Whether a refused plan has the exit code 0.
    pub(crate) exit_zero_on_skip: bool,
    /// How many checks in a row must have failed transiently until the status is an error.
    pub(crate) error_after: u32,
}

/// A state in the datastore.
#[derive(Clone, Debug)]
pub(crate) struct DatastoreState {
    pub(crate) key: StateKey,
    /// Where the code is, if that is known. The state's first writer records it.
    pub(crate) place: Option<String>,
    /// Whether to move a local state into the datastore (`--migrate-state`).
    pub(crate) migrates: bool,
    /// Whether to record this place instead of another one (`--rebind`).
    pub(crate) rebinds: bool,
}

impl DatastoreState {
    /// What a write of this state records.
    pub(crate) fn origin(&self) -> StateOrigin {
        StateOrigin { place: self.place.clone(), rebind: self.rebinds, ..StateOrigin::default() }
    }
}

/// What flags or their variables named explicitly. A stored plan must match it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    /// Whether `--plan` or `--plan-file` named the plan, and not an annotation.
    pub(crate) plan: bool,
    /// Whether the run was named.
    pub(crate) run: bool,
    /// Whether the source was named.
    pub(crate) source: bool,
    pub(crate) tool: Option<ToolName>,
    pub(crate) version: Option<String>,
    pub(crate) terragrunt: Option<String>,
}

/// The flags, the manifest or the pod's objects make no job.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    /// A flag is wrong, or flags exclude each other.
    #[error("{0}")]
    Usage(String),
    /// Something that the flags or the manifest name does not exist or cannot be used.
    #[error("{0}")]
    Config(String),
    /// The report cannot be written to the file of `--result`.
    #[error("{0}")]
    Result(String),
    /// The files for report or summary cannot be used. Neither is written.
    #[error("{0}")]
    Outputs(String),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error("the cluster")]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// A job that could not be made.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub(crate) error: JobError,
    /// The attempt under which the reason is stored, if it is known.
    pub(crate) attempt: Option<Box<AttemptRef>>,
}

impl From<InputError> for JobError {
    fn from(error: InputError) -> Self {
        match error {
            InputError::Flag(text) => Self::Usage(text),
            InputError::Manifest(text) => Self::Config(text),
        }
    }
}

impl From<JobError> for Rejected {
    fn from(error: JobError) -> Self {
        Self { error, attempt: None }
    }
}

impl Job {
    /// The job that applies the plan that this one has made. It is the next attempt of the same run. `file`: where the plan
    /// is without a datastore; `approval`: of its destructive changes.
    pub(crate) fn into_apply(
        self,
        planned: (Sha256, Attempt),
        file: PathBuf,
        approval: Option<ApprovedSet>,
    ) -> Self {
        let (sha256, attempt) = planned;
        let from = match &self.datastore {
            Some(_) => Apply::Run(PlanName { run: self.run.run.clone(), attempt: Some(attempt) }),
            None => Apply::File(file),
        };
        let action = if self.action.destroys() {
            Action::Destroy(Destroy::Apply { from, approved: sha256 })
        } else {
            let of_part = self.options.limit_plan();
            Action::Converge(Converge::Apply { from, made: sha256, approval, of_part })
        };
        // An apply takes the outputs of its plan.
        let inputs = Inputs { list: Vec::new(), ..self.inputs };
        Self {
            action,
            inputs,
            attempt: None,
            lowest_attempt: Attempt(attempt.0 + 1),
            strict: true,
            has_earlier_attempts: true,
            // They were decided when the plan was made.
            options: PlanOptions::default(),
            ..self
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action.as_str(), self.run)
    }
}

/// The keys that the arguments name and that the action needs: a plan verifies nothing, and an apply signs nothing.
pub(crate) fn keys(
    args: &BindingArgs,
    action: &Action,
) -> Result<(Option<SigningKey>, Option<VerifyKey>), KeyError> {
    let signing_key = args.signing_key.as_deref().filter(|_| !action.is_apply());
    let signing_key = signing_key.map(SigningKey::read).transpose()?;
    let verify_key = args.verify_key.as_deref().filter(|_| action.is_apply() || action.goes_on());
    let verify_key = verify_key.map(VerifyKey::read).transpose()?;
    Ok((signing_key, verify_key))
}

/// The source that this text names.
pub(crate) fn source(
    text: &str,
    revision: Option<&str>,
    separator: Option<&Separator>,
) -> Result<Source, JobError> {
    let source = Source::parse(text, revision, separator).map_err(JobError::Usage)?;
    if source.is_in_removed_directory() {
        return Err(JobError::Config(format!("{NO_CURRENT_DIRECTORY}: {CHANGE_DIRECTORY}")));
    }
    Ok(source)
}

/// A path below the source, without `..`. In a layer, `/x` is allowed as well, as in Burrito.
pub(crate) fn inside(path: &Path, place: &str) -> Result<PathBuf, JobError> {
    let mut inside = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => inside.push(name),
            Component::CurDir => {}
            Component::RootDir if place != "--path" => {}
            Component::ParentDir if inside.pop() => {}
            _ => {
                let text = format!("{place} `{}` leaves the source", path.display());
                let usage = place == "--path";
                return Err(if usage { JobError::Usage(text) } else { JobError::Config(text) });
            }
        }
    }
    Ok(inside)
}
