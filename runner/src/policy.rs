//! Which changes of a plan may be applied: the policy.
//!
//! A policy belongs to the operator, not to the code. It is read and compiled before anything else of a run, and judges
//! the output of `show -json`. Whatever is not clear is refused. Who approves what is refused, and what an approval
//! allows, is not known here.

mod canonical;
mod error;
mod files;
mod glob;
mod judge;
mod plan;
pub mod rego;
mod rules;
mod verdict;
mod watched;

#[cfg(test)]
mod tests;

use std::io::{BufReader, Read};
use std::path::Path;

use datastore_api::Sha256;
use fs_err as fs;
use serde_json::json;

use crate::cli::{PolicyArgs, RegoVersion};
pub(crate) use crate::policy::error::PolicyError;
use crate::policy::files::{Files, PolicyFile};
use crate::policy::judge::Judge;
use crate::policy::plan::Plan;
use crate::policy::rego::{Messages, Rego};
use crate::policy::rules::RuleFile;
pub(crate) use crate::policy::verdict::{Evidence, Verdict};
use crate::policy::watched::Watched;
use crate::process::redact::Redaction;
use crate::tool::sensitive;

/// The version of the default policy. Another one gives the same plan another verdict.
const DEFAULT_POLICY: u32 = 1;

/// A policy.
#[derive(Debug)]
pub(crate) struct Policy {
    judge: Judge,
    rego: Option<Rego>,
    sha256: Sha256,
}

impl Policy {
    /// Reads and compiles a policy. No file of it may be in the directory `source`, unless the flag says so.
    pub(crate) fn load(args: &PolicyArgs, source: Option<&Path>) -> Result<Self, PolicyError> {
        let outside_of = source.filter(|_| !args.policy_from_source);
        let files = files::read(&args.policy, &args.options.policy_data, outside_of)?;
        if files.rego.is_empty() && !args.options.policy_data.is_empty() {
            return Err(PolicyError::UnusedData);
        }
        let judge = judge(args, &files)?;
        let Files { rego, data, .. } = &files;
        let compiled = match rego.as_slice() {
            [] => None,
            policy => Some(Rego::new(policy, data, args.options.rego_version)?),
        };
        Ok(Self { sha256: digest(args, &files), judge, rego: compiled })
    }

    /// The digest of everything that decides: of the files and flags, and of the default policy.
    pub(crate) fn sha256(&self) -> Sha256 {
        self.sha256
    }

    /// Judges a plan, the output of `show -json`. It blocks: Rego may take seconds.
    pub(crate) fn judge(
        &self,
        plan_json: &Path,
        evidence: &Evidence,
    ) -> Result<Verdict, PolicyError> {
        let open = || fs::File::open(plan_json).map_err(PolicyError::PlanFile);
        let mut verdict = self.judge.verdict(Plan::read(open()?)?, evidence);
        if let Some(rego) = &self.rego {
            let said = rego.evaluate(open()?.into());
            add_messages(said, &mut verdict, open)?;
        }
        Ok(verdict)
    }
}

/// Adds what Rego says, without the sensitive values of the plan.
fn add_messages<R: Read>(
    said: Result<Messages, PolicyError>,
    verdict: &mut Verdict,
    open: impl Fn() -> Result<R, PolicyError>,
) -> Result<(), PolicyError> {
    if said.as_ref().is_ok_and(|said| said.denials.is_empty() && said.warnings.is_empty()) {
        return Ok(());
    }
    let redaction = Redaction::default();
    let secrets = sensitive::of_plan(BufReader::new(open()?));
    redaction.add(secrets.map_err(|error| PolicyError::PlanFile(error.into()))?);
    let mask = |text: &String| redaction.text(text);
    match said {
        Ok(said) => {
            verdict.denials.extend(said.denials.iter().map(mask));
            verdict.warnings.extend(said.warnings.iter().map(mask));
            Ok(())
        }
        // It may quote a value.
        Err(PolicyError::Rego(reason)) => Err(PolicyError::Rego(mask(&reason))),
        Err(error) => Err(error),
    }
}

/// Compiles everything but Rego.
fn judge(args: &PolicyArgs, files: &Files) -> Result<Judge, PolicyError> {
    let mut judge = Judge::default();
    for text in &args.options.destructive_output {
        let watched = text.parse::<Watched>();
        judge.watched.push(watched.map_err(|reason| PolicyError::Output(text.clone(), reason))?);
    }
    for file in &files.rules {
        let invalid = |line, reason| PolicyError::Rules { path: file.path.clone(), line, reason };
        let rules = RuleFile::parse(&file.text);
        let rules = rules.map_err(|error| invalid(error.line, error.reason))?;
        for text in &rules.watched_outputs {
            let watched = text.value.parse::<Watched>().map_err(|reason| {
                invalid(
                    text.referenced.line(),
                    format!("watched_outputs `{}`: {reason}", text.value),
                )
            })?;
            judge.watched.push(watched);
        }
        judge.files.push(rules);
    }
    judge.watched.sort();
    judge.watched.dedup();
    Ok(judge)
}

/// The digest of what decides. Where the files are is no part of it.
fn digest(args: &PolicyArgs, files: &Files) -> Sha256 {
    let list = |files: &[PolicyFile]| {
        let entry = |file: &PolicyFile| {
            json!([file.below.to_string_lossy(), Sha256::of(file.text.as_bytes()).to_string()])
        };
        files.iter().map(entry).collect::<Vec<_>>()
    };
    let Files { rules, rego, data } = files;
    let rego_version = (!rego.is_empty()).then_some(args.options.rego_version == RegoVersion::V0);
    let everything = json!({
        "default": DEFAULT_POLICY,
        "rules": list(rules),
        "rego": list(rego),
        "data": list(data),
        "rego_v0": rego_version,
        "destructive_output": args.options.destructive_output,
    });
    Sha256::of(everything.to_string().as_bytes())
}
