//! Jobs of `runner check` and `runner converge`.

use std::sync::Arc;

use crate::cli::{CheckArgs, ConvergeArgs, Environment, PolicyArgs, RunArgs};
use crate::order::command_line::{find_hooks, named_source};
use crate::order::job::{Action, Approval, Converge, Job, JobError, Judging};
use crate::policy::Policy;

impl Job {
    /// The job of `runner check`.
    pub(crate) async fn check(
        args: CheckArgs,
        environment: &Environment,
    ) -> Result<Self, JobError> {
        let CheckArgs { run, policy, detailed_exitcode, judging, .. } = args;
        check_files(&run)?;
        let is_lock = |arg: &&String| arg.trim_start_matches('-').split('=').next() == Some("lock");
        if let Some(arg) = run.args.iter().find(is_lock) {
            return Err(JobError::Usage(format!(
                "`{arg}` after --: a check never takes the lock of the state, so that no other run waits for it; leave it out"
            )));
        }
        let policy = load_policy(&policy, &run)?;
        let action = Action::Check { detailed_exitcode };
        let mut job = Self::new(run, false, false, environment, |_| Ok(action)).await?;
        job.options.no_lock = true;
        let judging = Judging {
            policy,
            approval_lifetime: judging.approval_lifetime,
            exit_zero_on_skip: false,
            error_after: judging.error_after,
        };
        Ok(Self { judging: Some(judging), ..job })
    }

    /// The job of `runner converge`: its plan.
    pub(crate) async fn converge(
        args: ConvergeArgs,
        environment: &Environment,
    ) -> Result<Self, JobError> {
        let ConvergeArgs { run, policy, approve_destructive, auto_approve, lease, hooks, .. } =
            args;
        if approve_destructive.is_some() && run.datastore.datastore.is_none() {
            return Err(JobError::Usage(
                "--approve-destructive needs a datastore, which keeps what was offered and approved: name one with --datastore"
                    .to_owned(),
            ));
        }
        check_files(&run)?;
        let policy = load_policy(&policy, &run)?;
        let hooks = find_hooks(&hooks, &run)?;
        let approval = match (approve_destructive, auto_approve) {
            (Some(digest), _) => Approval::Digest(digest),
            (None, true) => Approval::Any,
            (None, false) => Approval::None,
        };
        let action = Action::Converge(Converge::Plan(approval));
        let job = Self::new(run, false, false, environment, |_| Ok(action)).await?;
        let judging = Judging {
            policy,
            approval_lifetime: args.judging.approval_lifetime,
            exit_zero_on_skip: args.exit_zero_on_skip,
            error_after: args.judging.error_after,
        };
        let break_stale_lock = lease.break_stale_lock;
        Ok(Self { judging: Some(judging), hooks, break_stale_lock, ..job })
    }
}

/// A check and a converge keep their plans in the datastore, or not at all.
fn check_files(run: &RunArgs) -> Result<(), JobError> {
    if run.plan_file.is_some() {
        return Err(JobError::Usage(
            "--plan-file is for plan and apply: check and converge keep their plan in the datastore, if there is one"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Reads the policy. One inside of the source is refused: its author could allow himself everything.
fn load_policy(args: &PolicyArgs, run: &RunArgs) -> Result<Arc<Policy>, JobError> {
    let dir = named_source(run)?.local_root();
    Ok(Arc::new(Policy::load(args, dir.as_deref())?))
}
