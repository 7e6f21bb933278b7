//! The command line and the environment. No other module reads the environment.
//!
//! Each value is parsed here. What the values mean together is decided in [`crate::order`].

mod actions;
mod allowed;
mod binding;
mod classify;
mod descriptions;
mod environment;
mod files;
mod hints;
mod identity;
mod limits;
mod preflight;
mod retries;
mod show;
pub(crate) mod telemetry;
mod tools;
mod variables;

pub use actions::{
    ApplyArgs, CheckArgs, ConvergeArgs, DestroyArgs, HookArgs, InputArgs, JudgingArgs, LayersArgs,
    LeaseArgs, MigrateArgs, MonitoringArgs, PeriodicArgs, PlanArgs, PlanName, PolicyArgs,
    PolicyCommand, PolicyOptions, PolicyTestArgs, RegoVersion, Separator, StartArgs, StateArgs,
    StateFileArgs, StatePlace,
};
pub use binding::{BindingArgs, SnapshotMode};
pub use classify::ClassifyArgs;
pub(crate) use environment::bool_of_go;
pub use environment::{Environment, GitHub, GitHubApp, MirrorVariables, Pod, Tenv, Terminal};
pub(crate) use files::NamedFile;
pub use identity::{DatastoreArgs, LayerArgs, RemoteArgs};
pub use limits::LimitArgs;
pub(crate) use limits::duration;
use limits::time_limit;
pub use preflight::{DoctorArgs, PreflightArgs, PreflightMode};
pub use retries::{RetryArgs, SpoolArgs};
pub use show::{LogsArgs, RunName, RunTarget, RunsArgs, ShowArgs, ShowCommon};
pub use tools::{
    InstallArgs, ListArgs, MirrorArgs, PruneArgs, ResolveArgs, Target, TargetArgs, ToolArgs,
    ToolsCommand,
};
pub use variables::{Variable, VariableArgs};

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{BoolishValueParser, Resettable};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{
    Arg, ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
};
use datastore_api::{Attempt, Name, entry_point};

use crate::version::ToolName;

/// Runs Terraform and OpenTofu unattended: the right version, verified; plans and applies, stored;
/// annotations on the layer.
#[derive(Debug, Parser)]
#[command(name = "runner", disable_version_flag = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// Format of the runner's own log lines on stderr
    #[arg(
        long,
        global = true,
        env = "PLANCHA_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub log_format: LogFormat,
    /// Mask the value of this environment variable in everything that people read. Can be repeated [variables with a
    /// name like a secret's are masked anyway]
    #[arg(long, global = true, env = "PLANCHA_REDACT_ENV")]
    #[arg(value_name = "NAME[,NAME]", value_delimiter = ',', value_parser = environment::variable_name)]
    pub redact_env: Vec<String>,
    /// Whether the program was called as `burrito`, as in Burrito's pods. The exit code is then 0 or 1, or 2 for an
    /// unknown subcommand of `burrito runner`, as in Burrito's own program.
    #[arg(skip)]
    pub burrito: bool,
}

const EXIT_CODES: &str = "\
Exit codes:
    0  done (also: no changes)              8  configuration: version, ref, path, layer, plan
    1  failed, unclassified;                9  integrity: signature, digest or plan mismatch
       the object exists already           10  the datastore: unreachable, refused, lost upload
    2  changes pending (plan and check,    11  a time limit
       only with --detailed-exitcode)      12  blocked by, or waiting for, another layer
    3  refused by the policy or by the     64  usage
       program before the apply;          130  interrupted by SIGINT
       destroy: waits for its approval    143  interrupted by SIGTERM or SIGHUP
    4  state locked by another process
    5  credentials (401, 403)
    6  network, transient, retries used up
    7  quota";

const EXIT_CODES_AS_BURRITO: &str = "\
Exit codes:
    0  done                                 2  an unknown subcommand
    1  any failure; the log says which";

