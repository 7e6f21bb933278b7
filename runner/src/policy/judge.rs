//! The verdict of the default policy and of files of rules. Rego adds to it.
//!
//! For each change the strictest of the files decides that has a rule for it. Where none has, the default does: what
//! deletes, replaces or forgets an object is refused.

use datastore_api::Sha256;

use crate::policy::canonical::canonical;
use crate::policy::plan::{Plan, PlannedChange};
use crate::policy::rules::{Effect, Rule, RuleFile};
use crate::policy::verdict::{Evidence, JudgedChange, JudgedOutput, Kind, Verdict};
use crate::policy::watched::Watched;

/// Why a tainted resource is planned to be replaced.
const TAINTED: &str = "replace_because_tainted";

/// Everything but Rego.
#[derive(Debug, Default)]
pub(super) struct Judge {
    pub(super) files: Vec<RuleFile>,
    /// Outputs of the command line and of the files, sorted, each once.
    pub(super) watched: Vec<Watched>,
}

impl Judge {
    /// What is said of a plan.
    pub(super) fn verdict(&self, plan: Plan, evidence: &Evidence) -> Verdict {
        let mut verdict = Verdict::default();
        // The digests of what an approval is about.
        let mut subjects = Vec::new();
        for PlannedChange { mut change, content } in plan.changes {
            let denials = self.decide(&mut change, evidence);
            verdict.denials.extend(denials);
            if !change.refused.is_empty() {
                subjects.push(content);
            }
            verdict.changes.push(change);
        }
        for (name, change) in plan.outputs.iter().filter(|(_, change)| !change.is_no_op()) {
            let watched = self.watched.iter().filter(|watched| watched.name == *name);
            let changed = watched.filter(|watched| watched.is_changed(change)).collect::<Vec<_>>();
            let subject = |watched: &&Watched| canonical(&watched.subject(change));
            subjects.extend(changed.iter().map(|one| Sha256::of(subject(one).as_bytes())));
            let reason =
                |watched: &&Watched| format!("{} is watched, and changes", watched.label());
            let refused = changed.iter().map(reason).collect();
            let (name, actions) = (name.clone(), change.actions.clone());
            verdict.outputs.push(JudgedOutput { name, actions, refused });
        }
        verdict.warnings.extend(self.watched.iter().filter_map(|watched| {
            Some(match plan.outputs.get(&watched.name) {
                None => format!("the plan has no output {}, which is watched", watched.name),
                Some(change) if watched.is_missing(change) => {
                    format!(
                        "the output {} has no {}, which is watched",
                        watched.name,
                        watched.label()
                    )
                }
                Some(_) => return None,
            })
        }));
        verdict.count();
        verdict.denials.extend(self.limits(&verdict));
        verdict.destructive_sha256 = digest(&subjects);
        verdict
    }

    /// Decides about one change. Returns what no approval lifts.
    fn decide(&self, change: &mut JudgedChange, evidence: &Evidence) -> Vec<String> {
        let opinions = self.files.iter().filter_map(|file| file.first(change)).collect::<Vec<_>>();
        let strictest = opinions.iter().map(|rule| rule.verdict).max();
        let deciding = opinions.into_iter().filter(|rule| Some(rule.verdict) == strictest);
        let reasons = deciding.map(reason).collect::<Vec<_>>();
        let is_protected =
            change.destructive && self.files.iter().any(|file| file.protects(change));
        let is_denied = strictest == Some(Effect::Deny);
        let name = change.name();
        let denial = |reason: &String| format!("{name}: {}: {reason}", change.kind);
        let denials = reasons.iter().filter(|_| is_denied).map(denial).collect();
        change.refused = match strictest {
            Some(Effect::Allow) if change.kind == Kind::Unknown => unknown(),
            Some(Effect::Allow) => Vec::new(),
            Some(Effect::Refuse | Effect::Deny) => reasons,
            None => by_default(change, evidence),
        };
        if is_protected {
            change.refused.push("it is protected: only an approval lifts that".to_owned());
        }
        denials
    }

    /// The limits that a plan as a whole exceeds.
    fn limits(&self, verdict: &Verdict) -> Vec<String> {
        let mut denials = Vec::new();
        let count = verdict.changes.iter().filter(|change| change.kind != Kind::Move).count();
        if let Some(max) = self.files.iter().filter_map(|file| file.max_changes).min()
            && count as u64 > max
        {
            denials.push(format!("the plan has {count} changes; max_changes is {max}"));
        }
        if self.files.iter().any(|file| file.drift_only == Some(true)) {
            let other = verdict.changes.iter();
            let other = other.filter(|change| change.kind != Kind::Move && !change.corrects_drift);
            denials.extend(other.map(|change| {
                let (name, kind) = (change.name(), change.kind);
                format!("{name}: {kind}: it is not a correction of drift, and drift_only is set")
            }));
        }
        denials
    }
}

/// What a rule says of a change that it refuses.
fn reason(rule: &Rule) -> String {
    let verb = if rule.verdict == Effect::Deny { "denied" } else { "refused" };
    let message = rule.message.as_ref().map(|message| format!(": {message}"));
    format!("{verb} by the rule `{}`{}", rule.id.value, message.unwrap_or_default())
}

fn unknown() -> Vec<String> {
    vec!["this runner does not know these actions".to_owned()]
}

/// What the default policy says of a change for which no file has a rule.
fn by_default(change: &JudgedChange, evidence: &Evidence) -> Vec<String> {
    let is_tainted = change.action_reason.as_deref() == Some(TAINTED);
    let reason = match change.kind {
        Kind::Create | Kind::Update | Kind::Import | Kind::Move => return Vec::new(),
        Kind::Unknown => return unknown(),
        Kind::Replace
            if is_tainted && !evidence.created_by_failed_run.contains(&change.address) =>
        {
            "no ledger shows that a failed run of this layer created it"
        }
        // The creation that failed may have been that of another object, which was to replace this one.
        Kind::Replace if is_tainted && change.actions == ["create", "delete"] => {
            "it is created before the old one is destroyed, and a ledger does not show which of them a failed run created"
        }
        Kind::Replace if is_tainted => return Vec::new(),
        Kind::Replace => "an object would be destroyed and created anew",
        // The ledgers name addresses. Which of the objects of an address a failed run has created, they do not say.
        Kind::Delete if change.deposed.is_some() => "a deposed object would be destroyed",
        Kind::Delete => "an object would be destroyed",
        Kind::Forget => "an object would stay, and be managed no longer",
        Kind::Invoke => "an action would be run, and the plan does not say what it changes",
    };
    vec![reason.to_owned()]
}

/// The digest of the set, which has no order.
fn digest(subjects: &[Sha256]) -> Option<Sha256> {
    let mut lines = subjects.iter().map(|subject| format!("{subject}\n")).collect::<Vec<_>>();
    lines.sort_unstable();
    (!lines.is_empty()).then(|| Sha256::of(lines.concat().as_bytes()))
}
