//! The recipes: what a plan is, and what an apply is, step by step.

mod lost_state;
mod plan_basis;

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use datastore_api::client::Upload;
use datastore_api::{Attempt, ClientError, File, PlanFormat, Sha256};
use fs_err as fs;
use jiff::Timestamp;

use crate::basis::configuration;
use crate::basis::plan_file;
use crate::basis::{Basis, BasisError};
use crate::cli::Environment;
use crate::failure::Failure;
use crate::order::job::{Action, Apply, Job};
use crate::order::layer::{self, Annotations, LayerError};
use crate::process::{self, Ended, Log, Program, Signals, Sink, Stop, private_file};
use crate::release::{Installed, ReleaseError, Releases};
use crate::report::{Outcome, PlanReport, Report, StateLock};
use crate::run::applied::AppliedError;
use crate::run::apply_record::Record;
use crate::run::artifacts::{Artifacts, Entry, OpenError};
use crate::run::errored::{Errored, left_in};
use crate::run::plan_summary::{PlanError, Summary};
use crate::run::stored_plan::{self, Choice, PlannedError};
use crate::source::checkout::{self, Workspace};
use crate::source::context::CheckoutContext;
use crate::source::error::CheckoutError;
use crate::source::scratch::{Scratch, ScratchError};
use crate::source::states;
use crate::tool::argv::Tool;
use crate::tool::diagnostics::Diagnostics;
use crate::tool::path_dir::with_tools;
use crate::tool::provider_mirror::{cli_config, own_files};
use crate::tool::terragrunt;
use crate::version::{self, ToolName, VersionError};

