//! An order that is delivered again: it is found by its key or by its run's name, and compared with the record of its
//! apply. The same order is not repeated, a different one is refused.

use std::io;

use datastore_api::Sha256;

use crate::basis::configuration;
use crate::basis::order::{OrderKey, OrderRecord, ToolInputs};
use crate::order::job::{Action, Apply};
use crate::report::{AppliedRecord, PlanReport};
use crate::run::Run;
use crate::run::error::RunError;
use crate::source::checkout::{Source, Workspace};
use crate::source::references;
use crate::source::references::installed::Called;

impl Run<'_> {
    /// The record of the latest apply under this order's key. The key under which this run's apply would be recorded is
    /// set. `None`: there is no key, no such apply, or `--again` repeats it.
    pub(super) async fn ordered_record(&mut self) -> Result<Option<AppliedRecord>, RunError> {
        let Some(text) = &self.job.order_key else { return Ok(None) };
        let Some(artifacts) = &self.artifacts else { return Ok(None) };
        if !artifacts.keeps_layer_records() {
            return Err(RunError::NoOrderKeys);
        }
        let search = async {
            let (mut key, mut latest) = (OrderKey::first(text), None);
            while let Some(record) = artifacts.applied_record_of(key.record_sha256()).await? {
                latest = Some(record);
                key = key.next();
            }
            Ok::<_, RunError>((key, latest))
        };
        let (mut key, mut latest) = self.signals.or(search).await.map_err(RunError::Stopped)??;
        if let Some(unsent) = self.unsent_record_of_order(key)
            && let Some(theirs) = unsent.order_key.filter(|theirs| theirs.index >= key.index)
        {
            key = theirs.next();
            latest = Some(unsent);
        }
        self.order_key = Some(key);
        Ok(latest.filter(|_| !self.job.again))
    }

    /// Records the apply of another order under this order's key, so that a later delivery is compared with it.
    pub(super) async fn record_under_key(&self, record: &AppliedRecord) {
        let (Some(key), Some(artifacts)) = (self.order_key, &self.artifacts) else { return };
        if record.order_key.is_some_and(|theirs| theirs.sha256 == key.sha256) {
            return;
        }
        let mut record = record.clone();
        record.order_key = Some(key);
        if let Err(error) = artifacts.record_under_key(&record).await {
            tracing::warn!(
                "the order's key is not recorded, so a later delivery may apply something else: {error}"
            );
        }
    }

    /// The record of this run's apply with which its stored plan is compared: that of the same plan, else the latest.
    /// `records` are those in the datastore, the latest first. In a pod the controllers' order decides.
    pub(super) fn record_of_run(
        &self,
        records: &[AppliedRecord],
        plan: Sha256,
    ) -> Option<AppliedRecord> {
        if self.job.pod {
            return None;
        }
        let same = records.iter().find(|record| record.is_of(plan));
        same.or(records.first()).cloned().or_else(|| self.unsent_record(None))
    }

    /// Records what an apply without a stored plan is made of. For a stored plan its digest is enough. `called`: the modules of
    /// which only init knows.
    pub(super) async fn describe_order(
        &mut self,
        workspace: &Workspace,
        called: &Called,
    ) -> Result<(), RunError> {
        if self.report.plan.is_some() {
            return Ok(());
        }
        let mut revision = workspace.revision.clone();
        // Other files than code change from delivery to delivery: an apply itself may write a state.
        if let Some(commit) = revision.as_deref().and_then(|ours| ours.strip_suffix("-dirty")) {
            let is_code_changed = match &self.job.source {
                Source::Directory(dir) => {
                    let changed =
                        self.changed_code(dir, self.job.terragrunt.is_some(), &Called::new()).await;
                    changed.map_or(true, |files| !files.is_empty())
                }
                // A kept checkout has no other code than the commit.
                _ => false,
            };
            if !is_code_changed {
                revision = Some(commit.to_owned());
            }
        }
        let configuration = configuration::digest(&workspace.dir)?;
        let source = match workspace.sha256 {
            None if has_unrecorded_files(workspace) => {
                Some(references::digest(&workspace.dir, called)?)
            }
            digest => digest,
        };
        let configuration = Some(configuration);
        let mut order = OrderRecord::new(revision, configuration, source, self.tool_inputs());
        order.called_modules.clone_from(called);
        self.order = Some(order);
        Ok(())
    }

    /// Adds the modules of which only init knows to what the order is made of, after init.
    pub(in crate::run) fn add_called_to_order(&mut self, workspace: &Workspace) -> io::Result<()> {
        let called = &self.report.called_modules;
        if let Some(order) = &mut self.order
            && has_unrecorded_files(workspace)
        {
            order.source_sha256 = Some(references::digest(&workspace.dir, called)?);
            order.called_modules.clone_from(called);
        }
        Ok(())
    }

    /// Forgets the digest of the files that the configuration names if the apply has written one of them, such as an archive
    /// that a provider makes: a repeated order would never have the same digest.
    pub(super) fn forget_changed_source(&mut self, workspace: &Workspace) {
        if let Some(order) = &mut self.order
            && has_unrecorded_files(workspace)
        {
            let now = references::digest(&workspace.dir, &order.called_modules).ok();
            order.source_sha256 = order.source_sha256.filter(|before| now == Some(*before));
        }
    }

    /// Refuses a run that differs from the recorded one. The code is checked out for that, and no tool is needed. In a pod
    /// the controllers' order decides.
    pub(super) async fn check_repeated(&mut self, record: &AppliedRecord) -> Result<(), RunError> {
        self.check_applied_place(record)?;
        if self.job.pod {
            return Ok(());
        }
        self.check_same_plan(record, None)?;
        if let Some(order) = &record.order {
            let workspace = self.check_out_source(None).await?;
            self.describe_order(&workspace, &order.called_modules).await?;
        }
        self.compare_order(record)
    }

    /// Compares plan, code, variables and arguments with those of the recorded apply.
    pub(super) fn compare_order(&self, record: &AppliedRecord) -> Result<(), RunError> {
        if self.job.pod {
            return Ok(());
        }
        let plan = self.report.plan.as_ref();
        self.check_same_plan(record, plan.map(|plan| plan.sha256))?;
        self.check_plan_run(record, plan)?;
        let (Some(theirs), Some(ours)) = (&record.order, &self.order) else { return Ok(()) };
        match theirs.difference(ours, self.tool_inputs()) {
            Some(difference) => Err(self.other_order(record, difference)),
            None => Ok(()),
        }
    }

    /// Refuses an order that has applied another plan, or one without the other.
    pub(super) fn check_same_plan(
        &self,
        record: &AppliedRecord,
        ours: Option<Sha256>,
    ) -> Result<(), RunError> {
        let theirs = record.plan_sha256();
        if theirs == ours {
            return Ok(());
        }
        let named = |plan: Option<Sha256>| match plan {
            Some(plan) => format!("sha256 {plan}"),
            None => "none, the tool made its own".to_owned(),
        };
        let run = record.plan.as_ref().and_then(PlanReport::name);
        let run = run.map(|run| format!(" (--plan {run})")).unwrap_or_default();
        let (theirs, ours) = (named(theirs), named(ours));
        let difference = format!("another plan: {theirs}{run}; now it is {ours}");
        Err(self.other_order(record, difference))
    }

    /// Refuses a plan whose bytes another run's plan has too, if that one was applied to other code: plans that are made of
    /// equal code in one second can be equal. Of one place and code they are one plan. In a pod the controllers' order
    /// decides.
    pub(super) fn check_plan_run(
        &self,
        record: &AppliedRecord,
        ours: Option<&PlanReport>,
    ) -> Result<(), RunError> {
        let theirs = record.plan.as_ref().and_then(PlanReport::name);
        let ours = ours.and_then(PlanReport::name);
        match (theirs, ours) {
            (Some(theirs), Some(ours))
                if theirs != ours && !self.job.pod && !record.is_of_code(&self.report) =>
            {
                let applied = record.applied_by().to_string();
                Err(RunError::SamePlan { ours, theirs, applied })
            }
            _ => Ok(()),
        }
    }

    fn other_order(&self, record: &AppliedRecord, difference: String) -> RunError {
        let is_run = record.run == self.job.run.run.as_ref();
        let order = self.shown_order(record);
        let other = match &self.job.order_key {
            Some(_) if is_run => "--run and --order-key",
            Some(_) => "--order-key",
            None => "--run",
        };
        let as_it_was = "repeat the old one as it was, with";
        let old = match (&self.job.action, &record.plan) {
            (Action::Destroy(_), Some(plan)) => format!("{as_it_was} --approve {}", plan.sha256),
            (Action::Apply(Apply::Unplanned(_)), _) => {
                "apply it under this name with --again".to_owned()
            }
            (_, None) => format!("{as_it_was} --no-plan"),
            (_, Some(plan)) => match plan.name() {
                Some(plan) => format!("{as_it_was} --plan {plan}"),
                None => format!("{as_it_was} its plan (--plan-file)"),
            },
        };
        let next = format!("use another {other} for a new order, or {old}");
        RunError::OtherOrder { order, difference, next }
    }

    /// The order of another place, and what to do about it.
    pub(super) fn applied_elsewhere(&self, record: &AppliedRecord) -> (String, String) {
        let is_run = record.run == self.job.run.run.as_ref();
        let (other, same) = match &self.job.order_key {
            Some(_) if is_run => ("--run and --order-key, or another --name,", "name"),
            Some(_) => ("--order-key or --name", "key"),
            None => ("--run or --name", "name"),
        };
        let next = format!(
            "use another {other} for this place, or apply it under this {same} with --again"
        );
        (self.shown_order(record), next)
    }

    /// The order that was applied: by its key, if it was found by that.
    fn shown_order(&self, record: &AppliedRecord) -> String {
        match &self.job.order_key {
            Some(key) if record.run != self.job.run.run.as_ref() => {
                format!("the order `{key}` (run {})", record.run)
            }
            _ => format!("run {}", record.run),
        }
    }

    fn tool_inputs(&self) -> ToolInputs<'_> {
        ToolInputs { options: &self.job.options, variables: &self.environment.inputs }
    }
}

/// Whether the code may be changed, or read files that git ignores, and no digest of all files shows that.
fn has_unrecorded_files(workspace: &Workspace) -> bool {
    let is_copy = workspace.copied_from.is_some();
    workspace.own.is_none() || is_copy && workspace.sha256.is_none()
}
