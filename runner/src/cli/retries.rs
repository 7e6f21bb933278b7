//! Arguments about failures of the tool, and of what a run delivers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;

use crate::cli::{Command, duration};

/// How often failed steps of the tool are run again.
#[derive(Clone, Debug, Args)]
pub struct RetryArgs {
    /// How often a step whose errors are all transient is run again; 0 turns this off [default: 5 for init and for plan, 3 for
    /// apply]. An apply is planned again, and that is applied only if it changes nothing else
    #[arg(long, env = "PLANCHA_RETRIES", help_heading = "Retries", value_name = "N")]
    pub retries: Option<u32>,
    /// Limit of the time that all of these retries take, with the pauses before them
    #[arg(long, env = "PLANCHA_RETRY_TIMEOUT", help_heading = "Retries", value_name = "DURATION", default_value = "15m", value_parser = duration)]
    pub retry_timeout: Duration,
    /// Rules that come before the runner's own, as YAML or JSON: which failure of the tool is of which class, and may be
    /// retried (see `classify`)
    #[arg(long, env = "PLANCHA_RULES", help_heading = "Retries", value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// For apply: import what exists although it was to be created, also if no ledger shows that this layer has created it. Its
    /// address and its import ID must be known exactly, and the plan with it may only keep it or update it in place
    #[arg(long, env = "PLANCHA_IMPORT_EXISTING", help_heading = "Retries", value_parser = BoolishValueParser::new())]
    pub import_existing: bool,
}

/// Where files wait that could not be delivered.
#[derive(Clone, Debug, Default, Args)]
pub struct SpoolArgs {
    /// Keep what cannot be delivered (states, records, logs) in this directory, such as a volume that outlives a pod, and
    /// not in `$XDG_STATE_HOME`. Later runs of the layer with the same directory send it, and so does `runner upload`
    #[arg(long, env = "PLANCHA_SPOOL_DIR", help_heading = "Datastore", value_name = "DIR")]
    pub spool_dir: Option<PathBuf>,
}

impl Command {
    /// The directory of `--spool-dir`.
    pub(crate) fn spool_dir(&self) -> Option<&Path> {
        let spool = match self {
            Self::Plan(args) => &args.run.spool,
            Self::Apply(args) => &args.run.spool,
            Self::Destroy(args) => &args.run.spool,
            Self::Check(args) => &args.run.spool,
            Self::Converge(args) => &args.run.spool,
            Self::Migrate(args) => &args.run.spool,
            Self::Start(args) => &args.spool,
            _ => return None,
        };
        spool.spool_dir.as_deref()
    }
}
