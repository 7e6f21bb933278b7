//! The arguments that name a policy.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What is allowed.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyArgs {
    /// Rules
    #[arg(long, env = "PLANCHA_CONVERGE_POLICY", value_name = "FILE|DIR", value_delimiter = ',')]
    pub policy: Vec<PathBuf>,
    /// Allow a policy inside of the source
    #[arg(long)]
    pub policy_from_source: bool,
    /// Data
    #[arg(long, value_name = "FILE|DIR")]
    pub policy_data: Vec<PathBuf>,
    /// Version of Rego
    #[arg(long, value_name = "VERSION", default_value = "v1")]
    pub rego_version: RegoVersion,
    /// Watched output
    #[arg(long, value_name = "NAME[.PATH]")]
    pub destructive_output: Vec<String>,
}

/// Version of Rego.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RegoVersion {
    /// Before 1.0.
    V0,
    /// Since 1.0.
    #[default]
    V1,
}
