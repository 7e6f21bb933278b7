//! What check and converge add to a plan: the policy, the status of the layer, approvals, and the decision whether the plan is
//! applied. The policy itself is in [`crate::policy`].

pub(crate) mod approval;
pub(crate) mod error;
pub(crate) mod going_on;
pub(crate) mod status;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datastore_api::status::{Condition, LISTED_CHANGES, ListedChange};
use datastore_api::{Sha256, chain};

use crate::basis::backend::Backend;
use crate::basis::plan_file::{begins_without_state, state_size_in_plan, version_in_plan};
use crate::order::action::NOT_APPROVED;
use crate::order::job::{Action, Approval, Judging};
use crate::policy::{Evidence, Policy, PolicyError, Verdict};
use crate::report::{CheckReport, UsedApproval};
use crate::run::check::error::CheckError;
use crate::run::error::RunError;
use crate::run::plan::summary::{Objects, Summary};
use crate::run::prepare::Prepared;
use crate::run::prepare::datastore_state::error::MissingIn;
use crate::run::{PLAN_FILE, Run};

/// Why a tainted object is replaced.
const TAINTED: &str = "replace_because_tainted";

impl Run<'_> {
    /// Whether the state has changed since it was planned without its lock. For the second time that is an error.
    pub(super) async fn has_state_moved(
        &mut self,
        prepared: &Prepared,
        plan: &Path,
        tries: u32,
    ) -> Result<bool, RunError> {
        let Some(planned) = version_in_plan(plan) else { return Ok(false) };
        let Some(now) = self.pull_version(prepared).await? else { return Ok(false) };
        if planned == now {
            return Ok(false);
        }
        if tries > 1 {
            return Err(CheckError::StateMoved.into());
        }
        let line = "another run has changed the state meanwhile: planning again";
        tracing::info!("{line}");
        self.log.line(line)?;
        Ok(true)
    }

    /// Refuses to converge without a state, whatever its backend is, if this layer was applied before: no person reviews the
    /// plan, which would create everything again.
    pub(super) async fn check_state_exists(
        &mut self,
        prepared: &Prepared,
        plan: &Path,
    ) -> Result<(), RunError> {
        if !matches!(self.job.action, Action::Converge(_)) {
            return Ok(());
        }
        let is_missing = if let Some(is_missing) = begins_without_state(plan) {
            is_missing
        } else {
            // Tofu may have encrypted it.
            let version = self.pull_version(prepared).await?;
            version.is_some_and(|state| state.lineage.is_empty())
        };
        if !is_missing {
            return Ok(());
        }
        let backend = self.report.backend.as_ref().map(Backend::to_string);
        let backend = backend.map(|backend| format!(" {backend}")).unwrap_or_default();
        let missing = format!("there is no state in the backend{backend}");
        self.check_earlier_applies(&missing, MissingIn::Backend).await
    }

    /// Compares the plan with the policy, and records the status of the layer.
    pub(super) async fn judge(&mut self, json: &Path, summary: &Summary) -> Result<(), RunError> {
        let Some(Judging { policy, .. }) = &self.job.judging else { return Ok(()) };
        let mut verdict = judged(policy, json, Evidence::default()).await?;
        let has_tainted = verdict.changes.iter().any(|change| {
            !change.refused.is_empty() && change.action_reason.as_deref() == Some(TAINTED)
        });
        if has_tainted {
            let evidence = Evidence { created_by_failed_run: self.failed_creations().await? };
            verdict = judged(policy, json, evidence).await?;
        }
        let mut report = check_report(&verdict, summary, policy);
        // The same changes of another layer need an approval of their own.
        let of_layer = |set| {
            Sha256::of(
                format!("{}/{}\n{set}", self.job.run.namespace, self.job.run.layer).as_bytes(),
            )
        };
        report.destructive_sha256 = report.destructive_sha256.map(of_layer);
        report.state_bytes = state_size_in_plan(&self.scratch.join(PLAN_FILE));
        report.mask(&self.environment.redaction);
        // No approval lifts a denial.
        if verdict.is_allowed_with_approval() {
            self.offer_approval(&mut report).await?;
        }
        if matches!(self.job.action.approval(), Approval::Any) && verdict.is_allowed_with_approval()
        {
            if let Some(digest) = report.destructive_sha256.filter(|_| !report.allowed) {
                report.used_approval = Some(UsedApproval { digest, by: None, at: None });
            }
            report.allowed = true;
        }
        for line in verdict.warnings.iter().map(|warning| format!("policy: warning: {warning}")) {
            tracing::warn!("{line}");
            self.log.line(&line)?;
        }
        if !verdict.is_allowed() {
            for line in verdict.lines() {
                let line = format!("policy: {line}");
                tracing::warn!("{line}");
                self.log.line(&line)?;
            }
        }
        let line = format!("status: {}", shown(&report));
        tracing::info!("{line}");
        self.log.line(&line)?;
        self.report.check = Some(report);
        Ok(())
    }

    /// What ledgers of this layer show as started and never completed since it was last as declared. Without a datastore there are none.
    async fn failed_creations(&self) -> Result<BTreeSet<String>, RunError> {
        let read = async {
            let last_ok = self.last_ok().await?;
            self.created_by_failed_runs(last_ok).await
        };
        let read = self.signals.or(read).await;
        match read.map_err(RunError::Stopped)? {
            Ok(addresses) => Ok(addresses),
            Err(error) => {
                tracing::warn!(
                    "the ledgers of the layer cannot be read, so tainted objects stay: {}",
                    chain(&error)
                );
                Ok(BTreeSet::new())
            }
        }
    }
}

