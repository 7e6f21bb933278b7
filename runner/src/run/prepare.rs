//! What both actions need before the tool can plan or apply: the code, the tool, its variables, and init.

pub(crate) mod datastore_state;
pub(super) mod describe;
pub(super) mod lock_file;
mod other_tool;
mod preflight;
pub(super) mod secrets;
mod state_in;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use datastore_api::client::Upload;
use datastore_api::state::LayerTool;
use fs_err as fs;

use crate::basis::binding;
use crate::basis::providers::{self, Digests, Unread};
use crate::basis::{Basis, VersionRequest};
use crate::order::job::Job;
use crate::process::{Program, private_file};
use crate::release::{Installed, Releases};
use crate::report::ToolReport;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::migrate::layer_tool::layer_tool;
use crate::run::prepare::datastore_state::used::UsedState;
pub(super) use crate::run::prepare::state_in::copy_state;
use crate::run::step::messages::MESSAGES;
use crate::run::stored_plan::Choice;
use crate::source::checkout::context::CheckoutContext;
use crate::source::checkout::source_id::SourceId;
use crate::source::checkout::{self, Source, Workspace};
use crate::tool::argv::Tool;
use crate::tool::cli_args::asks_for_json;
use crate::tool::cli_config::dev_overrides::dev_overrides;
use crate::tool::cli_config::own_files;
use crate::tool::cli_config::provider_mirror::with_mirror;
use crate::tool::file_names::LOCK_FILE;
use crate::tool::import_file;
use crate::tool::path_dir::with_tools;
use crate::tool::state_file;
use crate::version::{self, SearchContext, ToolName};

/// The checked-out code, and the tool that runs on it.
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
pub(super) struct Prepared {
    pub(super) workspace: Workspace,
    pub(super) installed: Installed,
    pub(super) terragrunt: Option<Installed>,
    /// Variables for the tool, in addition to the runner's own.
    pub(super) env: Vec<(String, OsString)>,
    /// Whether the variables name a provider mirror that no init has used yet.
    pub(super) mirrored: bool,
    /// Whether the code is a plan's snapshot, whose lock file must not change.
    pub(super) is_snapshot: bool,
    /// Whether init gets `-lockfile=readonly`, which the tool refuses together with `-upgrade`.
    has_fixed_lock_file: bool,
    /// Whether the tool's output has colours.
    has_colours: bool,
    /// Where a tool that can writes its messages as JSON. `None`: the user has it write JSON.
    messages: Option<PathBuf>,
    /// The runner's copy of the state, if flags name files of the state.
    pub(super) state_copy: Option<PathBuf>,
    /// What makes the tool use the state in the datastore, until the end of the run.
    state: Option<UsedState>,
}

impl Prepared {
    /// The tool, as a datastore records it beside a state.
    pub(super) fn layer_tool(&self) -> LayerTool {
        layer_tool(&self.installed)
    }

    /// Whether the tool works with a state in the datastore.
    pub(super) fn uses_datastore_state(&self) -> bool {
        self.state.is_some()
    }

    pub(super) fn tool(&self) -> Tool<'_> {
        Tool {
            installed: &self.installed,
            terragrunt: self.terragrunt.as_ref(),
            dir: &self.workspace.dir,
            color: self.has_colours,
            env: &self.env,
            readonly_lock_file: self.has_fixed_lock_file,
            messages: self.messages.as_deref(),
            state: self.state_copy.as_deref(),
        }
    }
}