impl Cli {
    /// Parses the command line. `Err` is the exit code after help was shown, or after a usage error (64).
    ///
    /// As `burrito` the first word is `runner` (or `version`).
    pub fn from_arguments(args: impl Iterator<Item = OsString>) -> Result<Self, ExitCode> {
        let (mut args, burrito) = entry_point::read(args.collect(), "runner");
        let of_runner = burrito && args.get(1).is_some_and(|word| word == "runner");
        if of_runner {
            args.remove(1);
        }
        if let Some(word) = args.get_mut(1).filter(|word| *word == "--version" || *word == "-V") {
            *word = "version".into();
        }
        let refused = |error: clap::Error| {
            let printed = hints::print(&error);
            match error.kind() {
                ErrorKind::DisplayHelp if hints::is_lost(&printed) => ExitCode::FAILURE,
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
            .and_then(|matches| {
                allowed::check(matches.subcommand_name(), &program)?;
                Self::from_matches(&matches)
            })
            .map_err(|error| refused(hints::with_hint(error, &given, &program)))?;
        Ok(Self { burrito, ..cli })
    }

    fn from_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut cli = Self::from_arg_matches(matches)?;
        if let Command::Upload(args) = &mut cli.command {
            let upload = matches.subcommand_matches("upload");
            let source = upload.and_then(|upload| upload.value_source("datastore"));
            args.is_datastore_explicit = source == Some(ValueSource::CommandLine);
        }
        let (target, name) = match &cli.command {
            Command::Show(args) => (&args.target, "show"),
            Command::Logs(args) => (&args.target, "logs"),
            _ => return Ok(cli),
        };
        let matches = matches.subcommand_matches(name);
        if let Some(useless) = matches.and_then(|matches| target.useless(matches)) {
            let message = format!(
                "NAMESPACE/LAYER/RUN names the layer: leave out {useless}, or name only the run\n"
            );
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, message));
        }
        Ok(cli)
    }
}

/// The command line.
fn program(of_runner: bool) -> clap::Command {
    let program = descriptions::of_commands(Cli::command(), BIN_DIR);
    // Usage lines show the program's name as the user types it.
    if of_runner {
        program.bin_name("burrito runner").after_help(EXIT_CODES_AS_BURRITO)
    } else {
        program
    }
}

/// The command and its subcommands, without variables that are overruled or empty. The help does not show values of
/// variables, because a URL may contain a password.
fn with_variables(command: clap::Command, given: &[OsString]) -> clap::Command {
    let command = command.mut_args(|arg| {
        let overruled = is_overruled(&arg, given) || is_empty(&arg);
        let arg = if overruled { arg.env(Resettable::Reset) } else { arg };
        arg.hide_env_values(true)
    });
    command.mut_subcommands(|command| with_variables(command, given))
}

/// An empty variable counts as unset, because CI systems set unset ones to an empty text.
fn is_empty(arg: &Arg) -> bool {
    arg.get_env().is_some_and(environment::is_set_to_nothing)
}