/// The run did not do what was ordered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Checkout(#[from] CheckoutError),
    #[error(transparent)]
    Version(#[from] VersionError),
    #[error(transparent)]
    Release(#[from] ReleaseError),
    #[error("{tool} {step} failed with exit code {code}{}", .errors.first().map(|error| format!(": {error}")).unwrap_or_default())]
    Tool {
        tool: String,
        step: &'static str,
        code: i32,
        errors: Diagnostics,
        dir: PathBuf,
        /// Whether the log goes into a datastore.
        stored: bool,
    },
    #[error("{tool} {step} {end}")]
    Killed {
        tool: String,
        step: &'static str,
        end: String,
        /// The signal that asked the runner to stop, if one did.
        stop: Option<Stop>,
    },
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Planned(#[from] PlannedError),
    #[error(transparent)]
    Basis(#[from] BasisError),
    #[error("the state would be lost: the backend is local, and its file {} is removed when the run ends", .0.display())]
    LocalState(PathBuf),
    #[error("{cause}; the backend did not take the state, which is in {}", shown(&.errored.files))]
    Errored {
        #[source]
        cause: Box<RunError>,
        errored: Errored,
    },
    #[error("{} is a state that an earlier apply could not write to its backend", .file.display())]
    Unpushed { file: PathBuf, dir: PathBuf },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Applied(AppliedError),
    #[error("the datastore")]
    Datastore(#[from] ClientError),
    #[error("the annotations could not be written ({annotations})")]
    Annotate { annotations: String, source: LayerError },
    #[error("what {tool} {step} prints could not be kept")]
    Incomplete {
        tool: String,
        step: &'static str,
        #[source]
        cause: std::io::Error,
    },
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("stopped by {0}")]
    Stopped(Stop),
}

fn shown(files: &[PathBuf]) -> String {
    let files = files.iter().map(|file| file.display().to_string());
    files.collect::<Vec<_>>().join(", ")
}

/// The code in its place, and what works on it.
struct Ready {
    workspace: Workspace,
    installed: Installed,
    terragrunt: Option<Installed>,
    /// Variables for the tool, on top of our own.
    env: Vec<(String, OsString)>,
    /// Whether they name a mirror of providers, from which no init has installed any yet.
    mirrored: bool,
}

impl Ready {
    fn tool(&self) -> Tool<'_> {
        Tool {
            installed: &self.installed,
            terragrunt: self.terragrunt.as_ref(),
            dir: &self.workspace.dir,
            color: std::io::IsTerminal::is_terminal(&std::io::stdout()),
            env: &self.env,
        }
    }
}

/// One run under way: what it was told, what it has, what became of it so far.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) job: &'a Job,
    pub(crate) environment: &'a Environment,
    pub(crate) signals: &'a Signals,
    pub(crate) scratch: &'a Scratch,
    pub(crate) log: &'a Log,
    pub(crate) report: Report,
    /// Set once the datastore has answered, and an apply knows the notes of earlier ones.
    pub(crate) artifacts: Option<Artifacts>,
}

impl Run<'_> {
    /// Does what was ordered. What was found out on the way stays in `self`, however it ends.
    pub(crate) async fn execute(&mut self) -> Result<(), RunError> {
        let (job, signals) = (self.job, self.signals);
        match &job.action {
            Action::Plan { .. } => {
                let (artifacts, code) = tokio::join!(signals.or(open(job)), self.check_out(None));
                // The datastore first: with it, whatever else failed can be stored.
                self.artifacts = artifacts.map_err(RunError::Stopped)??;
                let mut ready = self.initialize(code?).await?;
                self.plan(&mut ready).await
            }
            Action::Apply(from) => {
                let opened = async {
                    let artifacts = open(job).await?;
                    let records = match &artifacts {
                        Some(artifacts) => artifacts.applied().await?,
                        None => Vec::new(),
                    };
                    Ok::<_, RunError>((artifacts, records))
                };
                // Without the records nothing is stored: it could replace one.
                let (artifacts, records) =
                    signals.or(opened).await.map_err(RunError::Stopped)??;
                self.artifacts = artifacts;
                Box::pin(self.apply_once(from, records)).await
            }
        }
    }

    /// Applies, unless a record says that it was done. `records` are those of this run, the latest first.
    async fn apply_once(&mut self, from: &Apply, mut records: Vec<Record>) -> Result<(), RunError> {
        let (job, signals, scratch) = (self.job, self.signals, self.scratch);
        // The run of a pod is one order, however it may be worded by now. Elsewhere a name may be used
        // again with another plan.
        let unplanned = matches!(from, Apply::Unplanned(_));
        if job.pod || unplanned && !job.again {
            if !records.is_empty() {
                return self.applied_before(from, records.swap_remove(0)).await;
            }
            if unplanned && let Some((dir, record)) = self.unsent_record(None) {
                self.send_unsent(&dir).await;
                return self.applied_before(from, record).await;
            }
        }
        let artifacts = self.artifacts.clone();
        let choice = signals.or(stored_plan::choose(job, from, artifacts.as_ref())).await;
        let choice = choice.map_err(RunError::Stopped)??;
        let basis = choice.as_ref().map(|choice| &choice.basis);
        let found = async {
            let found = found(job, from, choice.as_ref(), artifacts.as_ref(), scratch).await?;
            let earlier = match (&found.plan, &artifacts) {
                (Some(plan), Some(artifacts)) => artifacts.applied_plan(plan.sha256).await?,
                _ => None,
            };
            Ok::<_, RunError>((found, earlier))
        };
        let prepared = async {
            let code = self.check_out(basis).await?;
            self.initialize(code).await
        };
        let (found, ready) = tokio::join!(signals.or(found), prepared);
        let (Found { plan, sum }, earlier) = found.map_err(RunError::Stopped)??;
        if let Some(plan) = plan.as_ref().map(|plan| plan.sha256) {
            let same = records.into_iter().find(|record| record.is_of(plan));
            if let Some(record) = same.or(earlier) {
                return self.applied_before(from, record).await;
            }
            if let Some((dir, record)) = self.unsent_record(Some(plan)) {
                self.send_unsent(&dir).await;
                return self.applied_before(from, record).await;
            }
        }
        self.report.plan = plan;
        let mut ready = ready?;
        if let Some(basis) = basis {
            self.compare(from, basis, &ready)?;
        }
        // Held until the apply is recorded.
        let _lock = self.lock_run(from).await?;
        if let Some(record) = self.recorded_since(from).await? {
            return self.applied_before(from, record).await;
        }
        self.apply(&mut ready, sum).await
    }

    /// The code, and the tool that its version asks for: those of the plan to apply, where there is a
    /// `basis`.
    async fn check_out(&mut self, basis: Option<&Basis>) -> Result<Ready, RunError> {
        let job = self.job;
        // Once: it warns of what it passes over.
        let releases = Releases::new(&job.tools, self.environment)?;
        // A path has no other name than itself.
        let address = match &job.source {
            checkout::Source::Git(git) => Some(git.url()),
            _ => None,
        };
        let context = CheckoutContext {
            environment: self.environment,
            scratch: self.scratch,
            signals: self.signals,
            datastore: job.datastore.as_ref(),
            submodules: job.submodules,
            repository: job.place.repository.as_deref().or(address),
            planned: basis.and_then(Basis::commit),
        };
        let workspace =
            checkout::checkout(&job.source, &job.path, job.work_dir.as_deref(), &job.ours, context);
        let (workspace, ()) = tokio::join!(workspace, self.hash_ahead(&releases));
        let workspace = workspace?;
        if workspace.own.is_some()
            && let Some(file) = states::errored(&workspace.dir).into_iter().next()
            && job.work_dir.is_some()
        {
            let dir = workspace.dir;
            return Err(RunError::Unpushed { file, dir });
        }
        self.report.revision.clone_from(&workspace.revision);
        if let Some(basis) = basis {
            self.check_code(basis, &workspace).await?;
        }
        let installed = self.signals.or(self.install(&releases, &workspace, basis)).await;
        let (installed, terragrunt) = installed.map_err(RunError::Stopped)??;
        self.report.tools(&installed, terragrunt.as_ref());
        for tool in [Some(&installed), terragrunt.as_ref()].into_iter().flatten() {
            let line = format!("{} {} ({})", tool.tool, tool.version, tool.source);
            tracing::info!("{line}");
            self.log.line(&line)?;
        }
        let (mut env, mirrored) = self.tool_env(installed.tool)?;
        let tools = [Some(&installed), terragrunt.as_ref()].into_iter().flatten();
        let path = with_tools(&self.scratch.join("bin"), tools, &self.environment.path)?;
        env.push(("PATH".to_owned(), path));
        if terragrunt.is_some() {
            env.extend(self.environment.terragrunt_log.iter().cloned());
        }
        Ok(Ready { workspace, installed, terragrunt, env, mirrored })
    }

    /// Hashes a tool that the order names by its version, while the code is fetched.
    async fn hash_ahead(&self, releases: &Releases) {
        if let (Some(tool), Some((version, _))) = (self.job.tool, &self.job.request) {
            releases.hash_ahead(tool, version).await;
        }
    }

    /// Initializes the code.
    async fn initialize(&mut self, mut ready: Ready) -> Result<Ready, RunError> {
        // Terragrunt initializes by itself: an init of ours would do without mock outputs, say.
        if ready.terragrunt.is_none() {
            self.step_past_mirror(&mut ready, "init", init).await?;
            ready.mirrored = false;
            self.record_lock_file(&ready).await?;
        }
        Ok(ready)
    }

    /// Records the lock file and what an apply compares, once the tool is initialized.
    async fn record_lock_file(&mut self, ready: &Ready) -> Result<(), RunError> {
        let lock_file = ready.workspace.dir.join(".terraform.lock.hcl");
        self.report.providers = configuration::providers(&lock_file);
        if fs::exists(&lock_file)? {
            self.report.lock_file_sha256 = Some(Upload::file(lock_file).await?.sha256());
        }
        self.describe(ready)
    }

    /// Runs a step that may install providers, and once more without the mirror if that does not serve.
    ///
    /// The tool asks all ways that its configuration names, and fails where one of them does: so each
    /// is a try of its own.
    async fn step_past_mirror(
        &mut self,
        ready: &mut Ready,
        name: &'static str,
        program: impl Fn(&Tool<'_>) -> Program,
    ) -> Result<(), RunError> {
        let before = fs::metadata(self.log.path())?.len();
        let result = self.step(name, &program(&ready.tool())).await;
        let Err(RunError::Tool { .. }) = result else { return result };
        if !ready.mirrored || !no_provider(&self.log.since(before)?) {
            return result;
        }
        let line = "the mirror of providers did not serve: trying without it";
        tracing::warn!("{line}");
        self.log.line(line)?;
        ready.mirrored = false;
        ready.env.retain(|(name, _)| name != CLI_CONFIG);
        self.step(name, &program(&ready.tool())).await
    }

    /// The tool, and terragrunt if that is to run it.
    async fn install(
        &self,
        releases: &Releases,
        workspace: &Workspace,
        basis: Option<&Basis>,
    ) -> Result<(Installed, Option<Installed>), RunError> {
        let job = self.job;
        let (tool, request) =
            basis.map_or_else(|| (job.tool, job.request.clone()), |basis| basis.tool(job));
        let terragrunt =
            basis.map_or_else(|| job.terragrunt.clone(), |basis| basis.terragrunt(job));
        let request = request.as_ref().map(|(text, origin)| (text.as_str(), *origin));
        let mut around = self.environment.search_context.clone();
        around.top.clone_from(&workspace.own);
        let (dir, around) = (workspace.dir.as_path(), &around);
        let wanted = version::wanted(tool, request, dir, around)?;
        let installed = releases.install(&releases.resolve(&wanted).await?).await?;
        let Some((text, origin)) = terragrunt else { return Ok((installed, None)) };
        let request = Some((text.as_str(), origin));
        let wanted = version::wanted(Some(ToolName::Terragrunt), request, dir, around)?;
        let terragrunt = releases.install(&releases.resolve(&wanted).await?).await?;
        Ok((installed, Some(terragrunt)))
    }

    /// Variables for the tool, on top of our own; and whether they name a mirror of providers.
    fn tool_env(&self, tool: ToolName) -> Result<(Vec<(String, OsString)>, bool), RunError> {
        let mut env = Vec::new();
        if !self.environment.checkpoint_disable {
            // Nobody reads "a newer version is available" in a log, and the question costs time.
            env.push(("CHECKPOINT_DISABLE".to_owned(), OsString::from("1")));
        }
        let Some(url) = &self.job.provider_mirror else { return Ok((env, false)) };
        match cli_config(url, &own_files(self.environment, tool)) {
            Ok(config) => {
                let file = self.scratch.join("config.tfrc");
                private_file(&file)?.write_all(config.as_bytes())?;
                env.push((CLI_CONFIG.to_owned(), file.into()));
                Ok((env, true))
            }
            Err(why) => {
                let line = format!("the mirror of providers is not asked: {why}");
                tracing::warn!("{line}");
                self.log.line(&line)?;
                Ok((env, false))
            }
        }
    }

    async fn plan(&mut self, ready: &mut Ready) -> Result<(), RunError> {
        let [bin, json, pretty] =
            [PLAN_FILE, "plan.json", "plan.txt"].map(|name| self.scratch.join(name));
        drop(private_file(&bin)?);
        let options = &self.job.options;
        let before = fs::metadata(self.log.path())?.len();
        self.step_past_mirror(ready, "plan", |tool| tool.plan(&bin, options)).await?;
        self.find_mocks(ready, before)?;
        self.record_lock_file(ready).await?;
        self.find_backend(ready, &bin);
        let tool = &ready.tool();

        let bin_file = (File::Plan(PlanFormat::Bin), Upload::file(&bin).await?);
        let sha256 = bin_file.1.sha256();
        let artifacts = self.artifacts.clone();
        let ahead = async {
            Ok::<_, RunError>(match &artifacts {
                // A finished plan is replaced whole: not before the renderings are there.
                Some(artifacts) if !artifacts.is_kept() => Some(artifacts.create(&bin_file).await),
                _ => None,
            })
        };
        // Whatever ends the one ends the other.
        let (ahead, summary) = tokio::try_join!(ahead, self.show(tool, &bin, &json, &pretty))?;
        self.signals.dismiss_guard();
        let short = summary.counts.to_string();
        tracing::info!("{short}");
        self.report.outcome = if summary.changes { Outcome::Changes } else { Outcome::NoChanges };
        self.report.plan =
            Some(PlanReport { sha256, run: None, attempt: None, counts: Some(summary.counts) });
        let rest = [
            (File::Plan(PlanFormat::Pretty), Upload::file(&pretty).await?),
            (File::Plan(PlanFormat::Json), Upload::file(&json).await?),
            (File::Plan(PlanFormat::Short), Upload::bytes(short)),
        ];
        let (signals, last_words) = (self.signals, self.last_words());
        let stored = signals.within(last_words, self.store_plan(&bin_file, &rest, ahead)).await;
        stored.map_err(RunError::Stopped)??;
        if let Some(path) = &self.job.plan_file {
            plan_file::hand_out(&bin, path, &self.report)?;
        }
        self.annotate(sha256).await?;
        tracing::info!("{}", self.next_command());
        Ok(())
    }

    /// The two renderings of a plan, and what the first of them says.
    async fn show(
        &mut self,
        tool: &Tool<'_>,
        bin: &Path,
        json: &Path,
        pretty: &Path,
    ) -> Result<Summary, RunError> {
        let mut tool = *tool;
        let since = self.report.started.into();
        let ran_in = tool.terragrunt.and_then(|_| terragrunt::ran_in(tool.dir, since));
        match self.step_into("show json", &tool.show_json(bin), json).await {
            Err(RunError::Tool { .. }) if tool.terragrunt.is_some() => {
                // Mock outputs may be allowed for a plan only, and showing one needs no outputs.
                let line = "terragrunt cannot show its plan: the tool shows it by itself";
                tracing::warn!("{line}");
                self.log.line(line)?;
                tool.dir = ran_in.as_deref().unwrap_or(tool.dir);
                tool.terragrunt = None;
                self.step_into("show json", &tool.show_json(bin), json).await?;
            }
            shown => shown?,
        }
        let json = fs::File::open(json)?;
        let summary = tokio::task::spawn_blocking(move || Summary::from_json(json));
        self.step_into("show", &tool.show(bin), pretty).await?;
        Ok(summary.await.map_err(std::io::Error::other)??)
    }

    /// Stores all that a plan leaves. An upload that is lost for good fails the plan.
    async fn store_plan(
        &mut self,
        first: &Entry,
        rest: &[Entry],
        ahead: Option<Result<(), ClientError>>,
    ) -> Result<(), RunError> {
        let Some(artifacts) = &mut self.artifacts else {
            self.report.succeeded(exit_code(&self.job.action, self.report.outcome));
            return Ok(());
        };
        artifacts.create_all(first, rest, ahead).await?;
        if let Some(plan) = &mut self.report.plan {
            plan.run = Some(self.job.run.run.to_string());
            plan.attempt = Some(artifacts.attempt());
        }
        self.report.succeeded(exit_code(&self.job.action, self.report.outcome));
        Ok(artifacts.put_outcome(self.log.path(), &self.report).await?)
    }

    async fn annotate(&self, sum: Sha256) -> Result<(), RunError> {
        let attempt = self.artifacts.as_ref().map(Artifacts::attempt).or(self.job.attempt);
        let attempt = attempt.unwrap_or(Attempt(0));
        let revision = self.report.revision.as_deref();
        let run = &self.job.run.run;
        self.write(&layer::plan_annotations(Timestamp::now(), run, attempt, sum, revision)).await
    }

    /// How long what is left to be stored may take once the runner was asked to stop.
    pub(crate) fn last_words(&self) -> Duration {
        // Kubernetes kills a pod 30 s after the signal, and the tool has 20 s of them.
        if self.job.pod {
            Duration::from_secs(8)
        } else {
            self.job.grace.min(Duration::from_secs(15))
        }
    }

    pub(crate) async fn write(&self, annotations: &Annotations) -> Result<(), RunError> {
        let Some(layer) = &self.job.layer else { return Ok(()) };
        let written = self.signals.within(self.last_words(), layer.annotate(annotations)).await;
        written
            .map_err(RunError::Stopped)?
            .map_err(|source| RunError::Annotate { annotations: layer::shown(annotations), source })
    }

    async fn apply(&mut self, ready: &mut Ready, sum: Option<String>) -> Result<(), RunError> {
        self.check_lost_state(ready).await?;
        let (plan, options) = (self.scratch.join(PLAN_FILE), &self.job.options);
        let planned = self.report.plan.is_some();
        let program = |tool: &Tool<'_>| {
            if planned { tool.apply(&plan) } else { tool.apply_unplanned(options) }
        };
        let before = fs::metadata(self.log.path())?.len();
        let left = left_in(&ready.workspace);
        let ended = self.step_past_mirror(ready, "apply", program).await;
        let pushes = ready.terragrunt.as_ref().unwrap_or(&ready.installed).tool.to_string();
        Box::pin(self.keep_errored(ended, &ready.workspace, pushes, &left)).await?;
        self.signals.dismiss_guard();
        if !planned && let Err(error) = self.find_mocks(ready, before) {
            tracing::warn!("whether mock outputs were used is not known: {error}");
        }
        self.has_applied(sum).await
    }

    /// Runs one step of the tool with its output shown.
    async fn step(&mut self, name: &'static str, program: &Program) -> Result<(), RunError> {
        self.run_step(name, program, Sink::Shown(self.log)).await
    }

    /// Runs one step of the tool with its standard output kept in a private file.
    async fn step_into(
        &mut self,
        name: &'static str,
        program: &Program,
        to: &Path,
    ) -> Result<(), RunError> {
        self.run_step(name, program, Sink::Kept(to, self.log)).await
    }

    async fn run_step(
        &mut self,
        step: &'static str,
        program: &Program,
        sink: Sink<'_>,
    ) -> Result<(), RunError> {
        if let Some(stop) = self.signals.stopped() {
            return Err(RunError::Stopped(stop));
        }
        let before = fs::metadata(self.log.path())?.len();
        let ended = process::run(program, sink, self.signals, self.job.grace).await?;
        self.report.step(step, &ended);
        // Terragrunt, where it runs the tool.
        let tool = program.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let judged = self.judge((&tool, &program.dir), step, &ended, before);
        let Some(cause) = ended.incomplete else { return judged };
        // A rendering of which a write failed has ended its tool.
        let is_cause = judged.is_ok() || matches!(sink, Sink::Kept(..));
        let incomplete = RunError::Incomplete { tool, step, cause };
        match judged {
            Ok(()) if step == "apply" => {
                tracing::warn!("the log is incomplete: {}", Failure::from(&incomplete).message());
                Ok(())
            }
            _ if is_cause => Err(incomplete),
            judged => judged,
        }
    }

    /// `before` is the length of the log before the step, `dir` where the tool ran.
    fn judge(
        &mut self,
        (tool, dir): (&str, &Path),
        step: &'static str,
        ended: &Ended,
        before: u64,
    ) -> Result<(), RunError> {
        // 2 is a plan with changes, where TF_CLI_ARGS_plan asks for detailed exit codes.
        let done = ended.status.success() || (step == "plan" && ended.status.code() == Some(2));
        // An apply that came to its end before the signal did is an apply.
        if done && (ended.stop.is_none() || step == "apply") {
            return Ok(());
        }
        let output = self.log.since(before)?;
        let killed = ended.killed || ended.status.signal().is_some();
        if killed || output.contains("Error releasing the state lock") {
            self.report.state_lock = StateLock::Unknown;
        } else if output.contains("Error acquiring the state lock") {
            self.report.state_lock = StateLock::Held;
        }
        let tool = tool.to_owned();
        if let Some(end) = killed_by(ended, self.job.grace) {
            return Err(RunError::Killed { tool, step, end, stop: ended.stop });
        }
        if let Some(signal) = ended.stop {
            return Err(RunError::Stopped(signal));
        }
        let errors = Diagnostics::read(self.log.reader(before)?)?;
        let (code, dir) = (ended.code(), dir.to_owned());
        let stored = self.artifacts.is_some();
        Err(RunError::Tool { tool, step, code, errors, dir, stored })
    }
}

