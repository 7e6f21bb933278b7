//! Why a run cannot be shown.

use std::io;
use std::path::PathBuf;

use datastore_api::{Attempt, ClientError, Name, RunKey};

use crate::basis::binding::BindingError;
use crate::order::job::JobError;
use crate::policy::PolicyError;

/// Why a run cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShowError {
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("layer {namespace}/{layer} has no runs in this datastore")]
    NoRuns { namespace: Name, layer: Name },
    #[error("layer {}/{} has no run {}; {}", .run.namespace, .run.layer, .run.run, newest(.others))]
    NoRun { run: RunKey, others: Vec<String> },
    #[error("run {run} has no attempt {attempt}; it has {}", list(.others))]
    NoAttempt { run: Name, attempt: Attempt, others: Vec<Attempt> },
    #[error(
        "attempt {attempt} of run {run} has stored nothing: its runner works now or was killed"
    )]
    NothingStored { run: Name, attempt: Attempt },
    #[error("attempt {attempt} of run {run} has stored nothing: its files wait in {}", .dir.display())]
    Unsent {
        run: Name,
        attempt: Attempt,
        dir: PathBuf,
        /// What sends them.
        command: String,
    },
    #[error("attempt {attempt} of run {run} has no log; it has {}", .files.join(", "))]
    NoLog { run: Name, attempt: Attempt, files: Vec<String> },
    #[error(transparent)]
    Binding(#[from] BindingError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// What the policy made of one plan.
    #[error("the plan {plan}")]
    Judged { plan: String, source: PolicyError },
    #[error("{}", if *.count == 0 { "there is no plan to judge".to_owned() } else { format!("{unreadable} of {count} plans cannot be judged") })]
    NotJudged { unreadable: usize, count: usize },
    #[error("the datastore")]
    Datastore(#[from] ClientError),
    #[error("the pager `{command}` cannot be run (exit code {code})")]
    Pager { command: String, code: i32 },
    /// The reader of the output has closed it.
    #[error("the output is closed")]
    Closed,
    /// It goes to stdout, which may be a file on any disk.
    #[error("the output cannot be written")]
    Output(#[source] io::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn newest(others: &[String]) -> String {
    if others.is_empty() {
        return "it has no runs in this datastore".to_owned();
    }
    format!("its newest are {}", others.join(", "))
}

fn list(attempts: &[Attempt]) -> String {
    attempts.iter().map(Attempt::to_string).collect::<Vec<_>>().join(", ")
}
