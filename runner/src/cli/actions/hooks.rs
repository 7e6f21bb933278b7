//! The arguments that name programs before and after an apply.

use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;

/// Programs of the operator.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Hooks")]
pub struct HookArgs {
    /// A program that runs right before the tool applies, and may refuse that: with another exit code than 0 nothing is
    /// applied, and the exit code is 3. It must not be inside of the source
    #[arg(long, env = "PLANCHA_BEFORE_APPLY", value_name = "PROGRAM")]
    pub before_apply: Option<PathBuf>,
    /// A program that runs after the tool has applied, also if that failed. Its own failure is a warning. It must not be inside
    /// of the source
    #[arg(long, env = "PLANCHA_AFTER_APPLY", value_name = "PROGRAM")]
    pub after_apply: Option<PathBuf>,
    /// Accept hooks inside of the source, which anyone who changes the code can change as well
    #[arg(long, env = "PLANCHA_HOOKS_FROM_SOURCE", value_parser = BoolishValueParser::new())]
    pub hooks_from_source: bool,
}
