//! The arguments of `runner start`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;

use crate::cli::{
    BindingArgs, DatastoreArgs, LimitArgs, PreflightArgs, RetryArgs, SpoolArgs, ToolArgs,
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
    /// What binds an apply to its plan.
    #[command(flatten)]
    pub binding: BindingArgs,
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
