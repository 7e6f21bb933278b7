//! Runs Terraform and OpenTofu unattended: one process for one run.
//!
//! [`run()`] is the whole program. It is the only place that turns errors into exit codes.

mod basis;
pub mod cli;
mod failure;
mod order;
mod process;
mod release;
mod report;
mod run;
mod show;
mod source;
mod tool;
pub mod version;

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

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;

use crate::cli::{Cli, Command, DoctorArgs, Environment, RunArgs};
use crate::failure::{Failure, last_line};
use crate::order::job::{Job, JobError, Rejected};
use crate::order::outputs::summary_file;
use crate::order::pipes;
use crate::process::{Signals, github};
use crate::release::ReleaseError;
use crate::report::{Outcome, Report};
use crate::run::error::RunError;
use crate::run::{PlannedDestroy, Run, RunFiles};
use crate::show::summary::{self, Facts};

/// The file from which Kubernetes reads why a container ended.
const TERMINATION_LOG: &str = "/dev/termination-log";

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
    let shared = |run: &RunArgs| (Outputs::of(run, environment), run.limits.timeout);
    match command {
        Command::Plan(mut args) => {
            let (outputs, limit) = shared(&args.run);
            let job = async {
                pipes::read(args.run.files(false)).await?;
                Ok(Job::plan(*args, burrito, environment).await?)
            };
            execute("plan", Box::pin(job), environment, outputs, limit).await
        }
        Command::Apply(mut args) => {
            let (outputs, limit) = shared(&args.run);
            let job = async {
                pipes::read(args.run.files(true)).await?;
                Ok(Job::apply(*args, burrito, environment).await?)
            };
            execute("apply", Box::pin(job), environment, outputs, limit).await
        }
        Command::Destroy(mut args) => {
            let (outputs, limit) = shared(&args.run);
            let job = async {
                pipes::read(args.run.files(args.approve.is_some())).await?;
                Ok(Job::destroy(*args, burrito, environment).await?)
            };
            execute("destroy", Box::pin(job), environment, outputs, limit).await
        }
        Command::Migrate(mut args) => {
            let (outputs, limit) = shared(&args.run);
            let job = async {
                pipes::read(args.files()).await?;
                Ok(Job::migrate(*args, burrito, environment).await?)
            };
            execute("migrate", Box::pin(job), environment, outputs, limit).await
        }
        Command::Start(args) => {
            let limit = args.limits.timeout;
            let job = Box::pin(Job::start(*args, environment));
            let action = environment.pod.action.clone().unwrap_or_else(|| "start".to_owned());
            execute(&action, job, environment, Outputs::default(), limit).await
        }
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
        Command::Classify(args) => {
            printed(args.json, environment, async { tool::diagnosis::classify(&args) }).await
        }
        Command::Doctor(args) => doctor(&args, environment).await,
        Command::Resolve(args) => exit_code(release::resolve(&args, environment).await),
        Command::Install(args) => exit_code(release::install(&args, environment).await),
        Command::Mirror(args) => exit_code(release::mirror(&args, environment).await),
        Command::Tools(command) => exit_code(release::tools(&command, environment).await),
        Command::Version => exit_code(release::print(&version(burrito))),
    }
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

/// The files that describe a run, beside those in the datastore.
#[derive(Debug, Default)]
struct Outputs {
    /// The report (`--result`).
    result: Option<PathBuf>,
    /// The summary (`--summary`).
    summary: Option<PathBuf>,
}

impl Outputs {
    fn of(args: &RunArgs, environment: &Environment) -> Self {
        let summary = summary_file(args, environment).unwrap_or_else(|reason| {
            tracing::warn!("the summary is not written: {reason}");
            None
        });
        Self { result: args.result.clone(), summary: summary.cloned() }
    }

    /// Writes the report to the termination log, and to `--result`, which may be a pipe that nothing reads.
    fn publish(&self, report: &Report) {
        if let Err(error) = report.write_termination_log(Path::new(TERMINATION_LOG)) {
            tracing::warn!("{TERMINATION_LOG}: {error}");
        }
        if let Some(path) = &self.result
            && let Err(error) = report.write_result(path)
        {
            tracing::warn!("--result {}: {error}", path.display());
        }
    }

    /// Reports a failure before the run has started.
    fn reject(&self, mut report: Report, failure: Failure, environment: &Environment) -> u8 {
        let failure = failure.masked(&environment.redaction);
        failure.record(&mut report);
        self.publish(&report);
        if let Some(path) = &self.summary {
            let facts = Facts::of_rejection(&report, failure.reason());
            summary::append(path, &facts, &environment.redaction);
        }
        last_line::end(&failure, &report.action, environment)
    }
}

