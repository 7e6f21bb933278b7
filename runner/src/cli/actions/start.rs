//! The arguments of `runner start`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Arg, Args, CommandFactory as _};

use crate::cli::{
    BindingArgs, Cli, DatastoreArgs, HookArgs, LimitArgs, PreflightArgs, RetryArgs, SpoolArgs,
    ToolArgs, environment,
};

/// `runner start`, with the flags of Burrito's runner. The job itself is in the environment and the cluster.
#[expect(clippy::struct_excessive_bools, reason = "each is an independent flag")]
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Accepted without effect: the known hosts are mounted
    #[arg(long, alias = "ssh_known_hosts_cm_name", value_name = "NAME")]
    pub ssh_known_hosts_cm_name: Option<String>,
    /// Directory for the code, in a subdirectory `content`
    #[arg(
        long,
        alias = "repository_path",
        env = "BURRITO_RUNNER_REPOSITORYPATH",
        value_name = "DIR",
        default_value = "/runner/repository"
    )]
    pub repository_path: PathBuf,
    /// Plan even if the code needs a file from an empty submodule, or one that is a git LFS pointer
    #[arg(long, env = "PLANCHA_NO_SUBMODULES", value_parser = BoolishValueParser::new())]
    pub no_submodules: bool,
    /// Apply a plan that terragrunt made with mock outputs
    #[arg(long, env = "PLANCHA_ALLOW_MOCKS", value_parser = BoolishValueParser::new())]
    pub allow_mocks: bool,
    /// Apply even if the state fills more than 90 % of the Secret of the backend `kubernetes`
    #[arg(long, env = "PLANCHA_ALLOW_LARGE_STATE", value_parser = BoolishValueParser::new())]
    pub allow_large_state: bool,
    /// Write the layer's `apply-sum` as `plan-sum` if a plan changes nothing, so that the controllers order no apply
    #[arg(long, env = "PLANCHA_SKIP_EMPTY_PLANS", value_parser = BoolishValueParser::new())]
    pub skip_empty_plans: bool,
    /// Refuse (exit code 9) every difference from what the plan was made of, also those that are warnings in a pod
    #[arg(long, env = "PLANCHA_STRICT", value_parser = BoolishValueParser::new())]
    pub strict: bool,
    /// What binds an apply to its plan.
    #[command(flatten)]
    pub binding: BindingArgs,
    /// Programs before and after an apply.
    #[command(flatten)]
    pub hooks: HookArgs,
    /// How often failed steps are run again.
    #[command(flatten)]
    pub retry: RetryArgs,
    /// How long the run may take.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// How credentials are examined.
    #[command(flatten)]
    pub preflight: PreflightArgs,
    /// Where artifacts are stored. The controllers set it by other variables.
    #[command(flatten)]
    pub datastore: DatastoreArgs,
    /// Where files wait that could not be delivered.
    #[command(flatten)]
    pub spool: SpoolArgs,
    /// Where tools are downloaded and installed.
    #[command(flatten)]
    pub tools: ToolArgs,
}

impl StartArgs {
    /// The variables of `plan` and `apply` that are set, but that a pod of Burrito's does not read: its layer and run decide.
    pub(crate) fn variables_without_effect() -> Vec<String> {
        let program = Cli::command();
        let of = |command: &str| {
            let command = program.find_subcommand(command);
            let arguments = command.into_iter().flat_map(clap::Command::get_arguments);
            arguments.filter_map(Arg::get_env).map(ToOwned::to_owned).collect::<BTreeSet<_>>()
        };
        let others = &(&of("plan") | &of("apply")) - &of("start");
        let set = others.iter().filter(|name| environment::is_set(name));
        set.map(|name| name.to_string_lossy().into_owned()).collect()
    }
}