/// The verdict of the policy. It may take a while.
async fn judged(
    policy: &Arc<Policy>,
    json: &Path,
    evidence: Evidence,
) -> Result<Verdict, RunError> {
    let (policy, json): (_, PathBuf) = (Arc::clone(policy), json.to_owned());
    let judged = tokio::task::spawn_blocking(move || policy.judge(&json, &evidence));
    let judged: Result<Verdict, PolicyError> = judged.await.map_err(std::io::Error::other)?;
    Ok(judged.map_err(CheckError::Policy)?)
}

/// What is reported of a verdict.
fn check_report(verdict: &Verdict, summary: &Summary, policy: &Policy) -> CheckReport {
    let Objects { in_state, in_code } = summary.objects;
    let status = match (in_state, in_code) {
        _ if !summary.changes && verdict.denials.is_empty() => Condition::Ok,
        (true, false) => Condition::Abandoned,
        _ if !verdict.is_allowed() => Condition::DestructivelyChanged,
        (false, true) => Condition::Absent,
        _ => Condition::Changed,
    };
    let listed = verdict.changes.iter().take(LISTED_CHANGES).map(|change| ListedChange {
        address: change.address.clone(),
        action: change.kind.to_string(),
        refused: (!change.refused.is_empty()).then(|| change.refused.join("; ")),
    });
    CheckReport {
        status,
        allowed: verdict.is_allowed(),
        counts: verdict
            .counts
            .iter()
            .filter(|(_, n)| **n > 0)
            .map(|(k, n)| (k.clone(), *n))
            .collect(),
        changes: listed.collect(),
        denials: verdict.denials.clone(),
        warnings: verdict.warnings.clone(),
        destructive_sha256: verdict.destructive_sha256,
        approval: None,
        approval_expires: None,
        used_approval: None,
        policy_sha256: policy.sha256(),
        state_bytes: None,
    }
}

/// The status on one line: `changed (1 update, 2 create)`.
pub(crate) fn shown(report: &CheckReport) -> String {
    let counts = report.counts.iter().filter(|(_, count)| **count > 0);
    let counts = counts.map(|(action, count)| format!("{count} {action}")).collect::<Vec<_>>();
    if counts.is_empty() {
        return report.status.to_string();
    }
    format!("{} ({})", report.status, counts.join(", "))
}

/// The exit code of a check, and of a converge that is not applied.
pub(super) fn exit_code(report: &CheckReport, action: &Action, judging: &Judging) -> u8 {
    match (action, report.status) {
        (Action::Check { .. }, Condition::DestructivelyChanged | Condition::Abandoned) => {
            NOT_APPROVED
        }
        (Action::Check { detailed_exitcode: true }, Condition::Changed | Condition::Absent) => 2,
        (Action::Converge(_), _) if !report.allowed && !judging.exit_zero_on_skip => NOT_APPROVED,
        _ => 0,
    }
}
