//! Where the state of a module is, if its configuration does not say it.

use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;

/// Where the state is.
#[derive(Clone, Debug, Args)]
pub struct StateFileArgs {
    /// Work with the state in this file, plain or compressed with gzip, if the module has no backend or the backend
    /// `local`. The tool gets a copy. If the file does not exist or is empty, there is no state yet
    #[arg(long, env = "PLANCHA_STATE_IN", help_heading = "State", value_name = "FILE")]
    pub state_in: Option<PathBuf>,
    /// Replace this file by the state when an apply has ended, also if it has failed. It may be that of --state-in. It is
    /// compressed if its name ends in .gz, or if that of --state-in is compressed and has another name
    #[arg(long, env = "PLANCHA_STATE_OUT", help_heading = "State", value_name = "FILE")]
    pub state_out: Option<PathBuf>,
    /// Apply even if the state fills more than 90 % of the Secret of the backend `kubernetes`
    #[arg(long, env = "PLANCHA_ALLOW_LARGE_STATE", help_heading = "State", value_parser = BoolishValueParser::new())]
    pub allow_large_state: bool,
}
