//! What the runner was told: the command line and the environment.
//!
//! The only module that reads the environment. It checks form, not meaning: what the parts say
//! together is for [`crate::order::job`].

mod environment;
mod hints;
mod tools;

pub use environment::{Environment, GitHubApp, MirrorVariables, Pod, Tenv};
pub use tools::{
    InstallArgs, ListArgs, MirrorArgs, PruneArgs, ResolveArgs, Target, TargetArgs, ToolArgs,
    ToolsCommand,
};

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{BoolishValueParser, Resettable};
use clap::error::ErrorKind;
use clap::{Arg, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use datastore_api::{Attempt, HumanDuration, InvalidDuration, Name};
use secrecy::SecretString;

use crate::version::ToolName;

/// Runs Terraform and OpenTofu unattended: the right version, verified; plans and applies, stored;
/// annotations on the layer.
#[derive(Debug, Parser)]
#[command(name = "runner", disable_version_flag = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How the runner's own lines on stderr look.
    #[arg(
        long,
        global = true,
        env = "PLANCHA_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub log_format: LogFormat,
    /// Whether the program goes by the name `burrito`, which Burrito's pods execute: then an exit code
    /// is 0 or 1, or 2 for an unknown subcommand of `burrito runner`, as upstream's program has it.
    #[arg(skip)]
    pub burrito: bool,
}

const EXIT_CODES: &str = "\
Exit codes:
    0  done (also: no changes)              8  configuration: version, ref, path, layer, plan
    1  failed, unclassified                 9  integrity: signature, digest or plan mismatch
    2  changes pending (plan, only with    10  the datastore: unreachable, refused, lost upload
       --detailed-exitcode)                64  usage
    5  credentials (401, 403)             130  interrupted by SIGINT
    6  network, retries used up           143  interrupted by SIGTERM or SIGHUP";

impl Cli {
    /// Reads the command line. `Err` is the exit code when there is nothing more to do: help was
    /// shown, or the usage was wrong (64).
    ///
    /// Under the name `burrito` the first word is `runner` (or `version`).
    pub fn from_arguments(args: impl Iterator<Item = OsString>) -> Result<Self, ExitCode> {
        let mut args = args.collect::<Vec<_>>();
        let executable = args.first().map(PathBuf::from).unwrap_or_default();
        let burrito = executable.file_name().is_some_and(|name| name == "burrito");
        let of_runner = burrito && args.get(1).is_some_and(|word| word == "runner");
        if of_runner {
            args.remove(1);
        }
        if let Some(word) = args.get_mut(1).filter(|word| *word == "--version" || *word == "-V") {
            *word = "version".into();
        }
        let refused = |error: clap::Error| {
            // Nothing can be done about a closed stream.
            drop(error.print());
            match error.kind() {
                ErrorKind::DisplayHelp => ExitCode::SUCCESS,
                ErrorKind::InvalidSubcommand
                | ErrorKind::MissingSubcommand
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                    if of_runner =>
                {
                    ExitCode::from(2)
                }
                _ if burrito => ExitCode::FAILURE,
                _ => ExitCode::from(64),
            }
        };
        let given = args.iter().take_while(|arg| *arg != "--").cloned().collect::<Vec<_>>();
        let program = program(of_runner);
        let cli = with_variables(program.clone(), &given)
            .try_get_matches_from(args)
            .and_then(|matches| Self::from_arg_matches(&matches))
            .map_err(|error| refused(hints::with_hint(error, &given, &program)))?;
        Ok(Self { burrito, ..cli })
    }
}

/// The command line, with what one command has otherwise than the arguments that it shares.
fn program(of_runner: bool) -> clap::Command {
    let program = Cli::command()
        .mut_subcommand("start", |start| {
            start.mut_arg("bin_dir", |arg| {
                arg.help(format!("Where tools are installed [default: {BIN_DIR}]"))
            })
        })
        .mut_subcommand("upload", |upload| {
            upload.mut_arg("datastore", |arg| {
                arg.help(
                    "The datastore to send the files to. The token comes from --token-file or the variable \
                     `PLANCHA_TOKEN`",
                )
            })
        });
    // Usage lines show what was typed.
    if of_runner { program.bin_name("burrito runner") } else { program }
}