/// Whether a flag on the command line overrules the variable of this one.
fn is_overruled(arg: &Arg, given: &[OsString]) -> bool {
    let over: &[&str] = match arg.get_id().as_str() {
        "plan" => &["--no-plan", "--plan-file"],
        "datastore" => &["--plan-file"],
        "again" => &["--plan", "--plan-file"],
        "order_key" => &["--plan-file"],
        "offline" => &["--refresh"],
        _ => &[],
    };
    given.iter().any(|word| {
        let word = word.to_string_lossy();
        over.contains(&word.split('=').next().unwrap_or_default())
    })
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Plan a root module; store the plan, its renderings and the log
    #[command(after_help = "\
Examples:
  runner plan                                   the module in this directory, nothing stored
  runner plan live/vpc --datastore http://127.0.0.1:8080
  runner plan --layer layer.yaml --datastore URL annotations go into layer.yaml
  runner plan https://git.example.com/infra.git --revision v1.4 --path live/vpc
  runner plan --datastore URL --summary plan.md  also Markdown, for a comment on the change")]
    Plan(Box<PlanArgs>),
    /// Apply a stored plan, after verifying its digest
    #[command(after_help = "\
Examples:
  runner apply --layer layer.yaml --datastore URL      the plan that the layer's annotations name
  runner apply --datastore URL                         the newest plan of this module; refuses changed code
  runner apply --datastore URL --plan vpc-plan-x4k2q   that run's plan; changed code is a warning
  runner apply ... --plan vpc-plan-x4k2q/0 --strict    exactly that plan; refuses changed code
  runner apply --plan-file plan.bin                    a plan from a file, without a datastore
  runner apply --no-plan                               plan and apply in one step")]
    Apply(Box<ApplyArgs>),
    /// Destroy everything that a root module has created: plan it, and apply that plan when it is approved
    #[command(after_help = "\
Without --approve and --auto-approve nothing is destroyed: the plan is made, shown and stored, its SHA-256 is printed, \
and the exit code is 3. An empty state is done at once. Where there is no state, but something was applied, the exit \
code is 8. `state.empty` in --result says whether anything is left. The annotations of a layer stay as they are.

Examples:
  runner destroy --datastore URL                       plan it, and print the digest
  runner destroy --datastore URL --approve DIGEST      apply that plan
  runner destroy --datastore URL --auto-approve        plan and apply
  runner destroy --plan-file plan.bin                  without a datastore; also with --approve DIGEST")]
    Destroy(Box<DestroyArgs>),
    /// Find out whether what exists is as declared, and record the status
    #[command(after_help = "\
It plans without the lock of the state, so it never makes another run fail, and applies nothing. The status is ok, changed, \
destructively_changed (the policy does not allow the changes), absent (nothing exists yet), abandoned (the code declares \
nothing any more) or error. A check that fails transiently keeps the last status, until --error-after in a row have failed.

Exit codes: 0 for ok, changed and absent (2 for changed and absent with --detailed-exitcode), 3 for destructively_changed and \
abandoned, and for an error that of its class.

Example: runner check --datastore URL --detailed-exitcode --result check.json")]
    Check(Box<CheckArgs>),
    /// Plan, and apply that plan if the policy allows all of its changes
    #[command(after_help = "\
A plan with a change that the policy refuses is not applied at all: the changes are listed with the reasons, and the exit code \
is 3. Without --policy, everything is allowed that destroys nothing: not allowed are delete, replace and forget, but for a \
tainted object that a failed run of this layer has created. Refused changes can be approved once by the digest that \
check and converge print.

Example:
  runner converge --datastore URL --approve-destructive DIGEST    apply also these destructive changes")]
    Converge(Box<ConvergeArgs>),
    /// Migrate a layer from terraform to OpenTofu, if both plan no changes
    #[command(after_help = "\
The state is copied to the datastore first. terraform must plan no changes, and so must tofu, in a private copy of the code. \
Then tofu writes the state with the next serial, the datastore records tofu as the tool of the layer, and tofu plans once \
more. From then on a run of this layer with terraform is refused. If anything fails, the state stays, or is restored. An \
interrupted migration goes on when you repeat the command, or ends with --rollback.

If configurations read each other's states, migrate first those whose state nothing else reads: tofu reads the states of \
terraform, but not always the other way round.

`migration.result` in --result is migrated, already, ready (--dry-run), rolled_back, refused or failed.

Examples:
  runner migrate --to tofu@1.10.6 --datastore URL --dry-run   print both plans and how they differ
  runner migrate --to tofu@1.10.6 --datastore URL             migrate the module in this directory
  runner migrate --to tofu --state datastore --datastore URL  its state is in the datastore
  runner migrate --rollback --datastore URL                   back to terraform, if tofu has changed nothing since")]
    Migrate(Box<MigrateArgs>),
    /// Send files that a run could not store
    #[command(after_help = "\
A run that cannot store all of its files keeps them in a private directory and prints this command. It sends the \
record of an apply first, replaces nothing in the datastore, and removes each file once it is stored. You can \
repeat it. The directory records its datastore: only --datastore, not PLANCHA_DATASTORE_URL, sends the files to \
another one.

Example:
  runner upload --datastore URL ~/.local/state/plancha/unsent/default/vpc/vpc-apply-x4k2q/0")]
    Upload(UploadArgs),
    /// List the runs of a layer, newest first
    Runs(Box<RunsArgs>),
    /// Show a run: its outcome, tool, revision, digests, durations and plan
    Show(Box<ShowArgs>),
    /// Print the log of a run
    Logs(Box<LogsArgs>),
    /// Print what kind of failure the output of a run shows: may it be retried?
    #[command(after_help = classify::CLASSIFY_HELP)]
    Classify(ClassifyArgs),
    /// Try a policy
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Check whether this machine, and what it reaches, is ready for a run
    Doctor(Box<DoctorArgs>),
    /// Print the tool version that a directory requires
    Resolve(ResolveArgs),
    /// Download, verify and install that version; print the path of its binary
    Install(InstallArgs),
    /// Copy a verified release to a directory, which works as a mirror without a network
    Mirror(MirrorArgs),
    /// Run in a pod of Burrito's controllers, which set everything by the environment
    Start(Box<StartArgs>),
    /// Print or remove versions of the tools
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Print the runner's own version (also: --version, -V)
    Version,
}

