//! Policies: whether a plan may be applied unattended.
//!
//! A policy reads the plan as JSON and returns a [`Verdict`]. The built-in one allows everything that destroys nothing. It
//! knows neither runs nor the datastore; what follows from a verdict is decided in [`crate::run::check`].

mod change;
mod digest;
pub(crate) mod kind;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::cli::PolicyArgs;
use crate::policy::change::{Planned, PlannedChange, PlannedOutput};
use crate::policy::kind::Kind;
use crate::policy::rules::{Decision, Rules};
use crate::run::plan::summary::{self, PlanError};

/// What decides about a plan.
#[derive(Debug)]
pub(crate) struct Policy {
    rules: Vec<Rules>,
    sha256: Sha256,
}

/// The policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    #[error("the policy {}", .file.display())]
    Read {
        file: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("the policy {}: {reason}", .file.display())]
    Invalid { file: PathBuf, reason: String },
    #[error(
        "the policy {} is inside of the source {}, so who writes the code could allow himself everything; keep it elsewhere, or \
         allow that with --policy-from-source", .file.display(), .source_dir.display()
    )]
    InSource { file: PathBuf, source_dir: PathBuf },
    #[error("the policy cannot judge the plan")]
    Plan(#[from] PlanError),
    #[error("the policy cannot judge the plan: {0}")]
    Unreadable(#[from] io::Error),
}

/// What is known beside the plan.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// The addresses of objects that a failed run of this layer has started to create, and has not completed.
    pub(crate) created_by_failed_run: BTreeSet<String>,
}

/// A change, and what the policy says of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JudgedChange {
    pub(crate) address: String,
    pub(crate) kind: Kind,
    /// Why the tool plans it.
    pub(crate) action_reason: Option<String>,
    /// Why it is not allowed without an approval.
    pub(crate) refused: Vec<String>,
}

/// What the policy says of a plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) changes: Vec<JudgedChange>,
    /// Watched outputs that change, which needs an approval.
    pub(crate) outputs: Vec<String>,
    /// What no approval lifts.
    pub(crate) denials: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// The digest of what needs an approval.
    pub(crate) destructive_sha256: Option<Sha256>,
    pub(crate) counts: BTreeMap<String, u64>,
}

impl Verdict {
    /// Whether the plan may be applied as it is.
    pub(crate) fn is_allowed(&self) -> bool {
        self.denials.is_empty() && self.destructive_sha256.is_none()
    }

    /// Whether the plan may be applied if its destructive changes are approved.
    pub(crate) fn is_allowed_with_approval(&self) -> bool {
        self.denials.is_empty()
    }

    /// What is refused, and why, for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let refused = self.changes.iter().filter(|change| !change.refused.is_empty());
        let refused = refused.map(|JudgedChange { address, kind, action_reason, refused }| {
            let reason = action_reason.as_ref().map(|reason| format!(" ({reason})"));
            format!("{kind} {address}{}: {}", reason.unwrap_or_default(), refused.join("; "))
        });
        let outputs = self.outputs.iter().map(|name| format!("the watched output {name} changes"));
        refused
            .chain(outputs)
            .chain(self.denials.iter().map(|reason| format!("denied: {reason}")))
            .collect()
    }
}

impl Policy {
    /// Reads the policy. `source`: the directory of the code, in which a policy is refused unless the arguments allow it.
    pub(crate) fn load(args: &PolicyArgs, source: Option<&Path>) -> Result<Self, PolicyError> {
        let mut text = format!("plancha default policy 1\n{:?}\n", args.destructive_output);
        let mut rules = Vec::new();
        for file in &args.policy {
            if !args.policy_from_source {
                check_outside(file, source)?;
            }
            let unread = |cause| PolicyError::Read { file: file.clone(), cause };
            let yaml = fs::read_to_string(file).map_err(unread)?;
            let parsed = Rules::parse(&yaml);
            rules.push(
                parsed.map_err(|reason| PolicyError::Invalid { file: file.clone(), reason })?,
            );
            text = format!("{text}{}\n{yaml}", yaml.len());
        }
        if !args.destructive_output.is_empty() {
            rules.push(Rules::of_outputs(&args.destructive_output));
        }
        Ok(Self { rules, sha256: Sha256::of(text.as_bytes()) })
    }

