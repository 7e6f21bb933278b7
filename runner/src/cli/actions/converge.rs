//! The arguments of `runner check` and `runner converge`.

use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use clap::value_parser;
use datastore_api::Sha256;
use datastore_api::approval::MAX_LIFETIME;

use crate::cli::RunArgs;
use crate::cli::actions::{
    HookArgs, LayersArgs, LeaseArgs, MonitoringArgs, PeriodicArgs, PolicyArgs,
};
use crate::cli::limits::time_limit;

/// `runner check`
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// What all actions share.
    #[command(flatten)]
    pub run: RunArgs,
    /// What is allowed.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Exit with code 2 if the status is changed or absent
    #[arg(long, conflicts_with = "every")]
    pub detailed_exitcode: bool,
    /// Several layers.
    #[command(flatten)]
    pub layers: LayersArgs,
    /// When it is repeated.
    #[command(flatten)]
    pub periodic: PeriodicArgs,
    /// What others see of the layers.
    #[command(flatten)]
    pub monitoring: MonitoringArgs,
    /// What becomes of what it finds.
    #[command(flatten)]
    pub judging: JudgingArgs,
}

/// `runner converge`
#[derive(Clone, Debug, Args)]
pub struct ConvergeArgs {
    /// What all actions share.
    #[command(flatten)]
    pub run: RunArgs,
    /// What is allowed.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Apply a plan whose destructive changes are exactly those of this digest, which a check or converge has printed. It
    /// approves them once, until the time that was printed with it. Needs a datastore
    #[arg(
        long,
        env = "PLANCHA_APPROVE_DESTRUCTIVE",
        help_heading = "Policy",
        value_name = "SHA256"
    )]
    pub approve_destructive: Option<Sha256>,
    /// Apply the plan whatever it destroys. What the policy denies stays denied
    #[arg(long, help_heading = "Policy", conflicts_with_all = ["approve_destructive", "every"])]
    pub auto_approve: bool,
    /// Exit with code 0 if the policy refuses the plan, for jobs that must not count as failed
    #[arg(long, env = "PLANCHA_EXIT_ZERO_ON_SKIP", help_heading = "Policy", value_parser = BoolishValueParser::new())]
    pub exit_zero_on_skip: bool,
    /// What becomes of what it finds.
    #[command(flatten)]
    pub judging: JudgingArgs,
    /// Several layers.
    #[command(flatten)]
    pub layers: LayersArgs,
    /// When it is repeated.
    #[command(flatten)]
    pub periodic: PeriodicArgs,
    /// What others see of the layers.
    #[command(flatten)]
    pub monitoring: MonitoringArgs,
    /// The lease of the layer.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// Programs before and after the apply.
    #[command(flatten)]
    pub hooks: HookArgs,
}

/// What becomes of what a run finds.
#[derive(Clone, Debug, Args)]
pub struct JudgingArgs {
    /// How long the destructive changes that this run prints first can be approved, at most 30d. Changes that an earlier run has
    /// printed keep its limit
    #[arg(long, env = "PLANCHA_APPROVAL_LIFETIME", help_heading = "Policy", value_name = "DURATION", default_value = "24h", value_parser = lifetime)]
    pub approval_lifetime: Duration,
    /// How many runs in a row must have failed transiently until the status becomes an error
    #[arg(long, env = "PLANCHA_ERROR_AFTER", value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..))]
    pub error_after: u32,
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = time_limit(text)?;
    if lifetime > Duration::from_secs(MAX_LIFETIME) || lifetime.as_secs() == 0 {
        return Err("expected a duration from 1s to 30d".to_owned());
    }
    Ok(lifetime)
}