/// How a program was killed, if it was.
fn killed_by(ended: &Ended, grace: Duration) -> Option<String> {
    match (ended.stop, ended.status.signal()) {
        (Some(stop), _) if ended.killed => {
            Some(format!("did not stop within {grace:?} after {stop}, and was killed"))
        }
        (None, Some(9)) => Some("was killed by SIGKILL; perhaps memory ran out".to_owned()),
        (None, Some(signal)) => Some(format!("was ended by signal {signal}")),
        _ => None,
    }
}

/// The exit code of what came to its end.
fn exit_code(action: &Action, outcome: Outcome) -> u8 {
    let detailed = *action == Action::Plan { detailed_exitcode: true };
    if detailed && outcome == Outcome::Changes { 2 } else { 0 }
}

/// Inside the private directory only.
pub(crate) const PLAN_FILE: &str = "plan.bin";

/// The variable that names the tool's CLI configuration.
const CLI_CONFIG: &str = "TF_CLI_CONFIG_FILE";

/// What an apply is about.
#[derive(Debug)]
struct Found {
    /// The plan to apply, unless the tool makes its own.
    plan: Option<PlanReport>,
    /// What `apply-sum` will be, in base64.
    sum: Option<String>,
}

/// The place in the datastore, if there is one.
async fn open(job: &Job) -> Result<Option<Artifacts>, RunError> {
    let Some(client) = job.datastore.clone() else { return Ok(None) };
    let (run, lowest, is_new) = (job.run.clone(), job.lowest_attempt, !job.named.run && !job.pod);
    Ok(Some(Artifacts::open(client, run, job.attempt, lowest, job.pod, is_new).await?))
}

