//! The arguments of a policy, and of `runner policy test`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::ShowCommon;

/// The policy that decides which changes a run may apply.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyArgs {
    /// Rules that decide which changes may be applied: a file of rules (.yaml, .yml, .json), a file of Rego (.rego), or a
    /// directory, of which all *.rego are read, but no *_test.rego. Can be repeated; the strictest wins [default: nothing
    /// is deleted, replaced or forgotten]
    #[arg(long, env = "PLANCHA_CONVERGE_POLICY", value_name = "FILE|DIR", value_delimiter = ',')]
    pub policy: Vec<PathBuf>,
    /// Accept a policy that is part of the source, which anyone who changes the code can change as well
    #[arg(long)]
    pub policy_from_source: bool,
    /// What belongs to it.
    #[command(flatten)]
    pub options: PolicyOptions,
}

/// What belongs to a policy, beside its files.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyOptions {
    /// Documents for the Rego policy, as `data`: a file (.json, .yaml, .yml), or a directory. Can be repeated
    #[arg(long, value_name = "FILE|DIR")]
    pub policy_data: Vec<PathBuf>,
    /// Version of the Rego language
    #[arg(long, value_name = "VERSION", default_value = "v1")]
    pub rego_version: RegoVersion,
    /// Refuse a change of this output, or of the part of its value that PATH names (`cluster.zones`), as a destructive one.
    /// Lists are compared without their order. Can be repeated
    #[arg(long, value_name = "NAME[.PATH]")]
    pub destructive_output: Vec<String>,
}

/// A version of the Rego language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RegoVersion {
    /// `deny[msg] { ... }`
    V0,
    /// `deny contains msg if { ... }`
    #[default]
    V1,
}

/// `runner policy`
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Print what a policy says of stored plans
    #[command(after_help = "\
The newest runs of the layer that stored a plan are judged, as `runner check` judges a new plan. What the ledgers of the layer \
say is not read: a resource that is replaced because it is tainted needs an approval here. The exit code is 0 when all \
plans were judged, whatever the verdicts are, and 8 if the policy is invalid, a plan is unreadable, or there is none.

Examples:
  runner policy test rules.yaml --datastore URL             the last 10 plans of the module in this directory
  runner policy test rego/ --name infra.live.vpc --last 50  those of a layer by its name
  runner policy test rules.yaml --plan-json plan.json       the output of `terraform show -json`
  runner policy test rego/ --json | jq -r '.[] | select(.verdict == \"denied\") | .plan'")]
    Test(Box<PolicyTestArgs>),
}

/// `runner policy test`
#[derive(Debug, Args)]
pub struct PolicyTestArgs {
    /// The policy: files of rules or of Rego, directories of Rego
    #[arg(value_name = "FILE|DIR", required = true)]
    pub policy: Vec<PathBuf>,
    /// Judge this many stored plans, the newest first [default: 10, or none with --plan-json]
    #[arg(long, value_name = "N")]
    pub last: Option<NonZeroUsize>,
    /// Judge this plan, the output of `show -json`. Can be repeated
    #[arg(long, value_name = "FILE")]
    pub plan_json: Vec<PathBuf>,
    /// Print a JSON list
    #[arg(long)]
    pub json: bool,
    /// What belongs to the policy.
    #[command(flatten)]
    pub options: PolicyOptions,
    /// How to find and print the plans.
    #[command(flatten)]
    pub common: ShowCommon,
}

impl PolicyTestArgs {
    /// The policy, as a run has it.
    pub(crate) fn policy(&self) -> PolicyArgs {
        PolicyArgs {
            policy: self.policy.clone(),
            policy_from_source: true,
            options: self.options.clone(),
        }
    }
}
