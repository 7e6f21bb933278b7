//! The arguments of `runner plan`, `runner apply`, `runner destroy` and `runner migrate`.

mod converge;
mod hooks;
mod inputs;
mod layers;
mod migrate;
mod periodic;
mod plan_name;
mod policy;
mod separator;
mod start;
mod state;
mod state_files;

use std::time::Duration;

use clap::Args;
use clap::builder::{BoolishValueParser, NonEmptyStringValueParser};
use datastore_api::Sha256;

pub use converge::{CheckArgs, ConvergeArgs, JudgingArgs};
pub use hooks::HookArgs;
pub use inputs::InputArgs;
pub use layers::LayersArgs;
pub use migrate::MigrateArgs;
pub use periodic::{MonitoringArgs, PeriodicArgs};
pub use plan_name::PlanName;
pub use policy::{PolicyArgs, PolicyCommand, PolicyOptions, PolicyTestArgs, RegoVersion};
pub use separator::Separator;
pub use start::StartArgs;
pub use state::{StateArgs, StatePlace};
pub use state_files::StateFileArgs;

use crate::cli::RunArgs;
use crate::cli::limits::duration;

/// `runner plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// What plan and apply share.
    #[command(flatten)]
    pub run: RunArgs,
    /// Exit with code 2 if changes are pending
    #[arg(long)]
    pub detailed_exitcode: bool,
    /// Write the layer's `apply-sum` as `plan-sum` if the plan changes nothing, so that Burrito's controllers order no apply
    #[arg(long, env = "PLANCHA_SKIP_EMPTY_PLANS", value_parser = BoolishValueParser::new())]
    pub skip_empty_plans: bool,
}

/// `runner apply`
#[expect(clippy::struct_excessive_bools, reason = "each is an independent flag")]
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// What plan and apply share.
    #[command(flatten)]
    pub run: RunArgs,
    /// The stored plan to apply [default: the layer's annotation `plan-run`; without a layer the
    /// newest run of this repository, path and workspace that holds a plan]. Changed code, which an apply without this
    /// option refuses, is a warning; with --strict it is refused
    #[arg(long, env = "PLANCHA_PLAN", value_name = "RUN[/ATTEMPT]", conflicts_with_all = ["no_plan", "plan_file"])]
    pub plan: Option<PlanName>,
    /// Refuse (exit code 9) every difference from what the plan was made of, also those that --plan and --plan-file turn
    /// into warnings. Without effect with --no-plan
    #[arg(long, env = "PLANCHA_STRICT", value_parser = BoolishValueParser::new())]
    pub strict: bool,
    /// Plan and apply in one step, without a stored plan (Burrito's applyWithoutPlanArtifact)
    #[arg(long, conflicts_with = "plan_file")]
    pub no_plan: bool,
    /// With --no-plan: apply even if this run, or this order, has been applied before
    #[arg(long, env = "PLANCHA_AGAIN", conflicts_with_all = ["plan", "plan_file"], value_parser = BoolishValueParser::new())]
    pub again: bool,
    /// Name of the order. An order of the layer that has been applied under this name, by a run of any name, is not
    /// applied again
    #[arg(long, env = "PLANCHA_ORDER_KEY", value_name = "KEY", conflicts_with = "plan_file", value_parser = NonEmptyStringValueParser::new())]
    pub order_key: Option<String>,
    /// Apply a plan that terragrunt made with mock outputs
    #[arg(long, env = "PLANCHA_ALLOW_MOCKS", value_parser = BoolishValueParser::new())]
    pub allow_mocks: bool,
    /// The lease of the layer.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// Programs before and after the apply.
    #[command(flatten)]
    pub hooks: HookArgs,
}

/// What changes a state.
#[derive(Clone, Copy, Debug, Args)]
pub struct LeaseArgs {
    /// Remove the lock that a dead run has left on the state in the datastore, if its lease has ended this long ago (10m,
    /// 2h). Without this option such a lock is an error (exit code 4), which names its holder
    #[arg(long, env = "PLANCHA_BREAK_STALE_LOCK", help_heading = "Datastore", value_name = "AFTER", value_parser = duration_text)]
    pub break_stale_lock: Option<Duration>,
}

fn duration_text(text: &str) -> Result<Duration, String> {
    duration(text).map_err(|error| error.to_string())
}

/// `runner destroy`
#[derive(Clone, Debug, Args)]
pub struct DestroyArgs {
    /// What all actions share.
    #[command(flatten)]
    pub run: RunArgs,
    /// Apply the stored plan of `runner destroy` with this SHA-256, exactly, and make no new one
    #[arg(long, value_name = "DIGEST", conflicts_with = "auto_approve")]
    pub approve: Option<Sha256>,
    /// Apply the plan at once, after it was stored
    #[arg(long)]
    pub auto_approve: bool,
    /// Destroy it although layers that need it have not been destroyed. They may not be destroyed later, because what they
    /// take of this one is gone
    #[arg(long)]
    pub force_with_dependants: bool,
    /// Apply a plan that terragrunt made with mock outputs
    #[arg(long, env = "PLANCHA_ALLOW_MOCKS", value_parser = BoolishValueParser::new())]
    pub allow_mocks: bool,
    /// Several layers.
    #[command(flatten)]
    pub layers: LayersArgs,
    /// The lease of the layer.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// Programs before and after the apply.
    #[command(flatten)]
    pub hooks: HookArgs,
}