    /// The digest of everything that decides.
    pub(crate) fn sha256(&self) -> Sha256 {
        self.sha256
    }

    /// Judges the output of `show -json`. It reads a file, so it blocks.
    pub(crate) fn judge(&self, plan: &Path, evidence: &Evidence) -> Result<Verdict, PolicyError> {
        let plan = fs::File::open(plan)?;
        let read = summary::read_into(Planned::default(), Planned::of_outputs(), plan)?;
        let (resources, outputs) = (read.resources.changes, read.outputs.outputs);
        let count = resources.len();
        let mut verdict = Verdict::default();
        let mut destructive = Vec::new();
        for change in resources {
            let refused = self.reasons(&change, evidence);
            *verdict.counts.entry(change.kind.as_str().to_owned()).or_default() += 1;
            if !refused.is_empty() {
                destructive.push(change.content);
            }
            let PlannedChange { address, kind, action_reason, .. } = change;
            verdict.changes.push(JudgedChange { address, kind, action_reason, refused });
        }
        for watched in self.rules.iter().flat_map(|rules| &rules.watched_outputs) {
            if let Some(changed) = watched_change(watched, &outputs) {
                verdict.outputs.push(watched.clone());
                destructive.push(changed);
            }
        }
        verdict.outputs.sort();
        verdict.outputs.dedup();
        for limit in self.rules.iter().filter_map(|rules| rules.max_changes) {
            if count as u64 > limit {
                verdict
                    .denials
                    .push(format!("the plan has {count} changes, and max_changes is {limit}"));
            }
        }
        verdict.destructive_sha256 = digest::of_set(destructive);
        Ok(verdict)
    }

    /// Why a change is not allowed: by the first rule that matches it, without one by the default. Of several files the
    /// strictest decides.
    fn reasons(&self, change: &PlannedChange, evidence: &Evidence) -> Vec<String> {
        let by_default = default_reason(change, evidence);
        if self.rules.is_empty() {
            return by_default.into_iter().collect();
        }
        let mut reasons = Vec::new();
        for rules in &self.rules {
            let reason = match rules.decision(change) {
                None => by_default.clone(),
                Some(Decision::Allowed) => None,
                Some(Decision::Refused(reason)) => Some(reason),
            };
            reasons.extend(reason.filter(|reason| !reasons.contains(reason)));
        }
        reasons
    }
}

/// The change of a watched output, `NAME` or `NAME.PATH`. A new output takes nothing away.
fn watched_change(watched: &str, outputs: &[PlannedOutput]) -> Option<Sha256> {
    let path = watched.split('.').collect::<Vec<_>>();
    let (name, path) = path.split_first()?;
    let output = outputs.iter().find(|output| output.name == *name && !output.is_new)?;
    digest::of_output(watched, path, &output.before, &output.after)
}

/// Why the built-in policy does not allow a change.
fn default_reason(change: &PlannedChange, evidence: &Evidence) -> Option<String> {
    if !change.kind.is_destructive() {
        return None;
    }
    let is_tainted = change.action_reason.as_deref() == Some("replace_because_tainted");
    if is_tainted && evidence.created_by_failed_run.contains(&change.address) {
        return None;
    }
    Some(match change.kind {
        Kind::Forget => "the object would stay without being managed".to_owned(),
        Kind::Replace if is_tainted => {
            "it is tainted, and no failed run of this layer is known to have created it".to_owned()
        }
        Kind::Unknown => format!("unknown actions {:?}", change.actions),
        kind => format!("{kind} is destructive"),
    })
}

/// Refuses a policy inside of the source.
fn check_outside(file: &Path, source: Option<&Path>) -> Result<(), PolicyError> {
    let Some(source) = source.and_then(|dir| fs::canonicalize(dir).ok()) else { return Ok(()) };
    let unread = |cause| PolicyError::Read { file: file.to_owned(), cause };
    // Both the name and what it leads to: a link in the source could be changed as well.
    let named = std::path::absolute(file).map_err(unread)?;
    let target = fs::canonicalize(file).map_err(unread)?;
    if named.starts_with(&source) || target.starts_with(&source) {
        return Err(PolicyError::InSource { file: file.to_owned(), source_dir: source });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
