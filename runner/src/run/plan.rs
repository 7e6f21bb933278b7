//! The action `plan`: plan, show, store, annotate.

pub(crate) mod destroy;
pub(crate) mod renderings;
mod show;
pub(crate) mod summary;

use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use datastore_api::client::Upload;
use datastore_api::{Attempt, ClientError, File, PlanFormat, Sha256, chain};
use fs_err as fs;
use jiff::Timestamp;

use crate::basis::backend::Backend;
use crate::basis::binding::{self, Binding, Bound, Renderings};
use crate::basis::modules::Downloaded;
use crate::basis::plan_file;
use crate::basis::providers::Digests;
use crate::order::layer;
use crate::process::private_file;
use crate::report::{Outcome, PlanReport};
use crate::run::artifacts::{Artifacts, Entry, OpenError};
use crate::run::check;
use crate::run::error::RunError;
use crate::run::plan::summary::Summary;
use crate::run::prepare::Prepared;
use crate::run::prepare::describe::Before;
use crate::run::snapshot::{Packed, SnapshotSource};
use crate::run::{PLAN_FILE, Run, open_artifacts};
use crate::source::checkout::source_id::SourceId;
use crate::source::git::named_revision;
use crate::source::regular::unless_missing;
use crate::source::snapshot::SnapshotError;
use crate::tool::argv::PlanOptions;
use crate::tool::cli_args;
use crate::tool::diagnostics::Below;

/// The time of a plan's file that no tool has written yet.
const UNTOUCHED: SystemTime = SystemTime::UNIX_EPOCH;

/// The files of a plan.
struct PlanFiles<'a> {
    bin: &'a Path,
    /// The plan itself, which is stored first.
    first: &'a Entry,
    rest: &'a [Entry],
}

