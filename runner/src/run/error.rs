//! Why a run failed. What an error means for the exit code, and what to do about it, is decided by
//! [`crate::failure`].

use std::fmt;
use std::path::PathBuf;

use datastore_api::ClientError;

use crate::basis::BasisError;
use crate::basis::place::DEFAULT_WORKSPACE;
use crate::order::layer::LayerError;
use crate::process::Stop;
use crate::release::ReleaseError;
use crate::run::artifacts::OpenError;
use crate::run::plan_summary::PlanError;
use crate::run::stored_plan::StoredPlanError;
use crate::run::unsent::quoted;
use crate::source::error::CheckoutError;
use crate::source::scratch::ScratchError;
use crate::source::states;
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
    #[error("{cause}; the backend did not accept the state, {}", .errored.whereabouts())]
    Errored {
        #[source]
        cause: Box<RunError>,
        errored: ErroredState,
    },
    #[error("{0}")]
    Unpushed(Unpushed),
    #[error("run {run} was applied elsewhere: in {theirs}; this run is for {ours}")]
    AppliedElsewhere { run: String, theirs: String, ours: String },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Applied(AppliedError),
    #[error("the datastore")]
    Datastore(#[from] ClientError),
    #[error("the annotations could not be written ({annotations})")]
    Annotate { annotations: String, source: LayerError },
    #[error("the output of {tool} {step} could not be stored")]
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

/// How a state gets into its backend: the tool's commands, and where to run them.
#[derive(Debug)]
pub(crate) struct Push {
    /// The tool, or terragrunt.
    pub(crate) program: String,
    /// The workspace of the state, if it is known.
    pub(crate) workspace: Option<String>,
    /// The module inside the source.
    pub(crate) path: PathBuf,
    /// The directory of the module, unless it is removed with the run.
    pub(crate) dir: Option<PathBuf>,
}

impl Push {
    fn place(&self) -> String {
        let place = match &self.dir {
            Some(dir) => format!("in {}", dir.display()),
            None if self.path.as_os_str().is_empty() => {
                "in a checkout of the same commit".to_owned()
            }
            None => {
                format!("in the directory {} of a checkout of the same commit", self.path.display())
            }
        };
        let unknown = " and with TF_WORKSPACE set to the workspace of that apply";
        place + if self.workspace.is_none() { unknown } else { "" }
    }

    /// A command of the tool in the workspace of the state.
    fn command(&self, args: &str) -> String {
        let program = &self.program;
        match self.workspace.as_deref() {
            None | Some(DEFAULT_WORKSPACE) => format!("`{program} {args}`"),
            Some(name) => format!("`TF_WORKSPACE={} {program} {args}`", quoted(name)),
        }
    }

    fn all(&self, files: &[PathBuf]) -> String {
        let files = files.iter().map(|file| quoted(&file.to_string_lossy()));
        let pushes = files.map(|file| self.command(&format!("state push {file}")));
        pushes.collect::<Vec<_>>().join(", ")
    }
}

/// State files that the tool could not write to the backend (`errored.tfstate`).
#[derive(Debug)]
pub(crate) struct ErroredState {
    /// Where they are now.
    pub(crate) files: Vec<PathBuf>,
    /// How they get into the backend.
    pub(crate) push: Box<Push>,
    /// Where the tool's output is, if it is stored.
    pub(crate) log: Option<String>,
    /// Whether the datastore has a copy; `None` outside of a pod.
    pub(crate) stored: Option<bool>,
}

impl ErroredState {
    fn whereabouts(&self) -> String {
        match broken(&self.files) {
            Some(files) => format!("and the copy in {files} is empty or incomplete"),
            None => format!("which is in {}", listed(&self.files)),
        }
    }

    /// The commands that write the state to its backend.
    pub(crate) fn hint(&self) -> String {
        let Self { push, stored, .. } = self;
        let (place, init, pushes) = (push.place(), push.command("init"), push.all(&self.files));
        let copy = match stored {
            Some(true) => {
                "; the file is deleted with this pod: the datastore has it as errored.tfstate of the attempt"
            }
            Some(false) => {
                "; the file is deleted with this pod, and is not stored: copy it before the pod ends"
            }
            None => "",
        };
        if let Some(files) = broken(&self.files) {
            let log = self.log.as_deref().unwrap_or("the output above");
            let push = push.command("state push STATE");
            return format!(
                "resources may exist that the backend does not know: check whether the disk is full; the tool also \
                 prints a state that it cannot save: copy that JSON document from {log} into a file STATE; before \
                 anything else plans or applies, run {init} and then {push} {place}, \
                 and remove {files}{copy}"
            );
        }
        format!(
            "resources may exist that only this file records: before anything else plans or applies, run \
             {init} and then {pushes} {place}, and remove the file{copy}"
        )
    }
}

/// State files that an earlier apply could not write to its backend.
#[derive(Debug)]
pub(crate) struct Unpushed {
    /// At least one.
    pub(crate) files: Vec<PathBuf>,
    /// How they get into the backend.
    pub(crate) push: Box<Push>,
    /// Whether they are part of the commit, so that every checkout brings them back.
    pub(crate) in_commit: bool,
}

impl fmt::Display for Unpushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", listed(&self.files))?;
        f.write_str(if let [_] = *self.files { " is a state" } else { " are states" })?;
        f.write_str(" that an earlier apply could not write to its backend")?;
        f.write_str(if self.in_commit { ", and part of the commit" } else { "" })
    }
}

impl Unpushed {
    /// The commands that write the states to their backend, and what to do then.
    pub(crate) fn hint(&self) -> String {
        let Self { files, push, in_commit } = self;
        let init = push.command("init");
        if *in_commit {
            return format!(
                "in that directory of a checkout of the commit run {init} and then {}, unless that was done before; then remove the file from the repository (`git rm`), \
                 commit that, and plan again",
                push.command("state push errored.tfstate")
            );
        }
        if let Some(broken) = broken(files) {
            return format!(
                "{broken} is empty or incomplete, but the tool also printed the state: copy that JSON document from \
                 its output (run.log of that attempt) into a file STATE, {} run {init} and then {}, \
                 then remove {}, and run again",
                push.place(),
                push.command("state push STATE"),
                listed(files)
            );
        }
        format!(
            "{} run {init} and then {}, then remove the {}, and run again",
            push.place(),
            push.all(files),
            if let [_] = **files { "file" } else { "files" }
        )
    }
}

/// The files that hold no whole state; `None` if all do.
fn broken(files: &[PathBuf]) -> Option<String> {
    let broken = files.iter().filter(|file| !states::is_whole(file)).cloned().collect::<Vec<_>>();
    (!broken.is_empty()).then(|| listed(&broken))
}
