//! Why a policy cannot be used, or a plan cannot be judged.

use std::io;
use std::path::PathBuf;

use crate::process::worker::WorkerError;
use crate::run::plan::summary::PlanError;

/// Why a policy cannot be used, or a plan cannot be judged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    /// A file or directory of the policy, or of its data.
    #[error("the policy {} cannot be read", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("the policy {path} is part of the source {source_dir}: anyone who changes the code could change it", path = .path.display(), source_dir = .source_dir.display())]
    InSource { path: PathBuf, source_dir: PathBuf },
    #[error("the policy {}: {reason}", .path.display())]
    File { path: PathBuf, reason: String },
    /// A file of rules.
    #[error("the policy {path}, line {line}: {reason}", path = .path.display())]
    Rules { path: PathBuf, line: u64, reason: String },
    #[error("--destructive-output `{0}`: {1}")]
    Output(String, &'static str),
    #[error("--policy-data is for Rego, and no policy of Rego is named")]
    UnusedData,
    /// What is wrong with Rego: file, line, and why.
    #[error("the Rego policy: {0}")]
    Rego(String),
    #[error("the Rego policy could not be evaluated")]
    Worker(#[source] WorkerError),
    /// The plan, not the policy.
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("the plan's JSON cannot be read")]
    PlanFile(#[source] io::Error),
}

impl PolicyError {
    /// Whether this is about the plan, and another plan can be judged.
    pub(crate) fn is_of_plan(&self) -> bool {
        matches!(self, Self::Plan(_) | Self::PlanFile(_))
    }
}
