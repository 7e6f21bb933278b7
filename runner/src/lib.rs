//! Runs Terraform and OpenTofu unattended: one process for one run.
//!
//! [`run()`] is the whole program. It is the only place that turns errors into exit codes.

mod basis;
pub mod cli;
mod execute;
mod failure;
mod order;
mod policy;
mod process;
mod release;
mod report;
mod run;
mod show;
mod source;
mod tool;
pub mod version;

pub use policy::rego as policy_worker;
pub use process::panics::reporting_panics;
pub use process::{guard, init};

/// The functions that fuzz targets call.
#[cfg(fuzzing)]
pub mod fuzz {
    pub use crate::release::fuzz::{archive, list};
    pub use crate::source::archive::fuzz::source_archive;
    pub use crate::tool::diagnosis::fuzz::diagnostics;
    pub use crate::version::fuzz::{configuration, request, version_file};
}

use std::process::ExitCode;

use crate::cli::{
    ApplyArgs, ClassifyArgs, Cli, Command, DoctorArgs, Environment, PlanArgs, PolicyCommand,
    PolicyTestArgs, StartArgs,
};
use crate::execute::layers::Each;
use crate::execute::{Outputs, execute, rounds, start_output};
use crate::failure::{Failure, last_line};
use crate::order::job::Job;
use crate::order::pipes;
use crate::release::ReleaseError;
use crate::run::error::RunError;

/// Runs the command of the command line. As `burrito` the exit code is 0 or 1.
pub async fn run(cli: Cli, mut environment: Environment) -> ExitCode {
    cli::telemetry::start(cli.log_format, &environment);
    if let Some(dir) = cli.command.spool_dir() {
        environment.use_spool(dir);
    }
    environment.redact(&cli.redact_env);
    let (burrito, mut command) = (cli.burrito, cli.command);
    let code = match pipes::read(command.files()).await {
        Ok(()) => execute_command(command, burrito, &environment).await,
        Err(error) => last_line::log(&Failure::from(&error)),
    };
    ExitCode::from(if burrito { code.min(1) } else { code })
}

/// Executes a command. Returns the runner's own exit code.
async fn execute_command(command: Command, burrito: bool, environment: &Environment) -> u8 {
    match command {
        Command::Plan(args) => Box::pin(plan(*args, burrito, environment)).await,
        Command::Apply(args) => Box::pin(apply(*args, burrito, environment)).await,
        Command::Start(args) => Box::pin(start(*args, environment)).await,
        Command::Destroy(args) => rounds::run(Each::Destroy(args), burrito, environment).await,
        Command::Migrate(args) => rounds::run(Each::Migrate(args), burrito, environment).await,
        Command::Check(args) => rounds::run(Each::Check(args), burrito, environment).await,
        Command::Converge(args) => rounds::run(Each::Converge(args), burrito, environment).await,
        Command::Upload(args) => exit_code(run::unsent::upload(&args, environment).await),
        Command::Runs(args) => {
            printed(args.json, environment, Box::pin(show::runs(&args, environment))).await
        }
        Command::Show(args) => {
            printed(args.json, environment, Box::pin(show::show(&args, environment))).await
        }
        Command::Logs(args) => {
            printed(false, environment, Box::pin(show::logs(&args, environment))).await
        }
        Command::Classify(args) => classify(&args, environment).await,
        Command::Policy(PolicyCommand::Test(args)) => policy_test(&args, environment).await,
        Command::Doctor(args) => doctor(&args, environment).await,
        Command::Resolve(args) => exit_code(release::resolve(&args, environment).await),
        Command::Install(args) => exit_code(release::install(&args, environment).await),
        Command::Mirror(args) => exit_code(release::mirror(&args, environment).await),
        Command::Tools(command) => exit_code(release::tools(&command, environment).await),
        Command::Version => exit_code(release::print(&version(burrito))),
    }
}

/// Plans a root module.
async fn plan(mut args: PlanArgs, burrito: bool, environment: &Environment) -> u8 {
    let (outputs, limit) = (Outputs::of(&args.run, environment), args.run.limits.timeout);
    let job = async {
        pipes::read(args.run.files(false)).await?;
        Ok(Job::plan(args, burrito, environment).await?)
    };
    execute("plan", Box::pin(job), environment, outputs, limit).await
}

/// Applies a plan.
async fn apply(mut args: ApplyArgs, burrito: bool, environment: &Environment) -> u8 {
    let (outputs, limit) = (Outputs::of(&args.run, environment), args.run.limits.timeout);
    let job = async {
        pipes::read(args.run.files(true)).await?;
        Ok(Job::apply(args, burrito, environment).await?)
    };
    execute("apply", Box::pin(job), environment, outputs, limit).await
}

/// Does what Burrito's controllers have ordered.
async fn start(args: StartArgs, environment: &Environment) -> u8 {
    let limit = args.limits.timeout;
    let job = Box::pin(Job::start(args, environment));
    let action = environment.pod.action.clone().unwrap_or_else(|| "start".to_owned());
    execute(&action, job, environment, Outputs::default(), limit).await
}

async fn classify(args: &ClassifyArgs, environment: &Environment) -> u8 {
    printed(args.json, environment, async { tool::diagnosis::classify(args) }).await
}

async fn policy_test(args: &PolicyTestArgs, environment: &Environment) -> u8 {
    printed(args.json, environment, Box::pin(show::policy_test(args, environment))).await
}

/// Examines the machine. What it finds decides the exit code.
async fn doctor(args: &DoctorArgs, environment: &Environment) -> u8 {
    let code = Box::pin(order::doctor::doctor(args, environment)).await;
    code.unwrap_or_else(|error| exit_code(Err(ReleaseError::Stdout(error))))
}

/// The version; as `burrito` in upstream's form, `<version>-<commit> (<time>)`, which the build of the image sets.
fn version(burrito: bool) -> String {
    let version = env!("CARGO_PKG_VERSION");
    if !burrito {
        return version.to_owned();
    }
    let commit = option_env!("PLANCHA_REVISION").unwrap_or("unknown");
    let time = option_env!("PLANCHA_REVISION_TIME").unwrap_or("unknown");
    format!("{version}-{commit} ({time})")
}

/// The exit code of a command without a report.
fn exit_code<E>(result: Result<(), E>) -> u8
where
    Failure: for<'a> From<&'a E>,
{
    result.map_or_else(|error| last_line::log(&Failure::from(&error)), |()| 0)
}

/// The exit code of a command that prints text of others, in which GitHub must find no commands.
async fn printed<E>(
    is_json: bool,
    environment: &Environment,
    work: impl Future<Output = Result<(), E>>,
) -> u8
where
    Failure: for<'a> From<&'a E>,
{
    // JSON is for a program.
    let started = if is_json { Ok(()) } else { start_output(environment) };
    match started {
        Ok(()) => exit_code(work.await),
        Err(error) => exit_code::<RunError>(Err(RunError::Io(error))),
    }
}
