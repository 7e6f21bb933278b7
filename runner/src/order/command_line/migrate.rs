//! A job of `runner migrate`.

use crate::cli::{Environment, MigrateArgs};
use crate::order::command_line::plan_options;
use crate::order::job::{Action, Job, JobError, Migrate};
use crate::run::migrate::PARTIAL;
use crate::version::ToolName;

impl Job {
    /// The job of `runner migrate`.
    pub(crate) async fn migrate(
        args: MigrateArgs,
        burrito: bool,
        environment: &Environment,
    ) -> Result<Self, JobError> {
        let MigrateArgs {
            run,
            to,
            dry_run,
            rollback,
            version_paths,
            lock_platform,
            lease,
            layers: _,
        } = args;
        let usage = |reason: &str| Err(JobError::Usage(reason.to_owned()));
        if run.datastore.datastore.is_none() {
            return usage(
                "`runner migrate` needs a datastore, which keeps the copy of the state and records the tool of the layer: \
                 name one with --datastore (PLANCHA_DATASTORE_URL)",
            );
        }
        let options = plan_options(&run)?;
        if !options.targets.is_empty() || !options.replaces.is_empty() {
            return usage(
                "--target and --replace plan a part or a change, and a migration must find no changes at all: leave them out",
            );
        }
        let is_partial = |arg: &String| {
            let name = arg.trim_start_matches('-');
            name != arg && PARTIAL.iter().any(|partial| name.starts_with(&partial[1..]))
        };
        if options.args.iter().any(is_partial) {
            return usage(
                "arguments after -- must not limit the plan (-target, -replace, -refresh, -destroy): a migration must find no changes \
                 at all",
            );
        }
        if run.state_files.state_in.is_some() || run.state_files.state_out.is_some() {
            return usage(
                "`runner migrate` takes no --state-in and --state-out: put the state beside the code as terraform.tfstate, \
                 migrate, and take it from there",
            );
        }
        if run.work_dir.is_some() {
            return usage(
                "`runner migrate` works in a private copy of the code: leave out --work-dir",
            );
        }
        if run.tool == Some(ToolName::Tofu) {
            return usage("--tool names the tool from which the layer is migrated: leave it out");
        }
        let action = Action::Migrate(Migrate {
            to: to.filter(|_| !rollback),
            dry_run,
            version_paths,
            lock_platforms: lock_platform,
        });
        let job = Self::new(run, burrito, false, environment, |_| Ok(action)).await?;
        // The layer's manifest, or the code, may name tofu by now.
        let request = job.request.clone().filter(|_| job.tool != Some(ToolName::Tofu));
        let tool = Some(ToolName::Terraform);
        Ok(Self { tool, request, break_stale_lock: lease.break_stale_lock, ..job })
    }
}
