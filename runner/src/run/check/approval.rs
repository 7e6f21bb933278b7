//! Approvals of destructive changes: what is offered after a plan, and used up before an apply. The datastore keeps them.

use datastore_api::client::ApprovalAnswer;
use datastore_api::{Attempt, RunAttempt, Sha256, chain};

use crate::order::job::ApprovedSet;
use crate::report::{CheckReport, UsedApproval};
use crate::run::Run;
use crate::run::artifacts::random_id;
use crate::run::check::error::CheckError;
use crate::run::error::RunError;

/// What to do where nothing keeps approvals.
const NO_APPROVALS: &str = "nothing was applied; use a datastore that keeps approvals";

impl Run<'_> {
    /// Offers the destructive changes for approval, and names the digest that approves them. With an approval nothing is offered
    /// before that is used: only what somebody has seen before can be approved.
    pub(super) async fn offer_approval(&self, report: &mut CheckReport) -> Result<(), RunError> {
        let approves = self.job.action.approval().digest().is_some();
        let Some(set) = report.destructive_sha256.filter(|_| !report.allowed && !approves) else {
            return Ok(());
        };
        if let Some((approval, expires)) = self.offer(set).await? {
            let line = format!(
                "`runner converge --approve-destructive {approval}` approves exactly these changes once, until {expires}"
            );
            tracing::info!("{line}");
            self.log.line(&line)?;
            (report.approval, report.approval_expires) = (Some(approval), Some(expires));
        }
        Ok(())
    }

    /// The digest that approves a set, and until when. `None`: nothing keeps approvals.
    async fn offer(&self, set: Sha256) -> Result<Option<(Sha256, String)>, RunError> {
        let (Some(client), Some(judging)) = (&self.job.datastore, &self.job.judging) else {
            return Ok(None);
        };
        let (namespace, layer) = (&self.job.run.namespace, &self.job.run.layer);
        let run = self.run_attempt();
        let lifetime = Some(judging.approval_lifetime.as_secs());
        let offer = client.offer_approval(namespace, layer, set, &run, lifetime);
        match self.signals.or(offer).await.map_err(RunError::Stopped)? {
            Ok(offer) => Ok(Some((offer.approval, offer.expires))),
            Err(error) => {
                tracing::warn!("the changes are not offered for approval: {}", chain(&error));
                Ok(None)
            }
        }
    }

    /// Uses up the approval of this apply, right before the tool starts. If that is refused, nothing is applied.
    pub(in crate::run) async fn use_approval(&mut self) -> Result<(), RunError> {
        let Some(ApprovedSet { set, approval }) = self.job.action.approved_set() else {
            return Ok(());
        };
        let Some(client) = &self.job.datastore else {
            let reason = "without a datastore it is not known whether they were".to_owned();
            return Err(CheckError::NotApproved { reason, hint: NO_APPROVALS.to_owned() }.into());
        };
        let (namespace, layer) = (&self.job.run.namespace, &self.job.run.layer);
        let (claim, run) = (random_id(), self.run_attempt());
        let claimed = client.claim_approval(namespace, layer, approval, set, &claim, &run);
        let reason = match self.signals.or(claimed).await.map_err(RunError::Stopped)?? {
            ApprovalAnswer::Granted { by, at } => {
                let who = by.as_ref().map(|by| format!(" ({by})")).unwrap_or_default();
                let line = format!("the destructive changes are approved by {approval}{who}");
                tracing::info!("{line}");
                self.log.line(&line)?;
                if let Some(check) = &mut self.report.check {
                    check.allowed = true;
                    check.used_approval = Some(UsedApproval { digest: approval, by, at: Some(at) });
                }
                self.annotate_approved().await;
                return Ok(());
            }
            refused => refusal(approval, &refused),
        };
        let offered = self.offer(set).await?;
        let hint = match offered {
            Some((digest, expires)) => {
                if let Some(check) = &mut self.report.check {
                    check.approval = Some(digest);
                    check.approval_expires = Some(expires.clone());
                }
                format!(
                    "nothing was applied; review the changes; `--approve-destructive {digest}` approves them until {expires}"
                )
            }
            None => NO_APPROVALS.to_owned(),
        };
        Err(CheckError::NotApproved { reason, hint }.into())
    }

    fn run_attempt(&self) -> RunAttempt {
        let attempt = self.attempt().unwrap_or(Attempt(0));
        RunAttempt { run: self.job.run.run.clone(), attempt }
    }
}

/// Why an approval is refused.
fn refusal(approval: Sha256, answer: &ApprovalAnswer) -> String {
    match answer {
        ApprovalAnswer::Used { run, at, .. } => format!("{approval} was used by {run} at {at}"),
        ApprovalAnswer::Expired { at } => format!("{approval} expired at {at}"),
        ApprovalAnswer::OtherSet { .. } => {
            format!("{approval} approves other changes than those of this plan")
        }
        ApprovalAnswer::Unsupported => "the datastore is older than this runner".to_owned(),
        ApprovalAnswer::Unknown | ApprovalAnswer::Granted { .. } => {
            format!("no check or plan of this layer has printed {approval}")
        }
    }
}