/// The command and those below it, with the variables that count and without their values in the help: one may hold
/// a URL with a password.
fn with_variables(command: clap::Command, given: &[OsString]) -> clap::Command {
    let command = command.mut_args(|arg| {
        let overruled = is_overruled(&arg, given) || is_empty(&arg);
        let arg = if overruled { arg.env(Resettable::Reset) } else { arg };
        arg.hide_env_values(true)
    });
    command.mut_subcommands(|command| with_variables(command, given))
}

/// An empty variable is none: CI systems write unset ones so.
fn is_empty(arg: &Arg) -> bool {
    arg.get_env().is_some_and(environment::is_set_to_nothing)
}

/// Whether a flag on the command line keeps out what the variable of another says.
fn is_overruled(arg: &Arg, given: &[OsString]) -> bool {
    let over: &[&str] = match arg.get_id().as_str() {
        "plan" => &["--no-plan", "--plan-file"],
        "datastore" => &["--plan-file"],
        "again" => &["--plan", "--plan-file"],
        "offline" => &["--refresh"],
        _ => &[],
    };
    given.iter().any(|word| {
        let word = word.to_string_lossy();
        over.contains(&word.split('=').next().unwrap_or_default())
    })
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Plan a root module; store the plan, its renderings and the log
    #[command(after_help = "\
Examples:
  runner plan                                   the module in this directory, nothing stored
  runner plan live/vpc --datastore http://127.0.0.1:8080
  runner plan --layer layer.yaml --datastore URL annotations go into layer.yaml
  runner plan https://git.example.com/infra.git --revision v1.4 --path live/vpc")]
    Plan(Box<PlanArgs>),
    /// Apply the plan that was stored, after checking that it is the very one
    #[command(after_help = "\
Examples:
  runner apply --layer layer.yaml --datastore URL      the plan that the layer's annotations name
  runner apply --datastore URL --plan vpc-plan-x4k2q   that run's plan
  runner apply --plan-file plan.bin                    a plan from a file, without a datastore
  runner apply --no-plan                               plan and apply in one, unseen")]
    Apply(Box<ApplyArgs>),
    /// Send what a run could not store: the record of an apply first, then the other files
    #[command(after_help = "\
A run that could not store all of its files keeps them in a private directory and prints this command: all
files of an apply, the log and run.json of a run that failed. It replaces nothing in the datastore, and
removes what was sent. You can repeat it.")]
    Upload(UploadArgs),
    /// Print the version that a directory asks for, and with --json why
    Resolve(ResolveArgs),
    /// Download, verify and install that version; print the path of its binary
    Install(InstallArgs),
    /// Put a verified release into a directory, which serves as a mirror for sites without a network
    Mirror(MirrorArgs),
    /// Do what Burrito's controllers ordered: for their pods, which say everything by the environment
    Start(StartArgs),
    /// Print or remove versions of the tools
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Print the runner's own version (also: --version, -V)
    Version,
}

/// Where Burrito's pods have the tools.
pub(crate) const BIN_DIR: &str = "/runner/bin";

/// `runner start`: upstream's flags. What is to be done stands in the environment and the cluster.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Accepted, and of no effect: the known hosts are mounted
    #[arg(long, alias = "ssh_known_hosts_cm_name", value_name = "NAME")]
    pub ssh_known_hosts_cm_name: Option<String>,
    /// Where the code is put, in a directory `content`
    #[arg(
        long,
        alias = "repository_path",
        env = "BURRITO_RUNNER_REPOSITORYPATH",
        value_name = "DIR",
        default_value = "/runner/repository"
    )]
    pub repository_path: PathBuf,
    /// Plan even if a module or a file that the code names is an empty submodule or is a git LFS
    /// pointer
    #[arg(long, env = "PLANCHA_NO_SUBMODULES", value_parser = BoolishValueParser::new())]
    pub no_submodules: bool,
    /// Apply a plan although terragrunt has made it with mock outputs
    #[arg(long, env = "PLANCHA_ALLOW_MOCKS", value_parser = BoolishValueParser::new())]
    pub allow_mocks: bool,
    /// Where artifacts are stored; the controllers say it by other variables.
    #[command(flatten)]
    pub datastore: DatastoreArgs,
    /// Where tools come from.
    #[command(flatten)]
    pub tools: ToolArgs,
}

/// `runner plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// What plan and apply share.
    #[command(flatten)]
    pub run: RunArgs,
    /// Exit with 2 when changes are pending
    #[arg(long)]
    pub detailed_exitcode: bool,
}

