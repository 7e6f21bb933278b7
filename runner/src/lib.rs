//! Runs Terraform and OpenTofu unattended: one process for one run.
//!
//! [`run()`] is the whole program: an order comes in, an exit code goes out.

mod basis;
pub mod cli;
mod failure;
mod order;
mod process;
mod release;
mod report;
mod run;
mod source;
mod telemetry;
mod tool;
pub mod version;

pub use process::guard;

/// What fuzz targets call.
#[cfg(fuzzing)]
pub mod fuzz {
    pub use crate::release::fuzz::{archive, list};
    pub use crate::version::fuzz::{configuration, request, version_file};
}

use std::path::Path;
use std::process::ExitCode;

use jiff::Timestamp;

use crate::cli::{Cli, Command, Environment};
use crate::failure::Failure;
use crate::order::job::{Job, Refused};
use crate::process::{Log, Signals};
use crate::report::{Outcome, Report};
use crate::run::action::{Run, RunError};
use crate::source::checkout::Source;
use crate::source::scratch::Scratch;

/// Where Kubernetes reads how a container ended, if it put a file there.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Does what the command line says.
pub async fn run(cli: Cli, environment: Environment) -> ExitCode {
    telemetry::start(cli.log_format);
    let burrito = cli.burrito;
    let code = match cli.command {
        Command::Plan(args) => {
            let result = args.run.result.clone();
            let job = Job::plan(*args, burrito, &environment);
            let job = Box::pin(async { job.await.map_err(Refused::from) });
            order("plan", job, &environment, result.as_deref()).await
        }
        Command::Apply(args) => {
            let result = args.run.result.clone();
            let job = Job::apply(*args, burrito, &environment);
            let job = Box::pin(async { job.await.map_err(Refused::from) });
            order("apply", job, &environment, result.as_deref()).await
        }
        Command::Start(args) => {
            let job = Box::pin(Job::start(args, &environment));
            let action = environment.pod.action.clone().unwrap_or_else(|| "start".to_owned());
            order(&action, job, &environment, None).await
        }
        Command::Upload(args) => {
            let sent = crate::run::unsent::upload(&args, &environment).await;
            ended(sent.map_err(|error| Failure::from(&error)))
        }
        Command::Resolve(args) => ended(release::resolve(&args, &environment).await),
        Command::Install(args) => ended(release::install(&args, &environment).await),
        Command::Mirror(args) => ended(release::mirror(&args, &environment).await),
        Command::Tools(command) => ended(release::tools(&command, &environment).await),
        Command::Version => ended(release::print(&version(burrito))),
    };
    ExitCode::from(if burrito { code.min(1) } else { code })
}

/// As `burrito`, in upstream's form: `<version>-<commit> (<time>)`. The image's build says both.
fn version(burrito: bool) -> String {
    let version = env!("CARGO_PKG_VERSION");
    if !burrito {
        return version.to_owned();
    }
    let commit = option_env!("PLANCHA_REVISION").unwrap_or("unknown");
    let time = option_env!("PLANCHA_REVISION_TIME").unwrap_or("unknown");
    format!("{version}-{commit} ({time})")
}

fn ended(result: Result<(), Failure>) -> u8 {
    result.map_or_else(|failure| tell(&failure), |()| 0)
}

async fn order(
    action: &str,
    job: impl Future<Output = Result<Job, Refused>>,
    environment: &Environment,
    result: Option<&Path>,
) -> u8 {
    let report = Report::new(action, Timestamp::now());
    let signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => return refuse(&report, &Failure::from(&RunError::Io(error)), result),
    };
    match signals.or(job).await {
        Ok(Ok(job)) => Box::pin(execute(&job, environment, &signals, result)).await,
        Ok(Err(Refused { error, place })) => {
            let failure = Failure::from(&error);
            if let Some(place) = place {
                crate::run::failed::leave_reason(&place, failure.message()).await;
            }
            // What cannot be written is not tried a second time.
            let result = result.filter(|_| !failure.message().starts_with("--result "));
            refuse(&report, &failure, result)
        }
        Err(stop) => refuse(&report, &stop.into(), result),
    }
}

/// One run, from its order to what becomes of it.
async fn execute(
    job: &Job,
    environment: &Environment,
    signals: &Signals,
    result: Option<&Path>,
) -> u8 {
    let mut report = Report::new(job.action.as_str(), Timestamp::now());
    report.place = Some(job.place.clone());
    if let (Source::Directory(dir), None) = (&job.source, &job.place.repository) {
        report.directory = fs_err::canonicalize(dir).ok().map(|dir| dir.display().to_string());
    }
    let set_up = || -> Result<_, RunError> {
        process::forbid_core_dumps()?;
        let scratch = Scratch::create()?;
        let log = Log::create(scratch.join(crate::source::scratch::LOG))?;
        Ok((scratch, log))
    };
    let (scratch, log) = match set_up() {
        Ok(parts) => parts,
        Err(error) => {
            return refuse(&report, &Failure::from(&error), result);
        }
    };
    tracing::info!("{job}");
    let (scratch, log) = (&scratch, &log);
    let mut run = Run { job, environment, signals, scratch, log, report, artifacts: None };
    if let Some(datastore) = job.datastore.clone() {
        // A minute of patience is more than there is left after a signal.
        let (signals, limit) = (signals.clone(), run.last_words() / 4);
        tokio::spawn(async move {
            signals.wait().await;
            datastore.shorten_timeout(limit);
        });
    }
    let outcome = Box::pin(run.execute()).await;
    let failure = outcome.err().map(|error| Failure::from(&error));
    // After an apply all was stored that could be.
    if let Some(failure) = &failure
        && run.report.outcome != Outcome::Applied
    {
        run.report.failed(failure);
        Box::pin(run.store_failure(failure)).await;
    }
    publish(&run.report, result);
    failure.map_or(run.report.exit, |failure| tell(&failure))
}

/// An order that cannot even be begun.
fn refuse(report: &Report, failure: &Failure, result: Option<&Path>) -> u8 {
    let mut report = report.clone();
    report.failed(failure);
    publish(&report, result);
    tell(failure)
}

/// Writes the outcome where it was asked for.
fn publish(report: &Report, result: Option<&Path>) {
    if let Some(path) = result
        && let Err(error) = report.write_result(path)
    {
        tracing::warn!("--result {}: {error}", path.display());
    }
    if let Err(error) = report.write_termination_log(Path::new(TERMINATION_LOG)) {
        tracing::warn!("{TERMINATION_LOG}: {error}");
    }
}

fn tell(failure: &Failure) -> u8 {
    match failure.next() {
        None => tracing::error!("{}", failure.reason()),
        Some(next) => tracing::error!("{}\n  next: {next}", failure.reason()),
    }
    failure.exit_code()
}