impl Run<'_> {
    /// Opens the datastore while the code is prepared, and plans.
    pub(super) async fn prepare_and_plan(&mut self) -> Result<(), RunError> {
        let signals = self.signals;
        let (artifacts, code) =
            tokio::join!(signals.or(open_artifacts(self.job)), self.check_out(None));
        // The error of the datastore first: without a datastore no failure can be stored.
        self.set_artifacts(artifacts.map_err(RunError::Stopped)??);
        self.check_arguments()?;
        let code = code?;
        self.report.destroy_mode =
            cli_args::destroys(&self.environment.inputs, &self.job.options.args);
        if !self.job.pod {
            let branch = code.workspace.branch.as_ref();
            self.report.named_revision = named_revision(&self.job.source, branch);
        }
        let source = self.snapshot_source(&code.workspace).await?;
        self.record_code(&code.workspace);
        let mut named = self.list_before(&code.workspace).await;
        if self.job.action.destroys() {
            self.take_lease().await?;
            self.check_layer_tool_again(&code.installed).await?;
        } else if let Some(state) = &self.job.state {
            self.release_left_lease(&state.key).await;
        }
        let mut prepared = self.initialize(code).await?;
        if self.job.action.destroys() {
            self.use_backend(&mut prepared).await?;
        } else {
            self.release_left_backend_lease().await;
        }
        self.list_called(&mut named, &prepared.workspace).await;
        Box::pin(self.undo_killed_imports(&mut prepared)).await?;
        if self.job.action.destroys() && Box::pin(self.is_destroyed(&prepared)).await? {
            return self.record_unchanged().await;
        }
        self.check_inputs()?;
        Box::pin(self.plan(&mut prepared, source, named)).await
    }

    async fn plan(
        &mut self,
        prepared: &mut Prepared,
        source: Option<SnapshotSource>,
        named: Before,
    ) -> Result<(), RunError> {
        let [bin, json, pretty] =
            [PLAN_FILE, renderings::JSON, renderings::PRETTY].map(|name| self.scratch.join(name));
        let before = fs::metadata(self.log.path())?.len();
        let modules = self.downloaded_modules(prepared).await?;
        self.make_plan(prepared, &bin).await?;
        self.check_planned_lineage(&bin)?;
        self.find_mocks(prepared, before)?;
        self.record_lock_file(prepared).await?;
        self.describe_plan(prepared, &bin, named).await?;
        self.check_state_exists(prepared, &bin).await?;
        let modules = tokio::task::spawn_blocking(|| modules.map(Downloaded::digests));
        let packed = source.map(|source| self.pack(source));
        let tool = &prepared.tool();

        let bin_file = (File::Plan(PlanFormat::Bin), Upload::file(&bin).await?);
        let sha256 = bin_file.1.sha256();
        let artifacts = self.artifacts.clone();
        let ahead = async {
            Ok::<_, RunError>(match &artifacts {
                // A finished plan is replaced only when the new one is complete with its renderings.
                Some(artifacts) if !artifacts.is_kept() => Some(artifacts.create(&bin_file).await),
                _ => None,
            })
        };
        // If one of them fails, the other is cancelled.
        let (ahead, summary) = tokio::try_join!(ahead, self.show(tool, &bin, &json, &pretty))?;
        if !self.job.action.goes_on() {
            self.signals.dismiss_guard();
        }
        let short = summary.counts.to_string();
        tracing::info!("{short}");
        self.record_summary(sha256, &summary);
        self.judge(&json, &summary).await?;
        let rest = [
            (File::Plan(PlanFormat::Pretty), Upload::file(&pretty).await?),
            (File::Plan(PlanFormat::Json), Upload::file(&json).await?),
            (File::Plan(PlanFormat::Short), Upload::bytes(short)),
        ];
        let modules = modules.await.map_err(std::io::Error::other)?;
        self.record_modules(modules);
        let packed = match packed {
            Some(packed) => {
                let packed = self.signals.or(packed).await.map_err(RunError::Stopped)?;
                Some(packed.map_err(std::io::Error::other)?)
            }
            None => None,
        };
        let packed = self.search_plan(prepared, (&bin, &json), packed).await;
        let (signals, grace) = (self.signals, self.upload_grace());
        let files = PlanFiles { bin: &bin, first: &bin_file, rest: &rest };
        let stored = Box::pin(self.store_plan(prepared, files, packed, ahead));
        let stored = signals.within(grace, stored).await;
        stored.map_err(RunError::Stopped)?.map_err(|error| self.stopped_upload(error))?;
        self.complete_outputs(prepared).await?;
        self.conclude_plan(&bin, sha256).await
    }

    /// Runs the tool's plan. A check runs it again if another run has changed the state meanwhile.
    async fn make_plan(&mut self, prepared: &mut Prepared, bin: &Path) -> Result<(), RunError> {
        // The token with which a plan takes the lock may end before the plan does, and nothing would free it then. Its apply
        // refuses a plan of an older state. With a converge, whose apply follows, the lock keeps others from planning the same.
        let is_only_plan = self.job.state.is_some() && !self.job.action.goes_on();
        let no_lock = self.job.options.no_lock || is_only_plan && self.lease.held().is_none();
        let options = &PlanOptions { no_lock, ..self.job.options.clone() };
        // A plan that failed may have left a part of its file.
        let empty = || private_file(bin)?.set_modified(UNTOUCHED);
        let mut tries = 1;
        loop {
            let before = fs::metadata(self.log.path())?.len();
            self.step_with_retries(prepared, "plan", empty, |tool| tool.plan(bin, options)).await?;
            self.check_written(prepared, bin, before)?;
            if !self.job.action.is_check() || !self.has_state_moved(prepared, bin, tries).await? {
                return Ok(());
            }
            tries += 1;
        }
    }

    /// An error if the tool has written an empty plan: terraform does not notice a full disk there. Terragrunt can end well
    /// without a plan. `before`: the length of the log before the step.
    fn check_written(&self, prepared: &Prepared, plan: &Path, before: u64) -> Result<(), RunError> {
        let written = unless_missing(fs::metadata(plan))?;
        if written.as_ref().is_some_and(|written| written.len() > 0) {
            return Ok(());
        }
        let is_untouched =
            written.is_none_or(|file| file.modified().is_ok_and(|time| time == UNTOUCHED));
        if is_untouched && prepared.terragrunt.is_some() {
            let message = Below::read(self.log.reader(before)?)?.message;
            return Err(RunError::LeftOut { step: "plan", message });
        }
        let what = "is empty or missing, perhaps because the disk is full";
        let reason = format!("the plan {} {what}", plan.display());
        Err(std::io::Error::new(ErrorKind::StorageFull, reason).into())
    }

    /// Exports the plan that was stored, annotates the layer, and names the next command.
    async fn conclude_plan(&mut self, bin: &Path, sha256: Sha256) -> Result<(), RunError> {
        if let Some(path) = self.exported_plan() {
            self.report.arguments = Some(self.job.options.shown());
            plan_file::export_plan(bin, &path, &self.report)?;
        }
        // The plan of a converge that is not applied is no plan for `runner apply`.
        let is_allowed = self.report.check.as_ref().is_none_or(|check| check.allowed);
        let is_refused = self.job.action.goes_on()
            && self.report.outcome == Outcome::Changes
            && (self.planned_apply().is_none() || !is_allowed);
        if !self.job.action.destroys() && !self.job.action.is_check() && !is_refused {
            self.annotate_plan(sha256).await?;
        }
        if self.job.action.goes_on() || self.job.action.is_check() {
            return Ok(());
        }
        if self.report.exit != 0 && self.job.action.destroys() {
            tracing::warn!(
                "nothing is destroyed: the plan needs the approval of its SHA-256, {sha256}"
            );
        }
        tracing::info!("{}", self.next_command(&plan_file::ephemeral_variables(bin)));
        Ok(())
    }

    /// The exit code of a plan that was made.
    fn exit_of_plan(&self) -> u8 {
        let judged = self.report.check.as_ref().zip(self.job.judging.as_ref());
        match judged {
            Some((check, judging)) => check::exit_code(check, &self.job.action, judging),
            None => self.job.action.success_code(self.report.outcome),
        }
    }

    fn record_summary(&mut self, sha256: Sha256, summary: &Summary) {
        self.report.outcome = if summary.changes { Outcome::Changes } else { Outcome::NoChanges };
        self.report.plan =
            Some(PlanReport { sha256, run: None, attempt: None, counts: Some(summary.counts) });
        self.report.kept_sum = self.kept_sum(summary);
        self.report.changed_outputs.clone_from(&summary.changed_outputs);
    }

    /// Records which values of the plan contain its directory. If the plan cannot be searched for them, it has no snapshot.
    async fn search_plan(
        &mut self,
        prepared: &Prepared,
        (plan, json): (&Path, &Path),
        packed: Option<Result<Packed, SnapshotError>>,
    ) -> Option<Result<Packed, SnapshotError>> {
        if self.artifacts.is_none() && self.exported_plan().is_none() {
            return packed;
        }
        match (self.record_absolute_paths(&prepared.workspace, plan, json).await, packed) {
            (Err(error), Some(Ok(_))) => Some(Err(error)),
            (Err(error), packed) => {
                tracing::warn!("an apply does not compare the directory of the plan: {error}");
                packed
            }
            (Ok(()), packed) => packed,
        }
    }

    /// Stores the plan, its renderings, its snapshot and binding, the log and the report. If one of them cannot be
    /// stored, the plan fails. The report is the last: with it the plan counts as finished.
    async fn store_plan(
        &mut self,
        prepared: &Prepared,
        files: PlanFiles<'_>,
        packed: Option<Result<Packed, SnapshotError>>,
        ahead: Option<Result<(), ClientError>>,
    ) -> Result<(), RunError> {
        self.report.exit = self.exit_of_plan();
        let provider_digests = self.digests_to_bind(prepared).await?;
        let Some(artifacts) = &mut self.artifacts else { return Ok(()) };
        artifacts.create_all(files.first, files.rest, ahead).await?;
        let artifacts = artifacts.clone();
        if let Some(plan) = &mut self.report.plan {
            plan.run = Some(self.job.run.run.to_string());
            plan.attempt = Some(artifacts.attempt());
        }
        let workspace = match packed {
            Some(packed) => self.store_snapshot(&artifacts, packed).await?,
            None => None,
        };
        let is_in_place = prepared.workspace.own.is_none();
        self.needs_source = is_in_place
            && workspace.as_ref().is_some_and(|snapshot| self.is_tied_to_source(snapshot));
        self.report.bound = artifacts.takes_other_files();
        if !self.report.bound && self.job.signing_key.is_some() {
            tracing::warn!(
                "the datastore is Burrito's and takes no signatures: the plan is not signed, and an apply with \
                 --verify-key will refuse it"
            );
        }
        self.report.planned = Some(Timestamp::now());
        self.mask_log().await;
        let attempt = artifacts.attempt();
        let binding = self.binding(prepared, attempt, &files, workspace, provider_digests);
        let (binding, log) = tokio::join!(
            artifacts.put_binding(binding.to_json(self.job.signing_key.as_ref())),
            artifacts.put_log(self.log.path())
        );
        binding.and(log)?;
        Ok(artifacts.put_report(&self.report).await?)
    }

    /// After a signal a datastore gets less time: that it has not answered is a consequence.
    fn stopped_upload(&self, error: RunError) -> RunError {
        let (RunError::Datastore(cause) | RunError::Open(OpenError::Datastore(cause))) = &error
        else {
            return error;
        };
        match self.signals.stopped().filter(|_| cause.is_unanswered()) {
            Some(stop) => {
                let during = format!("the upload of the plan ({})", chain(cause));
                RunError::StoppedStep { during, stop, last: None }
            }
            None => error,
        }
    }

    /// Whether the plan contains the path of its directory, or its state is a file in it.
    fn is_tied_to_source(&self, snapshot: &binding::Workspace) -> bool {
        let state = self.report.backend.as_ref().and_then(Backend::state_file);
        !snapshot.absolute_paths.is_empty() || state.is_some_and(Path::is_relative)
    }

    /// The command that applies the plan, `RUN/ATTEMPT`, with the strictest checks; none in a pod of Burrito's.
    pub(super) fn apply_line(&self, plan: &str) -> Option<String> {
        let command = self.job.apply_command.clone()?;
        let command = if self.needs_source { command.without_snapshot() } else { command };
        if self.job.action.destroys() {
            return Some(command.approve(self.report.plan.as_ref()?.sha256));
        }
        // Without a record of its place and backend a plan is refused with --strict.
        let takes_record = self.artifacts.as_ref().is_none_or(Artifacts::takes_other_files);
        let is_recorded = self.report.place.is_some() && self.report.backend.is_some();
        Some(command.line(plan, takes_record && is_recorded))
    }

    /// The digests of the providers, if the datastore takes a binding. A binary that cannot be read is a warning.
    async fn digests_to_bind(&self, prepared: &Prepared) -> Result<Digests, RunError> {
        if !self.artifacts.as_ref().is_some_and(Artifacts::takes_other_files) {
            return Ok(Digests::new());
        }
        let (digests, unread) = self.provider_digests(prepared, |_| true).await?;
        for (address, error) in unread {
            tracing::warn!("an apply does not compare the provider {address}: {error}");
        }
        Ok(digests)
    }

    /// What the plan is bound to.
    fn binding(
        &self,
        prepared: &Prepared,
        attempt: Attempt,
        files: &PlanFiles<'_>,
        workspace: Option<binding::Workspace>,
        provider_digests: Digests,
    ) -> Binding {
        Binding::new(Bound {
            run: &self.job.run,
            attempt,
            plan: files.first.1.sha256(),
            renderings: self.renderings_to_bind(files.rest),
            workspace,
            report: &self.report,
            source: self.local_source(),
            tool: &prepared.installed,
            terragrunt: prepared.terragrunt.as_ref(),
            provider_digests,
            arguments: self.job.options.shown(),
            state: plan_file::version_in_plan(files.bin),
        })
    }

    /// What people read of the plan.
    fn renderings_to_bind(&self, files: &[Entry]) -> Option<Renderings> {
        let counts = self.report.plan.as_ref()?.counts?;
        let digest = |(file, upload): &Entry| (file.name().to_owned(), upload.sha256());
        Some(Renderings { files: files.iter().map(digest).collect(), counts })
    }

    /// The path of the code, if it is in no known repository.
    fn local_source(&self) -> Option<&str> {
        let source = self.source_id.as_ref().filter(|_| self.job.place.repository.is_none());
        source.map(SourceId::root)
    }

    /// Writes the plan's annotations to the layer.
    async fn annotate_plan(&self, sum: Sha256) -> Result<(), RunError> {
        let planned = self.report.plan.as_ref().and_then(|plan| plan.attempt);
        let attempt = planned.or(self.job.attempt).unwrap_or(Attempt(0));
        let revision = self.report.revision.as_deref();
        let run = &self.job.run.run;
        let sum = self.report.kept_sum.clone().unwrap_or_else(|| sum.to_base64());
        self.annotate(&layer::plan_annotations(Timestamp::now(), run, attempt, sum, revision)).await
    }

    /// Names the plan of a converge in the layer's annotations as soon as its changes are approved. The apply goes on without them.
    pub(in crate::run) async fn annotate_approved(&self) {
        let Some(plan) = &self.report.plan else { return };
        if let Err(error) = self.annotate_plan(plan.sha256).await {
            tracing::warn!("the approved plan is not annotated: {}", chain(&error));
        }
    }

    /// The layer's `apply-sum`, if it is to be the `plan-sum` of this plan: an apply must be able to read that in the
    /// plan's record.
    fn kept_sum(&self, summary: &Summary) -> Option<String> {
        let is_recorded = self.artifacts.as_ref().is_some_and(Artifacts::takes_other_files);
        if !self.job.skip_empty_plans || !summary.is_empty || !is_recorded {
            return None;
        }
        let sum = self.job.layer.as_ref()?.layer().annotation("apply-sum")?;
        tracing::info!("the plan changes nothing: plan-sum stays the layer's apply-sum");
        Some(sum.to_owned())
    }

    /// Where the plan is stored, and the command that applies it. `ephemeral` are variables that the plan does not contain.
    fn next_command(&self, ephemeral: &[String]) -> String {
        let job = self.job;
        let stored = match (&self.artifacts, &job.plan_file) {
            (Some(artifacts), _) => format!("stored as {}/{}", job.run, artifacts.attempt()),
            (None, Some(path)) => format!("stored in {}", path.display()),
            (None, None) => {
                return "the plan is not stored: --datastore or --plan-file keeps it for an apply"
                    .to_owned();
            }
        };
        let attempt = self.artifacts.as_ref().map_or(Attempt(0), Artifacts::attempt);
        if !self.report.mocks.is_empty() {
            return format!("{stored}; an apply refuses it because of its mock outputs");
        }
        let directory = self.report.absolute_paths.as_ref().map(|paths| &paths.directory);
        if directory.is_some_and(|directory| self.scratch.is_once_only(directory)) {
            return format!(
                "{stored}; an apply refuses it because of the directory that it contains"
            );
        }
        let plan = format!("{}/{attempt}", job.run.run);
        match self.apply_line(&plan) {
            Some(command) if ephemeral.is_empty() => format!("{stored}; apply it with: {command}"),
            Some(command) => {
                let names = ephemeral.iter().map(|name| format!("TF_VAR_{name}"));
                let names = names.collect::<Vec<_>>().join(", ");
                format!(
                    "{stored}; set {names} again (ephemeral, not in the plan) and apply it with: {command}"
                )
            }
            None => format!("{stored}; Burrito's controllers order its apply"),
        }
    }
}