/// `runner apply`
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// What plan and apply share.
    #[command(flatten)]
    pub run: RunArgs,
    /// The stored plan to apply [default: the layer's annotation `plan-run`; without a layer the
    /// newest run of this repository, path and workspace that holds a plan]
    #[arg(long, env = "PLANCHA_PLAN", value_name = "RUN[/ATTEMPT]", conflicts_with_all = ["no_plan", "plan_file"])]
    pub plan: Option<PlanName>,
    /// Apply what a fresh plan says, without a stored one (Burrito's applyWithoutPlanArtifact)
    #[arg(long, conflicts_with = "plan_file")]
    pub no_plan: bool,
    /// Apply without a stored plan although this run has been applied before
    #[arg(long, env = "PLANCHA_AGAIN", conflicts_with_all = ["plan", "plan_file"])]
    pub again: bool,
    /// Apply a plan although terragrunt has made it with mock outputs
    #[arg(long, env = "PLANCHA_ALLOW_MOCKS", value_parser = BoolishValueParser::new())]
    pub allow_mocks: bool,
}

/// `runner upload`
#[derive(Debug, Args)]
pub struct UploadArgs {
    /// The directory with the files that were not sent
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Where artifacts are stored.
    #[command(flatten)]
    pub datastore: DatastoreArgs,
    /// Certificates to trust besides the system's, in PEM
    #[arg(long, env = "PLANCHA_CA_FILE", help_heading = "Datastore", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

/// What plan and apply share.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Where the code is: a directory or a git URL [default: the current directory]
    #[arg(value_name = "DIR")]
    pub dir: Option<String>,
    /// The same, if there is no DIR
    #[arg(long, env = "PLANCHA_SOURCE", value_name = "DIR|URL")]
    pub source: Option<String>,
    /// Branch, tag or commit to check out of a git URL [default: the remote's HEAD]
    #[arg(long, env = "PLANCHA_REVISION", value_name = "REF")]
    pub revision: Option<String>,
    /// Do not fetch submodules of a git URL, and plan even if a module or a file that the code names is
    /// in an empty submodule or is a git LFS pointer
    #[arg(long, env = "PLANCHA_NO_SUBMODULES", value_parser = BoolishValueParser::new())]
    pub no_submodules: bool,
    /// Working directory inside the source [default: the layer's spec.path, else its root]
    #[arg(long, env = "PLANCHA_PATH", value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Keep the work directory of a cloned or copied source here, instead of a private temporary one
    #[arg(long, env = "PLANCHA_WORK_DIR", value_name = "DIR")]
    pub work_dir: Option<PathBuf>,
    /// A TerraformLayer manifest (YAML or JSON); annotations are written back into it
    #[arg(long, env = "PLANCHA_LAYER_FILE", value_name = "FILE")]
    pub layer: Option<PathBuf>,

    /// Namespace of the layer [default: the manifest's, else `default`]
    #[arg(long, env = "PLANCHA_NAMESPACE", help_heading = "Identity", value_name = "NAME")]
    pub namespace: Option<Name>,
    /// Name of the layer [default: the manifest's, else <repository>.<path>[.<workspace>] with a dot for
    /// each slash, outside of git the directory's]
    #[arg(long, env = "PLANCHA_NAME", help_heading = "Identity", value_name = "NAME")]
    pub name: Option<Name>,
    /// Name of this run [default: <layer>-<action>-<5 random>]
    #[arg(long, env = "PLANCHA_RUN", help_heading = "Identity", value_name = "NAME")]
    pub run: Option<Name>,
    /// Number of this attempt; refused if it is stored already [default: one past the highest stored or
    /// claimed, 0 for a new run]
    #[arg(long, env = "PLANCHA_ATTEMPT", help_heading = "Identity", value_name = "N")]
    pub attempt: Option<Attempt>,