/// The directory of the tools in Burrito's pods.
pub(crate) const BIN_DIR: &str = "/runner/bin";

/// `runner upload`
#[derive(Debug, Args)]
pub struct UploadArgs {
    /// The directory that the failed run has printed
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The datastore, and how it is trusted.
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// Whether the datastore comes from the command line, not from the variable.
    #[arg(skip)]
    pub is_datastore_explicit: bool,
}

/// What plan, apply and destroy share.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// The code: a directory, an archive (tar, tar.gz, tar.zst), a git bundle or a git URL; or manifests of layers, or a directory
    /// of them, which are run in the order of what they need [default: the current directory]
    #[arg(value_name = "DIR|LAYER", num_args = 0..)]
    pub targets: Vec<String>,
    /// The code, if DIR is not given, or is a directory of manifests
    #[arg(long, env = "PLANCHA_SOURCE", value_name = "DIR|FILE|URL")]
    pub source: Option<String>,
    /// Branch, tag or commit to check out of a git URL or bundle. Of a tag and a branch of one name the tag, with a
    /// warning: refs/heads/NAME is the branch [default: its HEAD]
    #[arg(long, env = "PLANCHA_REVISION", value_name = "REF")]
    pub revision: Option<String>,
    /// The source is a directory whose file names hold paths, such as a mounted ConfigMap: SEPARATOR stands for `/`. With `__`,
    /// `modules__net__main.tf` is `modules/net/main.tf`. The run works in a copy
    #[arg(long, env = "PLANCHA_UNFLATTEN", value_name = "SEPARATOR", conflicts_with = "revision")]
    pub unflatten: Option<Separator>,
    /// Do not fetch submodules of a git URL, and plan even if the code needs a file from an empty submodule, or one that
    /// is a git LFS pointer
    #[arg(long, env = "PLANCHA_NO_SUBMODULES", value_parser = BoolishValueParser::new())]
    pub no_submodules: bool,
    /// Working directory inside the source [default: the layer's spec.path, else its root]
    #[arg(long, env = "PLANCHA_PATH", value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Keep the clone or copy of the source in this directory, instead of a temporary one. Not used for a writable
    /// directory, which is used in place
    #[arg(long, env = "PLANCHA_WORK_DIR", value_name = "DIR")]
    pub work_dir: Option<PathBuf>,

    /// Which layer.
    #[command(flatten)]
    pub identity: LayerArgs,
    /// Name of this run [default: <layer>-<action>-<5 random>]
    #[arg(long, env = "PLANCHA_RUN", help_heading = "Identity", value_name = "NAME")]
    pub run: Option<Name>,
    /// Number of this attempt; refused if it is stored already [default: one past the highest stored or
    /// claimed, 0 for a new run]
    #[arg(long, env = "PLANCHA_ATTEMPT", help_heading = "Identity", value_name = "N")]
    pub attempt: Option<Attempt>,

    /// Terraform or OpenTofu [default: the manifest's, else by version files and .tofu files, else
    /// terraform]
    #[arg(long, env = "PLANCHA_TOOL", help_heading = "Tool", value_name = "TOOL", value_parser = planning_tool)]
    pub tool: Option<ToolName>,
    /// Version of the tool: exact (1.9.8), a constraint (~> 1.9), or latest [default: the manifest's,
    /// else from the code]
    #[arg(long, env = "PLANCHA_TOOL_VERSION", help_heading = "Tool", value_name = "REQUEST")]
    pub tool_version: Option<String>,
    /// Run the tool with terragrunt, in this version [default: the manifest's]
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
    /// Where tools are downloaded and installed.
    #[command(flatten)]
    pub tools: ToolArgs,

    /// In which files the state is.
    #[command(flatten)]
    pub state_files: StateFileArgs,
    /// Where the state is.
    #[command(flatten)]
    pub state: StateArgs,
    /// Values of variables.
    #[command(flatten)]
    pub variables: VariableArgs,
    /// Outputs of other layers.
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Limit the plan to this address, for the tool
    #[arg(long, help_heading = "For the tool", value_name = "ADDRESS")]
    pub target: Vec<String>,
    /// Force this address to be replaced, for the tool
    #[arg(long, help_heading = "For the tool", value_name = "ADDRESS")]
    pub replace: Vec<String>,
    /// Further arguments for the tool's plan (for its apply with --no-plan), unchanged
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,

    /// What binds an apply to its plan.
    #[command(flatten)]
    pub binding: BindingArgs,
    /// How often failed steps are run again.
    #[command(flatten)]
    pub retry: RetryArgs,
    /// How credentials are examined.
    #[command(flatten)]
    pub preflight: PreflightArgs,

    /// Where artifacts are stored.
    #[command(flatten)]
    pub datastore: DatastoreArgs,
    /// Where files wait that could not be delivered.
    #[command(flatten)]
    pub spool: SpoolArgs,
    /// Without a datastore: write the plan to this file and its record to PATH.run.json, or apply the plan in this file
    #[arg(long, value_name = "PATH", conflicts_with = "datastore")]
    pub plan_file: Option<PathBuf>,
    /// Write the result to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub result: Option<PathBuf>,
    /// Append a summary to this file, as Markdown [default: `$GITHUB_STEP_SUMMARY`, if it is set]
    #[arg(long, env = "PLANCHA_SUMMARY", value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// Time from the first signal until the tool is killed (90s, 5m)
    #[arg(long, env = "PLANCHA_GRACE", value_name = "DURATION", default_value = "5m", value_parser = time_limit)]
    pub grace: Duration,
    /// How long the run may take.
    #[command(flatten)]
    pub limits: LimitArgs,
}