/// The plan to apply: known, and checked, before the tool does anything that counts.
async fn found(
    job: &Job,
    from: &Apply,
    choice: Option<&Choice>,
    artifacts: Option<&Artifacts>,
    scratch: &Scratch,
) -> Result<Found, RunError> {
    let file = scratch.join(PLAN_FILE);
    let plan = stored_plan::fetch(job, from, choice, artifacts, &file).await?;
    let sum = match &plan {
        Some(plan) => Some(plan.sha256),
        None => stored_plan::sum_of_the_ordered(from, artifacts, &file).await?,
    };
    Ok(Found { plan, sum: sum.map(Sha256::to_base64).or_else(|| annotated_sum(job)) })
}

pub(crate) fn annotated_sum(job: &Job) -> Option<String> {
    job.layer.as_ref()?.layer().annotation("plan-sum").map(str::to_owned)
}

/// For any tool, as a closure over the method would not be.
fn init(tool: &Tool<'_>) -> Program {
    tool.init()
}

/// Whether an init failed for want of a provider, in the words of terraform and tofu. An apply that has
/// started is not repeated: only a program that it started can have printed this.
fn no_provider(output: &str) -> bool {
    let contains = |any: &[&str]| any.iter().any(|text| output.contains(text));
    contains(&["Failed to query available provider packages", "Failed to install provider"])
        && !contains(&[": Creating...", ": Modifying...", ": Destroying...", "Apply complete"])
}