impl Run<'_> {
    /// Checks out the code and installs the tool that it requires. With a `choice` both are those of the plan to
    /// apply.
    pub(super) async fn check_out(
        &mut self,
        choice: Option<&Choice>,
    ) -> Result<Prepared, RunError> {
        let job = self.job;
        let basis = choice.map(|choice| &choice.basis);
        // Only once, because it warns about settings that it ignores.
        let releases = Releases::new(&job.tools, self.environment)?;
        let snapshot = match choice {
            Some(choice) => choice.snapshot(job)?.map(|snapshot| (choice, snapshot)),
            None => None,
        };
        let workspace = async {
            match snapshot {
                Some((choice, snapshot)) => self.unpack(choice, snapshot).await,
                None => self.check_out_source(basis).await,
            }
        };
        let (workspace, ()) = tokio::join!(workspace, self.hash_ahead(&releases));
        let workspace = workspace?;
        self.warn_of_unused_work_dir(&workspace, snapshot.is_some());
        self.check_no_backend(&workspace)?;
        if let Some((choice, snapshot)) = snapshot {
            self.record_snapshot(choice, snapshot);
        }
        self.report.revision = revision(basis, &workspace);
        self.report.source_sha256 = workspace.sha256;
        if let (Some(basis), None) = (basis, snapshot) {
            self.check_code(basis, &workspace).await?;
        }
        let installed = self.signals.or(self.install(&releases, &workspace, basis)).await;
        let (installed, terragrunt) = installed.map_err(RunError::stopped_installation)??;
        if let Some(choice) = choice
            && let Some(binding) = &choice.binding
        {
            binding.check_tools(&choice.name(), &installed, terragrunt.as_ref())?;
        }
        self.check_layer_tool(&installed).await?;
        let program = terragrunt.as_ref().unwrap_or(&installed).tool.to_string();
        self.warn_of_other_code();
        self.check_unpushed(&workspace, &program).await?;
        self.record_tools(&installed, terragrunt.as_ref())?;
        let (mut env, mirrored) = self.tool_env(installed.tool)?;
        let tools = [Some(&installed), terragrunt.as_ref()].into_iter().flatten();
        let path = with_tools(&self.scratch.join("bin"), tools, &self.environment.path)?;
        env.push(("PATH".to_owned(), path));
        if terragrunt.is_some() {
            env.extend(self.environment.terragrunt_log.iter().cloned());
        }
        Ok(Prepared {
            workspace,
            installed,
            terragrunt,
            env,
            mirrored,
            is_snapshot: snapshot.is_some(),
            has_fixed_lock_file: snapshot.is_some() && !self.environment.upgrades_providers(),
            has_colours: self.environment.terminal.has_colours(&std::io::stdout()),
            messages: self.messages(),
            state_copy: self.state_in.as_ref().map(|state| state.copy.clone()),
            state: None,
        })
    }

    /// Records that the code is that of the plan, and so is its place.
    fn record_snapshot(&mut self, choice: &Choice, snapshot: &binding::Workspace) {
        self.source_id = choice.source().map(SourceId::of_repository);
        self.path_in_snapshot = Some(snapshot.path.clone());
        if let Some(place) = choice.binding.as_ref().and_then(|binding| binding.place.clone()) {
            self.report.place = Some(place);
        }
        self.report.directory = choice.basis.made_in().map(str::to_owned);
    }

    /// Removes what killed runs have left beside the code.
    fn remove_left_files(&self) {
        let Job { source, work_dir, path, .. } = self.job;
        let directory = match source {
            Source::Directory(dir) => Some(dir),
            _ => None,
        };
        for dir in directory.into_iter().chain(work_dir).map(|dir| dir.join(path)) {
            import_file::remove_left(&dir);
            if let Err(error) = state_file::remove_left(&dir) {
                tracing::warn!("{} has a file of a killed run: {error}", dir.display());
            }
        }
    }

    /// Warns if `--work-dir` has no effect. A pod always has one, which ends with it.
    fn warn_of_unused_work_dir(&self, workspace: &Workspace, is_snapshot: bool) {
        let Some(work_dir) = &self.job.work_dir else { return };
        let reason = if is_snapshot && !self.job.pod {
            "--snapshot=always works in the snapshot of the plan".to_owned()
        } else if workspace.own.is_none() {
            let source = workspace.dir.display();
            format!("the source {source} is a writable directory, and is used in place")
        } else {
            return;
        };
        tracing::warn!("--work-dir {} is not used: {reason}", work_dir.display());
    }

    /// Checks out the source, at the commit of the plan to apply.
    pub(super) async fn check_out_source(
        &self,
        basis: Option<&Basis>,
    ) -> Result<Workspace, RunError> {
        self.remove_left_files();
        let (job, context) = (self.job, self.checkout_context(basis));
        let (path, work_dir) = (&job.path, job.work_dir.as_deref());
        Ok(checkout::checkout(&job.source, path, work_dir, &job.ignored_paths, context).await?)
    }

    fn checkout_context<'b>(&'b self, basis: Option<&'b Basis>) -> CheckoutContext<'b> {
        CheckoutContext {
            environment: self.environment,
            scratch: self.scratch,
            signals: self.signals,
            datastore: self.job.datastore.as_ref(),
            submodules: self.job.submodules,
            source_id: self.job.source_id.as_ref(),
            in_copy: self.job.state.is_some() || self.job.action.migrates(),
            has_terragrunt: self.terragrunt(basis).is_some(),
            planned: basis.and_then(Basis::commit),
        }
    }

    /// Records and logs the resolved tools with their sources.
    fn record_tools(
        &mut self,
        installed: &Installed,
        terragrunt: Option<&Installed>,
    ) -> Result<(), RunError> {
        self.report.tool = Some(tool_report(installed));
        self.report.terragrunt = terragrunt.map(tool_report);
        for tool in [Some(installed), terragrunt].into_iter().flatten() {
            let line = format!("{} {} ({})", tool.tool, tool.version, tool.source);
            tracing::info!("{line}");
            self.log.line(&line)?;
        }
        Ok(())
    }

    /// Hashes the installed tool while the code is fetched, if flags or the layer name its version.
    async fn hash_ahead(&self, releases: &Releases) {
        if let (Some(tool), Some((version, _))) = (self.job.tool, &self.job.request) {
            releases.hash_ahead(tool, version).await;
        }
    }

    /// Runs init.
    pub(super) async fn initialize(
        &mut self,
        mut prepared: Prepared,
    ) -> Result<Prepared, RunError> {
        self.redact_variables(&prepared);
        self.check_credentials(&mut prepared).await?;
        self.use_datastore_state(&mut prepared).await?;
        // Terragrunt runs its own init: a separate one could fail for a dependency that allows mock outputs only for
        // plans.
        if prepared.terragrunt.is_none() {
            self.step_with_retries(&mut prepared, "init", || Ok(()), init).await?;
            prepared.mirrored = false;
            self.check_used_state(&prepared)?;
            self.record_lock_file(&prepared).await?;
            self.check_state_files(&prepared)?;
            self.check_state_in().await?;
            Box::pin(self.check_forgotten_state(&prepared)).await?;
            self.record_called_modules(&prepared.workspace).await?;
            if !self.report.called_modules.is_empty() && !prepared.is_snapshot {
                self.add_called_to_order(&prepared.workspace)?;
                let (job, called) = (self.job, &self.report.called_modules);
                let (source, context) = (&job.source, self.checkout_context(None));
                let workspace = &mut prepared.workspace;
                checkout::check_called(source, &job.path, workspace, called, context).await?;
            }
        }
        Ok(prepared)
    }

    /// Records the lock file and everything that an apply compares, after init.
    pub(super) async fn record_lock_file(&mut self, prepared: &Prepared) -> Result<(), RunError> {
        let lock_file = prepared.workspace.dir.join(LOCK_FILE);
        self.report.providers = providers::versions(&lock_file);
        if fs::exists(&lock_file)? {
            self.report.lock_file_sha256 = Some(Upload::file(lock_file).await?.sha256());
        }
        self.describe(prepared)
    }

    /// The digests of the providers' packages: of those in the lock file, and of the development overrides that are
    /// compared, whose binaries may be large.
    pub(super) async fn provider_digests(
        &self,
        prepared: &Prepared,
        is_compared: impl Fn(&str) -> bool,
    ) -> Result<(Digests, Unread), RunError> {
        let (dir, tool) = (&prepared.workspace.dir, prepared.installed.tool);
        let mut overrides = dev_overrides(&own_files(self.environment, tool), tool, dir);
        overrides.retain(|address, _| is_compared(address));
        let lock_file = dir.join(LOCK_FILE);
        let digests =
            tokio::task::spawn_blocking(move || providers::digests(&lock_file, &overrides));
        Ok(digests.await.map_err(std::io::Error::other)?)
    }

    /// Installs the tool, and terragrunt if it runs the tool.
    async fn install(
        &self,
        releases: &Releases,
        workspace: &Workspace,
        basis: Option<&Basis>,
    ) -> Result<(Installed, Option<Installed>), RunError> {
        let job = self.job;
        let (tool, request) =
            basis.map_or_else(|| (job.tool, job.request.clone()), |basis| basis.tool(job));
        let terragrunt = self.terragrunt(basis);
        if let (Some(variable), Some(_)) = (self.environment.terragrunt_units, &terragrunt) {
            return Err(RunError::SeveralUnits(variable));
        }
        let request = request.as_ref().map(|(text, origin)| (text.as_str(), *origin));
        let (dir, context) = &self.requests_of(workspace);
        let wanted = version::wanted(tool, request, dir, context)?;
        let installed = releases.install_for_run(&releases.resolve(&wanted).await?).await?;
        let Some((text, origin)) = terragrunt else { return Ok((installed, None)) };
        let request = Some((text.as_str(), origin));
        let wanted = version::wanted(Some(ToolName::Terragrunt), request, dir, context)?;
        let terragrunt = releases.install_for_run(&releases.resolve(&wanted).await?).await?;
        Ok((installed, Some(terragrunt)))
    }

    /// The version of terragrunt that is requested, if it runs the tool.
    fn terragrunt(&self, basis: Option<&Basis>) -> VersionRequest {
        basis.map_or_else(|| self.job.terragrunt.clone(), |basis| basis.terragrunt(self.job))
    }

    /// The directory that requests versions, and where else it may. A copy lacks the parents of the user's directory, so that
    /// these are searched where they are.
    pub(super) fn requests_of(&self, workspace: &Workspace) -> (PathBuf, SearchContext) {
        let mut context = self.environment.search_context.clone();
        if let Some(original) = workspace.original() {
            return (original, context);
        }
        context.top.clone_from(&workspace.own);
        (workspace.dir.clone(), context)
    }

    /// Where a tool that can writes its messages as JSON, unless the user has it write JSON.
    fn messages(&self) -> Option<PathBuf> {
        (!asks_for_json(&self.environment.inputs)).then(|| self.scratch.join(MESSAGES))
    }

    /// Variables for the tool, and whether they name a provider mirror.
    fn tool_env(&self, tool: ToolName) -> Result<(Vec<(String, OsString)>, bool), RunError> {
        let mut env = Vec::new();
        if !self.environment.checkpoint_disable {
            // "A newer version is available" is of no use in a log, and the request costs time.
            env.push(("CHECKPOINT_DISABLE".to_owned(), OsString::from("1")));
        }
        let is_mirrored = self.write_cli_config(tool)?;
        if is_mirrored {
            env.push((CLI_CONFIG.to_owned(), self.scratch.join(CLI_CONFIG_FILE).into()));
        }
        Ok((env, is_mirrored))
    }

    /// Writes the user's CLI configuration with the provider mirror, if there is one and it can be used.
    fn write_cli_config(&self, tool: ToolName) -> Result<bool, RunError> {
        let Some(url) = &self.job.provider_mirror else { return Ok(false) };
        match with_mirror(url, &own_files(self.environment, tool)) {
            Ok(config) => {
                private_file(&self.scratch.join(CLI_CONFIG_FILE))?.write_all(config.as_bytes())?;
                Ok(true)
            }
            Err(why) => {
                let line = format!("the provider mirror is not used: {why}");
                tracing::warn!("{line}");
                self.log.line(&line)?;
                Ok(false)
            }
        }
    }

    /// Reads the user's CLI configuration again, whose tokens may have been renewed.
    pub(super) fn refresh_cli_config(&self, prepared: &mut Prepared) -> Result<(), RunError> {
        let is_own = |(name, _): &(String, OsString)| name == CLI_CONFIG;
        if prepared.env.iter().any(is_own) && !self.write_cli_config(prepared.installed.tool)? {
            prepared.mirrored = false;
            prepared.env.retain(|variable| !is_own(variable));
        }
        Ok(())
    }
}

/// The CLI configuration with the provider mirror, in the private directory.
const CLI_CONFIG_FILE: &str = "config.tfrc";

/// The variable that names the tool's CLI configuration.
pub(super) const CLI_CONFIG: &str = "TF_CLI_CONFIG_FILE";

/// The revision of the plan to apply, or else of the code.
fn revision(basis: Option<&Basis>, workspace: &Workspace) -> Option<String> {
    let own = workspace.revision.clone();
    match basis {
        Some(basis) => basis.revision_or(own),
        None => own,
    }
}

/// The program of an init.
pub(super) fn init(tool: &Tool<'_>) -> Program {
    tool.init()
}

fn tool_report(installed: &Installed) -> ToolReport {
    ToolReport {
        name: installed.tool.to_string(),
        version: installed.version.to_string(),
        sha256: installed.sha256,
        source: installed.source.clone(),
    }
}
