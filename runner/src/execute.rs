//! Executes one job: the run, the one that applies its plan if the same command does both, its status, and its report.

pub(crate) mod layers;
pub(crate) mod observe;
pub(crate) mod rounds;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use datastore_api::status::RunResult;
use jiff::Timestamp;

use crate::cli::{Environment, RunArgs};
use crate::execute::observe::Observed;
use crate::execute::observe::board::Board;
use crate::failure::{Failure, last_line};
use crate::order::job::{Job, JobError, Rejected};
use crate::order::outputs::summary_file;
use crate::process::{Signals, github};
use crate::report::{Outcome, Report};
use crate::run::error::RunError;
use crate::run::{self, PlannedApply, Run, RunFiles};
use crate::show::summary::{self, Facts};

/// The file from which Kubernetes reads why a container ended.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// What all runs of one command share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) environment: &'a Environment,
    /// Those of a process that repeats its command. Without them a command listens itself.
    pub(crate) signals: Option<&'a Signals>,
    pub(crate) board: &'a Arc<Board>,
}

/// What describes a run, beside the files in the datastore.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    /// The report (`--result`).
    result: Option<PathBuf>,
    /// The summary (`--summary`).
    summary: Option<PathBuf>,
    /// Where the status of its layer is recorded.
    observed: Option<Observed>,
}

impl Outputs {
    pub(crate) fn of(args: &RunArgs, environment: &Environment) -> Self {
        let summary = summary_file(args, environment).unwrap_or_else(|reason| {
            tracing::warn!("the summary is not written: {reason}");
            None
        });
        Self { result: args.result.clone(), summary: summary.cloned(), observed: None }
    }

    /// Records the status of the layer there as well.
    pub(crate) fn observed(self, observed: Observed) -> Self {
        Self { observed: Some(observed), ..self }
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
    fn reject(&self, mut report: Report, failure: Failure, environment: &Environment) -> Ended {
        let failure = failure.masked(&environment.redaction);
        failure.record(&mut report);
        self.publish(&report);
        if let Some(observed) = &self.observed {
            observed.reject(&report);
        }
        if let Some(path) = &self.summary {
            let facts = Facts::of_rejection(&report, failure.reason());
            summary::append(path, &facts, &environment.redaction);
        }
        let exit = last_line::end(&failure, &report.action, environment);
        Ended::of(&report, exit)
    }
}

/// How a job has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) exit: u8,
    pub(crate) result: RunResult,
    /// The status of the layer, or why it failed, in a few words.
    pub(crate) text: String,
}

/// Executes one job: makes it, runs it, and publishes the report. It is stopped after `limit`.
pub(crate) async fn execute(
    action: &str,
    job: impl Future<Output = Result<Job, Rejected>>,
    environment: &Environment,
    outputs: Outputs,
    limit: Option<Duration>,
) -> u8 {
    let listening = start_output(environment).and_then(|()| Signals::listen(limit));
    match listening {
        Ok(signals) => {
            Box::pin(execute_job(action, job, environment, outputs, &signals)).await.exit
        }
        Err(error) => {
            let report = Report::new(action, Timestamp::now());
            outputs.reject(report, Failure::from(&RunError::Io(error)), environment).exit
        }
    }
}

/// Executes one job, which these signals stop.
pub(crate) async fn execute_job(
    action: &str,
    job: impl Future<Output = Result<Job, Rejected>>,
    environment: &Environment,
    mut outputs: Outputs,
    signals: &Signals,
) -> Ended {
    let report = Report::new(action, Timestamp::now());
    match signals.or(job).await {
        Ok(Ok(job)) => Box::pin(run_job(job, environment, signals, &outputs)).await,
        Ok(Err(Rejected { error, attempt })) => {
            let failure = Failure::from(&error).masked(&environment.redaction);
            if let Some(attempt) = attempt {
                run::failed::store_rejection(&attempt, failure.message()).await;
            }
            // The file that was refused is not written.
            match error {
                JobError::Result(_) => outputs.result = None,
                JobError::Outputs(_) => (outputs.result, outputs.summary) = (None, None),
                _ => {}
            }
            outputs.reject(report, failure, environment)
        }
        Err(stop) => outputs.reject(report, stop.into(), environment),
    }
}

/// Runs a job, and the one that applies its plan if the same command does both. Publishes the report.
async fn run_job(
    job: Job,
    environment: &Environment,
    signals: &Signals,
    outputs: &Outputs,
) -> Ended {
    let mut files = match create_files(&job, environment, outputs) {
        Ok(files) => files,
        Err(ended) => return ended,
    };
    let mut run = new_run(&job, environment, signals, &files);
    let failure = execute_run(&mut run, environment).await;
    let planned = run.planned_apply().filter(|_| failure.is_none());
    let ended = match planned {
        None => publish(&run, failure, environment, outputs).await,
        Some(PlannedApply { sha256, attempt, file, approval }) => {
            run.drop_inputs();
            let plan = run.report;
            let job = job.into_apply((sha256, attempt), file, approval);
            apply_planned(&job, plan, environment, signals, outputs, &mut files).await
        }
    };
    files.remove(signals).await;
    ended
}

/// Applies the plan that the same command has made. `plan` is the report of that, `files` those of its run.
async fn apply_planned(
    job: &Job,
    plan: Report,
    environment: &Environment,
    signals: &Signals,
    outputs: &Outputs,
    files: &mut RunFiles,
) -> Ended {
    let mut others = None;
    if let Err(error) = files.begin_apply(environment, signals).await {
        tracing::warn!(
            "the apply works in another directory, since the plan's cannot be emptied: {error}"
        );
        match create_files(job, environment, outputs) {
            Ok(files) => others = Some(files),
            Err(ended) => return ended,
        }
    }
    let mut run = new_run(job, environment, signals, others.as_ref().unwrap_or(files));
    run.report.continue_from(plan);
    let failure = execute_run(&mut run, environment).await;
    let ended = publish(&run, failure, environment, outputs).await;
    if let Some(files) = others {
        files.remove(signals).await;
    }
    ended
}

/// The private directory and the log of a run.
fn create_files(
    job: &Job,
    environment: &Environment,
    outputs: &Outputs,
) -> Result<RunFiles, Ended> {
    RunFiles::create(environment)
        .map_err(|error| outputs.reject(run::new_report(job), Failure::from(&error), environment))
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
    let failure = failure.with_own_lock(run.own_lock()).with_lost_lease(run.lost_lease());
    let failure = failure.masked(&environment.redaction);
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
) -> Ended {
    outputs.publish(&run.report);
    let observed = outputs.observed.as_ref();
    let known = observed.and_then(|observed| observed.known(run.key()));
    let status = Box::pin(run.store_status(known.as_ref())).await;
    if let (Some(observed), Some(status)) = (observed, status) {
        observed.record(run.key(), status);
    }
    Box::pin(run.conclude_graph()).await;
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
    let exit =
        failure.map_or(exit, |failure| last_line::end(&failure, &run.to_string(), environment));
    Ended::of(&run.report, exit)
}

impl Ended {
    fn of(report: &Report, exit: u8) -> Self {
        let text = match (&report.message, &report.check) {
            (Some(message), _) => message.lines().next().unwrap_or_default().to_owned(),
            (None, Some(check)) => run::check::shown(check),
            (None, None) => String::new(),
        };
        Self { exit, result: run::check::status::result_of(report), text }
    }
}

/// In a job of GitHub, the tool's output must not contain commands.
pub(crate) fn start_output(environment: &Environment) -> io::Result<()> {
    match environment.github {
        Some(_) => github::stop_commands(),
        None => Ok(()),
    }
}
