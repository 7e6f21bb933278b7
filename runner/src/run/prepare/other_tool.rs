//! A second tool in the directory of a run: it is installed beside the first one and takes its place.

use fs_err as fs;

use crate::release::{Installed, Releases};
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::prepare::{CLI_CONFIG, Prepared, init};
use crate::source::checkout::Workspace;
use crate::source::regular::unless_missing;
use crate::tool::path_dir::with_tools;
use crate::version::{self, ToolName};

impl Run<'_> {
    /// Installs the tool that works on this code. `request`: the version, and where it was requested.
    pub(in crate::run) async fn install_other(
        &self,
        tool: ToolName,
        request: Option<(&str, &'static str)>,
        workspace: &Workspace,
    ) -> Result<Installed, RunError> {
        let releases = Releases::new(&self.job.tools, self.environment)?;
        let (dir, context) = self.requests_of(workspace);
        let wanted = version::wanted(Some(tool), request, &dir, &context)?;
        let installed = async { releases.install_for_run(&releases.resolve(&wanted).await?).await };
        Ok(self.signals.or(installed).await.map_err(RunError::stopped_installation)??)
    }

    /// Replaces the tool. Nothing is left of the other one's init: an init of this one must follow.
    pub(in crate::run) fn use_tool(
        &mut self,
        prepared: &mut Prepared,
        installed: &Installed,
    ) -> Result<(), RunError> {
        self.record_tools(installed, None)?;
        let (mut env, mirrored) = self.tool_env(installed.tool)?;
        let links = self.scratch.join(format!("bin-{}", installed.tool.program()));
        unless_missing(fs::remove_dir_all(&links))?;
        env.push(("PATH".to_owned(), with_tools(&links, [installed], &self.environment.path)?));
        let is_own =
            |(name, _): &(String, _)| name == CLI_CONFIG || env.iter().any(|own| own.0 == *name);
        prepared.env.retain(|variable| !is_own(variable));
        prepared.env.extend(env);
        (prepared.installed, prepared.mirrored) = (installed.clone(), mirrored);
        unless_missing(fs::remove_dir_all(
            prepared.workspace.dir.join(self.environment.data_dir()),
        ))?;
        self.set_state_variables(prepared)
    }

    /// Runs init after another tool has worked in the directory.
    pub(in crate::run) async fn initialize_again(
        &mut self,
        prepared: &mut Prepared,
    ) -> Result<(), RunError> {
        self.step_with_retries(prepared, "init", || Ok(()), init).await?;
        prepared.mirrored = false;
        self.check_own_backend(prepared)?;
        self.use_backend(prepared).await
    }
}