impl RunArgs {
    /// DIR, the code.
    pub(crate) fn dir(&self) -> Option<&str> {
        self.targets.first().map(String::as_str)
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object a line.
    Json,
}

/// A tool that plans itself, unlike terragrunt, which runs another tool.
fn planning_tool(text: &str) -> Result<ToolName, String> {
    match text.parse() {
        Ok(tool @ (ToolName::Terraform | ToolName::Tofu)) => Ok(tool),
        Ok(ToolName::Terragrunt) => Err(format!(
            "`{text}` runs another tool: name terraform or tofu here, and add --terragrunt"
        )),
        Err(_) if text.eq_ignore_ascii_case("opentofu") => Err(format!("`{text}`: write `tofu`")),
        Err(_) => match ToolName::meant_by(text) {
            Some(tool @ (ToolName::Terraform | ToolName::Tofu)) => {
                Err(format!("`{text}`: did you mean `{tool}`?"))
            }
            _ => Err(format!("`{text}` is not a valid tool: expected terraform or tofu")),
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_datastore_timeout_is_60_s_by_default() {
        let program = Cli::command();
        let of_datastore = |command: &clap::Command| {
            command.get_arguments().find(|arg| arg.get_id() == "datastore_timeout").cloned()
        };
        let arguments = program.get_subcommands().filter_map(of_datastore).collect::<Vec<_>>();
        assert_eq!(
            arguments.len(),
            12,
            "plan, apply, destroy, check, converge, migrate, start, upload, runs, show, logs and doctor: {arguments:?}"
        );
        for argument in arguments {
            assert_eq!(argument.get_default_values(), ["60s"], "{argument:?}");
        }
    }
}