    /// Terraform or OpenTofu [default: the manifest's, else what a version file or a .tofu file says,
    /// else terraform]
    #[arg(long, env = "PLANCHA_TOOL", help_heading = "Tool", value_name = "TOOL", value_parser = planning_tool)]
    pub tool: Option<ToolName>,
    /// Version of it: exact (1.9.8), a constraint (~> 1.9), or latest [default: the manifest's, else
    /// from the code]
    #[arg(long, env = "PLANCHA_TOOL_VERSION", help_heading = "Tool", value_name = "REQUEST")]
    pub tool_version: Option<String>,
    /// Have terragrunt run the tool, and which version of it [default: the manifest's]
    #[arg(
        long,
        env = "PLANCHA_TERRAGRUNT",
        help_heading = "Tool",
        value_name = "REQUEST",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ""
    )]
    pub terragrunt: Option<String>,
    /// Where tools come from.
    #[command(flatten)]
    pub tools: ToolArgs,

    /// A file of variable values, for the tool
    #[arg(long, help_heading = "For the tool", value_name = "FILE")]
    pub var_file: Vec<PathBuf>,
    /// A variable value, for the tool
    #[arg(long, help_heading = "For the tool", value_name = "NAME=VALUE")]
    pub var: Vec<String>,
    /// Limit the plan to this address, for the tool
    #[arg(long, help_heading = "For the tool", value_name = "ADDRESS")]
    pub target: Vec<String>,
    /// Force this address to be replaced, for the tool
    #[arg(long, help_heading = "For the tool", value_name = "ADDRESS")]
    pub replace: Vec<String>,
    /// Further arguments of the tool's plan (of its apply with --no-plan), as they are
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,

    /// Where artifacts are stored.
    #[command(flatten)]
    pub datastore: DatastoreArgs,
    /// Without a datastore: write the plan here and its record beside it (PATH.run.json), or apply it from here
    #[arg(long, value_name = "PATH", conflicts_with = "datastore")]
    pub plan_file: Option<PathBuf>,
    /// Write the outcome here, as JSON
    #[arg(long, value_name = "FILE")]
    pub result: Option<PathBuf>,
    /// From the first signal until the tool is killed (90s, 5m)
    #[arg(long, env = "PLANCHA_GRACE", value_name = "DURATION", default_value = "5m", value_parser = time_limit)]
    pub grace: Duration,
}

/// Where artifacts are stored.
#[derive(Debug, Args)]
pub struct DatastoreArgs {
    /// Where artifacts go; without it nothing is stored. The token comes from --token-file or the
    /// variable `PLANCHA_TOKEN`
    #[arg(long, env = "PLANCHA_DATASTORE_URL", help_heading = "Datastore", value_name = "URL")]
    pub datastore: Option<SecretString>,
    /// A file that holds the token; read again for every request
    #[arg(long, env = "PLANCHA_TOKEN_FILE", help_heading = "Datastore", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Give a datastore up that neither answers nor moves a byte for this long, over all retries (90s, 5m)
    #[arg(long, env = "PLANCHA_DATASTORE_TIMEOUT", help_heading = "Datastore", value_name = "DURATION", default_value = "60s", value_parser = time_limit)]
    pub datastore_timeout: Duration,
}

/// The run, and perhaps the attempt, that holds a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanName {
    /// The run.
    pub run: Name,
    /// Its attempt, the latest by default.
    pub attempt: Option<Attempt>,
}

impl std::fmt::Display for PlanName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.attempt {
            Some(attempt) => write!(f, "{}/{attempt}", self.run),
            None => self.run.fmt(f),
        }
    }
}

impl std::str::FromStr for PlanName {
    type Err = datastore_api::InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((run, attempt)) => Ok(Self { run: run.parse()?, attempt: Some(attempt.parse()?) }),
            None => Ok(Self { run: text.parse()?, attempt: None }),
        }
    }
}

/// How the runner's own lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A tool that plans by itself: terragrunt has one of the others do so.
fn planning_tool(text: &str) -> Result<ToolName, String> {
    match text.parse() {
        Ok(tool @ (ToolName::Terraform | ToolName::Tofu)) => Ok(tool),
        Ok(ToolName::Terragrunt) => Err(format!(
            "`{text}` has another tool plan: name terraform or tofu here, and add --terragrunt"
        )),
        Err(_) if text.eq_ignore_ascii_case("opentofu") => Err(format!("`{text}`: write `tofu`")),
        Err(_) => match ToolName::meant_by(text) {
            Some(tool @ (ToolName::Terraform | ToolName::Tofu)) => {
                Err(format!("`{text}`: did you mean `{tool}`?"))
            }
            _ => Err(format!("`{text}` is no tool that plans: write terraform or tofu")),
        },
    }
}

/// A limit in which something can happen.
fn time_limit(text: &str) -> Result<Duration, String> {
    match duration(text) {
        Ok(Duration::ZERO) => Err("expected a duration of more than 0".to_owned()),
        duration => duration.map_err(|error| error.to_string()),
    }
}

pub(crate) fn duration(text: &str) -> Result<Duration, InvalidDuration> {
    text.parse().map(|HumanDuration(duration)| duration)
}
