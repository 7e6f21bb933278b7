//! The arguments about checks before a run: of credentials, and of the machine (`runner doctor`).

use std::time::Duration;

use clap::{Args, ValueEnum};
use datastore_api::Name;

use crate::cli::identity::DatastoreArgs;
use crate::cli::limits::time_limit;
use crate::cli::tools::ToolArgs;
use crate::version::ToolName;

/// How the credentials are examined.
#[derive(Clone, Copy, Debug, Args)]
pub struct PreflightArgs {
    /// Examine the credentials of the providers and the backend before init. local: variables and files; what is certain
    /// to fail is refused (exit code 5), and the rest is a warning. online: STS and Vault are asked, too. Not with
    /// terragrunt
    #[arg(
        long,
        env = "PLANCHA_PREFLIGHT",
        help_heading = "Credentials",
        value_name = "MODE",
        default_value = "local"
    )]
    pub preflight: PreflightMode,
}

/// How the credentials are examined before init.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PreflightMode {
    /// Variables and files.
    Local,
    /// Also by requests to the services.
    Online,
    /// Not at all.
    Off,
}

/// `runner doctor`
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_HELP)]
pub struct DoctorArgs {
    /// The code whose repository is checked: a directory or a git URL
    #[arg(value_name = "DIR")]
    pub dir: Option<String>,
    /// Namespace in which runs are to be stored [default: the pod's, else default]
    #[arg(long, env = "PLANCHA_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<Name>,
    /// The tool whose release site is checked
    #[arg(long, env = "PLANCHA_TOOL", value_name = "TOOL", default_value = "terraform")]
    pub tool: ToolName,
    /// Time from a signal until the tool is killed, as for plan and apply. In a pod it has to fit into its
    /// `terminationGracePeriodSeconds` [default: 5m; in a pod of Burrito's 20s]
    #[arg(long, env = "PLANCHA_GRACE", value_name = "DURATION", value_parser = time_limit)]
    pub grace: Option<Duration>,
    /// Where artifacts are stored.
    #[command(flatten)]
    pub datastore: DatastoreArgs,
    /// Where tools are downloaded and installed.
    #[command(flatten)]
    pub tools: ToolArgs,
    /// Print a JSON list of the checks: name, level, text, hint and exit
    #[arg(long)]
    pub json: bool,
}

/// The end of the help.
const DOCTOR_HELP: &str = "\
Each check is one line, `ok`, `warn` or `fail` with its name, and a line `next:` where something is to be done. All run at the \
same time, each for at most 5 s. The exit code is that of the first check that failed, and 0 if none did. Nothing is changed but \
files that are created and removed again at once.

Examples:
  runner doctor                              this machine
  runner doctor --datastore URL live/vpc     also the datastore, and the repository of that directory
  runner doctor --json | jq '.[] | select(.level != \"ok\")'";
