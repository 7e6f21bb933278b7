//! The rest of an apply that failed, as a new plan. It is applied only if it is a *remainder* of the plan that was reviewed:
//! [`compare`](compare::compare) decides that.

pub(crate) mod compare;
mod document;
mod done;
mod options;
mod planned;
#[cfg(test)]
mod tests;
mod tries;
mod variables;

use std::path::PathBuf;

use datastore_api::Sha256;
use datastore_api::client::Upload;
use fs_err as fs;

pub(super) use tries::Applying;

use crate::process::private_file;
use crate::report::Counts;
use crate::run::apply::remainder::compare::compare;
use crate::run::apply::remainder::done::Done;
use crate::run::error::RunError;
use crate::run::plan_summary::Summary;
use crate::run::prepare::Prepared;
use crate::run::{PLAN_FILE, Run};
use crate::tool::argv::PlanOptions;

/// The reviewed plan as JSON, in the private directory of the run.
const REVIEWED: &str = "reviewed.json";

/// A plan for the rest.
#[derive(Debug)]
struct Remainder {
    bin: PathBuf,
    json: PathBuf,
    sha256: Sha256,
    counts: Counts,
}

/// The names of the files of a remainder, which are as secret as those of a plan.
fn names(number: u32) -> [String; 2] {
    ["bin", "json"].map(|format| format!("remainder-{number}.{format}"))
}

impl Run<'_> {
    /// Plans again, with the options of the reviewed plan, and compares both plans.
    async fn plan_remainder(
        &mut self,
        prepared: &mut Prepared,
        options: &PlanOptions,
        done: &Done,
        number: u32,
    ) -> Result<Remainder, RunError> {
        let [bin, json] = names(number).map(|name| self.scratch.join(&name));
        let reviewed = self.scratch.join(REVIEWED);
        if !reviewed.exists() {
            let plan = self.scratch.join(PLAN_FILE);
            self.step_into("show json", &prepared.tool().show_json(&plan), &reviewed).await?;
        }
        let options =
            &variables::with_values(options, &reviewed, &self.scratch.join(variables::VALUES))?;
        // A plan that failed may have left a part of its file.
        let empty = || private_file(&bin).map(drop);
        self.step_with_retries(prepared, "plan", empty, |tool| tool.plan(&bin, options)).await?;
        self.step_into("show json", &prepared.tool().show_json(&bin), &json).await?;
        self.redact_plan(&json).await;
        let (files, done) = ([reviewed, json.clone()], done.clone());
        let compared = tokio::task::spawn_blocking(move || {
            let [reviewed, new] = files;
            let differences = compare(fs::File::open(reviewed)?, fs::File::open(&new)?, &done)?;
            let summary = Summary::from_json(fs::File::open(new)?)?;
            Ok::<_, RunError>((differences, summary.counts))
        });
        let compared = self.signals.or(compared).await.map_err(RunError::Stopped)?;
        let (differences, counts) = compared.map_err(std::io::Error::other)??;
        if !differences.is_empty() {
            return Err(RunError::NoRemainder(differences));
        }
        let sha256 = Upload::file(&bin).await?.sha256();
        let line = format!("what is left was reviewed: {counts} (sha256 {sha256})");
        tracing::info!("{line}");
        self.log.line(&line)?;
        Ok(Remainder { bin, json, sha256, counts })
    }
}
