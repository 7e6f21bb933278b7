//! The rest of an apply that failed, as a new plan. It is applied only if it is a *remainder* of the plan that was reviewed:
//! [`compare`](compare::compare) decides that.

mod compare;
pub(crate) mod differences;
mod document;
mod done;
mod imported;
mod of_address;
mod options;
mod planned;
mod state;
mod surroundings;
#[cfg(test)]
mod tests;
mod tries;
mod variables;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use datastore_api::client::Upload;
use fs_err as fs;

pub(super) use imported::{Imported, Imports};
pub(super) use of_address::{Creation, creations, is_same_creation, planned_id};
pub(super) use surroundings::Surroundings;
pub(super) use tries::Applying;

use crate::basis::plan_file::{Contents, other_code};
use crate::process::private_file;
use crate::report::Counts;
use crate::run::apply::remainder::compare::compare;
use crate::run::apply::remainder::done::Done;
use crate::run::error::RunError;
use crate::run::plan::summary::Summary;
use crate::run::prepare::Prepared;
use crate::run::{PLAN_FILE, Run};
use crate::tool::argv::PlanOptions;
use crate::tool::diagnosis::import_block;
use crate::tool::import_file::ImportFile;

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
    /// Plans again, with the options of the reviewed plan, and compares both plans. Without a reviewed one only what is imported
    /// is checked.
    async fn plan_remainder(
        &mut self,
        prepared: &mut Prepared,
        options: &PlanOptions,
        done: &Done,
        number: u32,
    ) -> Result<Remainder, RunError> {
        let [bin, json] = names(number).map(|name| self.scratch.join(&name));
        let reviewed = match self.report.plan {
            Some(_) => Some(self.reviewed_json(prepared).await?),
            None => None,
        };
        let options = &self.with_recorded_values(options, reviewed.as_deref())?;
        // A plan that failed may have left a part of its file.
        let empty = || private_file(&bin).map(drop);
        let blocks = import_file(prepared, &done.imports)?;
        self.step_with_retries(prepared, "plan", empty, |tool| tool.plan(&bin, options)).await?;
        let added = blocks.as_ref().and_then(ImportFile::name);
        drop(blocks);
        self.step_into("show json", &prepared.tool().show_json(&bin), &json).await?;
        self.redact_plan(&json).await;
        let (new, done) = (json.clone(), done.clone());
        let is_reviewed = reviewed.is_some();
        let compared = tokio::task::spawn_blocking(move || {
            let differences = match reviewed {
                Some(reviewed) => compare(fs::File::open(reviewed)?, fs::File::open(&new)?, &done)?,
                None => imported::differences(fs::File::open(&new)?, &done.imports)?,
            };
            let summary = Summary::from_json(fs::File::open(new)?)?;
            Ok::<_, RunError>((differences, summary.counts))
        });
        let compared = self.signals.or(compared).await.map_err(RunError::Stopped)?;
        let (differences, counts) = compared.map_err(std::io::Error::other)??;
        if !differences.is_empty() {
            return Err(RunError::NoRemainder(differences));
        }
        if is_reviewed {
            self.check_origin(prepared, &bin, added.as_deref())?;
        }
        let sha256 = Upload::file(&bin).await?.sha256();
        let what = if is_reviewed { "what is left was reviewed" } else { "what is left" };
        let line = format!("{what}: {counts} (sha256 {sha256})");
        tracing::info!("{line}");
        self.log.line(&line)?;
        Ok(Remainder { bin, json, sha256, counts })
    }

    /// Refuses a new plan of other code, another workspace or another backend than those of the reviewed plan, as far as the
    /// files of both contain them.
    fn check_origin(
        &self,
        prepared: &Prepared,
        new: &Path,
        added: Option<&str>,
    ) -> Result<(), RunError> {
        let reviewed = self.scratch.join(PLAN_FILE);
        if let Some(file) = other_code(&reviewed, new, added)? {
            return Err(RunError::Changed(format!("{file} is not that of the reviewed plan")));
        }
        let read =
            |plan: &Path| Contents::read(plan, &prepared.workspace.dir, &self.environment.backend);
        let (Some(theirs), Some(ours)) = (read(&reviewed), read(new)) else { return Ok(()) };
        let other = |what: &str, theirs: &dyn fmt::Display, ours: &dyn fmt::Display| {
            let text = format!("the {what} is not that of the reviewed plan, {theirs}: {ours}");
            Err(RunError::Changed(text))
        };
        if let (Some(theirs), Some(ours)) = (&theirs.workspace, &ours.workspace)
            && theirs != ours
        {
            return other("workspace", theirs, ours);
        }
        match (&theirs.backend, &ours.backend) {
            (Some(theirs), Some(ours))
                if !theirs.agrees_with(ours) || theirs.is_other_file(ours) =>
            {
                other("backend", theirs, ours)
            }
            _ => Ok(()),
        }
    }
}

impl Run<'_> {
    /// The options with the values that variables have in the reviewed plan, where only their names are recorded.
    pub(super) fn with_recorded_values(
        &self,
        options: &PlanOptions,
        reviewed: Option<&Path>,
    ) -> io::Result<PlanOptions> {
        match reviewed {
            Some(reviewed) => {
                variables::with_values(options, reviewed, &self.scratch.join(variables::VALUES))
            }
            None => Ok(options.clone()),
        }
    }
}

/// The file with the blocks for what the next plan has to import.
fn import_file(prepared: &Prepared, imports: &Imports) -> Result<Option<ImportFile>, RunError> {
    let pending = imports.iter().filter(|(_, imported)| imported.is_pending);
    let blocks =
        pending.map(|(address, imported)| import_block(address, Some(&imported.id)) + "\n");
    let blocks = blocks.collect::<String>();
    if blocks.is_empty() {
        return Ok(None);
    }
    Ok(Some(ImportFile::create(&prepared.workspace.dir, &blocks)?))
}
