//! Rego policies, by conftest's rules. They are evaluated in a worker: a second process of the runner with a limit of
//! memory and time, which ends with its answer.

mod calls;
mod engine;
mod question;

use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::RegoVersion;
use crate::policy::error::PolicyError;
use crate::policy::files::PolicyFile;
pub(super) use crate::policy::rego::question::Messages;
use crate::policy::rego::question::{Answer, Document, Module, Question};
use crate::process::worker;

/// The worker's `argv[0]`.
pub const NAME: &str = "plancha-policy";

/// What a policy may take for one plan.
const TIME: Duration = Duration::from_secs(10);
const MEMORY: u64 = 256 << 20;

/// A policy in Rego, which has been compiled once.
#[derive(Debug)]
pub(super) struct Rego {
    question: Question,
}

impl Rego {
    /// Compiles a policy.
    pub(super) fn new(
        policy: &[PolicyFile],
        data: &[PolicyFile],
        version: RegoVersion,
    ) -> Result<Self, PolicyError> {
        let module = |file: &PolicyFile| Module {
            name: file.path.display().to_string(),
            text: file.text.clone(),
        };
        let document = |file: &PolicyFile| Document {
            name: file.path.display().to_string(),
            below: directories(file),
            text: file.text.clone(),
        };
        let question = Question {
            is_v0: version == RegoVersion::V0,
            modules: policy.iter().map(module).collect(),
            data: data.iter().map(document).collect(),
        };
        let rego = Self { question };
        rego.ask(None)?;
        Ok(rego)
    }

    /// What the policy says of a plan, the output of `show -json`.
    pub(super) fn evaluate(&self, plan: File) -> Result<Messages, PolicyError> {
        self.ask(Some(plan))
    }

    fn ask(&self, plan: Option<File>) -> Result<Messages, PolicyError> {
        // The program of the unit tests has no worker.
        let answer = if cfg!(test) {
            let mut question = Vec::new();
            self.question.write(plan, &mut question).map_err(PolicyError::PlanFile)?;
            engine::answer(&question[..])
        } else {
            let write = |to: &mut dyn Write| self.question.write(plan, to);
            let answer = worker::ask(NAME, write, TIME).map_err(PolicyError::Worker)?;
            serde_json::from_slice(&answer)
                .unwrap_or_else(|error| Answer::Invalid(format!("its worker's answer: {error}")))
        };
        match answer {
            Answer::Messages { denials, warnings } => Ok(Messages { denials, warnings }),
            Answer::Invalid(reason) => Err(PolicyError::Rego(reason)),
        }
    }
}

/// The names of the directories between the named one and a file. Its document is below these names in `data`.
fn directories(file: &PolicyFile) -> Vec<String> {
    let parents = file.below.parent().into_iter().flat_map(std::path::Path::components);
    parents.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
}

/// The worker's program.
pub fn main() -> ExitCode {
    let limited = worker::limit_self(MEMORY, TIME);
    let answered = limited.and_then(|()| {
        let answer = engine::answer(io::stdin().lock());
        serde_json::to_writer(io::stdout().lock(), &answer).map_err(io::Error::from)
    });
    if answered.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