/// Plans, applies or destroys: makes the job, runs it, and publishes the report. It is stopped after `limit`.
async fn execute(
    action: &str,
    job: impl Future<Output = Result<Job, Rejected>>,
    environment: &Environment,
    mut outputs: Outputs,
    limit: Option<Duration>,
) -> u8 {
    let report = Report::new(action, Timestamp::now());
    let listening = start_output(environment).and_then(|()| Signals::listen(limit));
    let signals = match listening {
        Ok(signals) => signals,
        Err(error) => {
            return outputs.reject(report, Failure::from(&RunError::Io(error)), environment);
        }
    };
    match signals.or(job).await {
        Ok(Ok(job)) => Box::pin(run_job(job, environment, &signals, &outputs)).await,
        Ok(Err(Rejected { error, attempt })) => {
            let failure = Failure::from(&error).masked(&environment.redaction);
            if let Some(attempt) = attempt {
                run::failed::store_rejection(&attempt, failure.message()).await;
            }
            // The file that was refused is not written.
            match error {
                JobError::Result(_) => outputs.result = None,
                JobError::Outputs(_) => outputs = Outputs::default(),
                _ => {}
            }
            outputs.reject(report, failure, environment)
        }
        Err(stop) => outputs.reject(report, stop.into(), environment),
    }
}

/// Runs a job, and the one that applies its plan if the same command does both. Publishes the report.
async fn run_job(job: Job, environment: &Environment, signals: &Signals, outputs: &Outputs) -> u8 {
    let files = match RunFiles::create(environment) {
        Ok(files) => files,
        Err(error) => {
            return outputs.reject(run::new_report(&job), Failure::from(&error), environment);
        }
    };
    let mut run = new_run(&job, environment, signals, &files);
    let failure = execute_run(&mut run, environment).await;
    let planned = run.planned_destroy().filter(|_| failure.is_none());
    let exit = match planned {
        None => publish(&run, failure, environment, outputs).await,
        Some(PlannedDestroy { sha256, attempt, file }) => {
            let plan = run.report;
            let job = job.into_apply(sha256, attempt, file);
            apply_planned(&job, plan, environment, signals, outputs).await
        }
    };
    files.remove(signals).await;
    exit
}

/// Applies the plan that the same command has made. `plan` is the report of that.
async fn apply_planned(
    job: &Job,
    plan: Report,
    environment: &Environment,
    signals: &Signals,
    outputs: &Outputs,
) -> u8 {
    let files = match RunFiles::create(environment) {
        Ok(files) => files,
        Err(error) => {
            return outputs.reject(run::new_report(job), Failure::from(&error), environment);
        }
    };
    let mut run = new_run(job, environment, signals, &files);
    run.report.continue_from(plan);
    let failure = execute_run(&mut run, environment).await;
    let exit = publish(&run, failure, environment, outputs).await;
    files.remove(signals).await;
    exit
}

fn new_run<'a>(
    job: &'a Job,
    environment: &'a Environment,
    signals: &'a Signals,
    files: &'a RunFiles,
) -> Run<'a> {
    tracing::info!("{job}");
    let record_error = |error: &RunError, report: &mut Report| Failure::from(error).record(report);
    Run::new(job, environment, signals, files, record_error)
}

/// Executes a run. Its failure is stored.
async fn execute_run(run: &mut Run<'_>, environment: &Environment) -> Option<Failure> {
    let Err(error) = Box::pin(run.execute()).await else {
        run.release_lease().await;
        return None;
    };
    let failure = Failure::from(&error).with_unanswered(run.unanswered());
    let failure = if run.destroys() { failure.of_destroy() } else { failure };
    run.check_lease().await;
    let failure = failure.with_lost_lease(run.lost_lease()).masked(&environment.redaction);
    // An apply that succeeded has stored its report itself.
    if run.report.outcome != Outcome::Applied {
        failure.record(&mut run.report);
        Box::pin(run.store_failure(failure.message(), &failure.reason())).await;
    }
    run.release_lease().await;
    Some(failure)
}

/// Publishes the report of a run that has ended.
async fn publish(
    run: &Run<'_>,
    failure: Option<Failure>,
    environment: &Environment,
    outputs: &Outputs,
) -> u8 {
    outputs.publish(&run.report);
    Box::pin(run.send_spooled()).await;
    if let Some(path) = &outputs.summary {
        let facts = Facts {
            report: &run.report,
            run: Some(run.key()),
            attempt: run.attempt(),
            apply: run.apply_command(),
            reason: failure.as_ref().map(Failure::reason).or_else(|| run.report.message.clone()),
            renderings: Box::pin(run.renderings()).await,
        };
        summary::append(path, &facts, &environment.redaction);
    }
    let exit = run.report.exit;
    failure.map_or(exit, |failure| last_line::end(&failure, &run.to_string(), environment))
}

/// In a job of GitHub, the tool's output must not contain commands.
fn start_output(environment: &Environment) -> io::Result<()> {
    match environment.github {
        Some(_) => github::stop_commands(),
        None => Ok(()),
    }
}
