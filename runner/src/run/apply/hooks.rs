//! Programs of the operator that run before and after the tool applies. The first one may refuse the apply.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::process::Program;
use crate::run::check::error::CheckError;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::{PLAN_FILE, Run};

/// The steps of the hooks.
const BEFORE: &str = "before-apply";
const AFTER: &str = "after-apply";

impl Run<'_> {
    /// Asks the program before the apply. It gets the plan as JSON, if there is one. Nothing has been used up by then.
    pub(super) async fn before_apply(&mut self, prepared: &Prepared) -> Result<(), RunError> {
        let Some(hook) = self.job.hooks.before_apply.clone() else { return Ok(()) };
        let mut program = self.hook(&hook, BEFORE, prepared);
        if self.report.plan.is_some() {
            let json = self.scratch.join("hook-plan.json");
            let show = prepared.tool().show_json(&self.scratch.join(PLAN_FILE));
            self.step_into("show json", &show, &json).await?;
            program.env.push(variable("PLAN_JSON", json));
        }
        match self.step(BEFORE, &program).await {
            Err(RunError::Tool { code, .. }) => Err(CheckError::Vetoed { hook, code }.into()),
            ended => ended,
        }
    }

    /// Runs the program after the apply, which has `succeeded` or not. After a signal it does not run.
    pub(super) async fn after_apply(&mut self, prepared: &Prepared, succeeded: bool) {
        let Some(hook) = self.job.hooks.after_apply.clone() else { return };
        let mut program = self.hook(&hook, AFTER, prepared);
        let result = if succeeded { "succeeded" } else { "failed" };
        program.env.push(variable("RESULT", result));
        if let Err(error) = self.step(AFTER, &program).await {
            let error = datastore_api::chain(&error);
            tracing::warn!("the program after the apply, {}, failed: {error}", hook.display());
        }
    }

    fn hook(&self, path: &Path, step: &str, prepared: &Prepared) -> Program {
        let run = &self.job.run;
        let mut program = prepared.tool().beside(path);
        let tool: PathBuf = prepared.installed.path.clone();
        program.env.push(("PLANCHA_HOOK".to_owned(), step.into()));
        program.env.extend([
            variable("NAMESPACE", run.namespace.to_string()),
            variable("LAYER", run.layer.to_string()),
            variable("RUN", run.run.to_string()),
            variable("TOOL", tool),
        ]);
        program
    }
}

/// A variable of a hook. They have a prefix of their own, so that a runner that a hook starts reads none of them.
fn variable(name: &str, value: impl Into<OsString>) -> (String, OsString) {
    (format!("PLANCHA_HOOK_{name}"), value.into())
}
