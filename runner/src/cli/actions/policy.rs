//! The arguments that name a policy.

use std::path::PathBuf;

use clap::Args;

/// What is allowed.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyArgs {
    /// A file of rules in YAML: which changes are allowed, refused or protected. Can be repeated: the strictest file decides. It
    /// must not be inside of the source [default: everything is allowed that destroys, replaces or forgets nothing]
    #[arg(long, env = "PLANCHA_CONVERGE_POLICY", value_name = "FILE", value_delimiter = ',')]
    pub policy: Vec<PathBuf>,
    /// Allow a policy inside of the source: who writes the code can then allow himself everything
    #[arg(long)]
    pub policy_from_source: bool,
    /// A change of this output, or of this part of it, needs an approval as well. Lists are compared without their order. Can be
    /// repeated
    #[arg(long, value_name = "NAME[.PATH]")]
    pub destructive_output: Vec<String>,
}
