//! Whether the plan of a run is applied by the same command.

use std::path::PathBuf;

use datastore_api::{Attempt, Sha256};

use crate::order::job::{Approval, ApprovedSet};
use crate::report::Outcome;
use crate::run::Run;

/// A plan of this command that is applied by its second part.
#[derive(Debug)]
pub(crate) struct PlannedApply {
    pub(crate) sha256: Sha256,
    pub(crate) attempt: Attempt,
    /// Where it is without a datastore.
    pub(crate) file: PathBuf,
    /// The approval of its destructive changes, if that decides.
    pub(crate) approval: Option<ApprovedSet>,
}

impl Run<'_> {
    /// The plan that this run has made, if the same command applies it.
    pub(crate) fn planned_apply(&self) -> Option<PlannedApply> {
        let plan = self.report.plan.as_ref()?;
        if !self.job.action.goes_on() || self.report.outcome != Outcome::Changes {
            return None;
        }
        let approval = match &self.report.check {
            Some(check) if !check.allowed => match self.job.action.approval() {
                Approval::Digest(approval) if check.denials.is_empty() => {
                    Some(ApprovedSet { set: check.destructive_sha256?, approval: *approval })
                }
                _ => return None,
            },
            _ => None,
        };
        Some(PlannedApply {
            sha256: plan.sha256,
            attempt: self.attempt().unwrap_or_default(),
            file: self.exported_plan().unwrap_or_default(),
            approval,
        })
    }
}
