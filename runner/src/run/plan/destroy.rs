//! The action `destroy`: what is known of the state before its plan, and after its apply. It is planned and
//! applied as any other plan.

use std::path::{Path, PathBuf};

use datastore_api::client::{StateOrigin, Upload};
use datastore_api::state::{DEFAULT_WORKSPACE, StateKey};
use datastore_api::{ClientError, chain};
use fs_err as fs;
use reqwest::StatusCode;

use crate::basis::backend::Backend;
use crate::basis::local_state::Initialized;
use crate::report::{AppliedRecord, Outcome, StateReport};
use crate::run::Run;
use crate::run::artifacts::LastApply;
use crate::run::error::{AbsentState, RunError};
use crate::run::prepare::Prepared;
use crate::run::prepare::copy_state;
use crate::run::unsent;
use crate::source::regular::unless_missing;
use crate::source::scratch::APPROVED;
use crate::source::states::ERRORED;
use crate::tool::declared_backend::declares_encryption;
use crate::version::ToolName;

impl Run<'_> {
    /// Reads the state before it is planned to destroy what it has. Returns whether that is nothing.
    pub(super) async fn is_destroyed(&mut self, prepared: &Prepared) -> Result<bool, RunError> {
        let state = self.report_of_state(prepared, false).await?;
        if !state.exists() {
            self.check_never_applied(prepared).await?;
        }
        let is_empty = state.empty;
        let line =
            if is_empty { format!("{state}: nothing is destroyed") } else { state.to_string() };
        tracing::info!("{line}");
        self.log.line(&line)?;
        self.report.state = Some(state);
        Ok(is_empty)
    }

    /// Ends a run that has changed nothing. Its report and log are stored.
    pub(in crate::run) async fn record_unchanged(&mut self) -> Result<(), RunError> {
        self.signals.dismiss_guard();
        (self.report.outcome, self.report.exit) = (Outcome::NoChanges, 0);
        let Some(artifacts) = &self.artifacts else { return Ok(()) };
        self.mask_log().await;
        let stored = async {
            artifacts.put_log(self.log.path()).await?;
            artifacts.put_report(&self.report).await
        };
        let stored = self.signals.within(self.upload_grace(), stored).await;
        Ok(stored.map_err(RunError::Stopped)??)
    }

    /// Reads the state by the tool, whatever its backend is. `is_final`: it is kept in the datastore, too.
    pub(in crate::run) async fn report_of_state(
        &mut self,
        prepared: &Prepared,
        is_final: bool,
    ) -> Result<StateReport, RunError> {
        let file = self.scratch.join("state");
        if let Some(copy) = &prepared.state_copy {
            copy_state(copy, &file)?;
        } else {
            let program = prepared.tool().state_pull();
            self.step_into_with_retries("state pull", &program, &file).await?;
        }
        let read = fs::File::open(&file).and_then(StateReport::read);
        if is_final && read.as_ref().is_ok_and(StateReport::exists) {
            self.store_final_state(prepared, &file).await;
        }
        // It is as secret as a state.
        unless_missing(fs::remove_file(&file))?;
        read.map_err(RunError::UnreadableState)
    }

    /// Refuses to take a state that does not exist for one that never existed.
    pub(in crate::run) async fn check_never_applied(
        &self,
        prepared: &Prepared,
    ) -> Result<(), RunError> {
        let (state_home, run) = (self.environment.state_home.as_deref(), &self.job.run);
        if let Some(kept) = unsent::states(state_home, run).into_iter().next() {
            return Err(AbsentState::Kept(kept.file).into());
        }
        if let Some(kept) = self.kept_records().into_iter().next() {
            return Err(AbsentState::Applied(kept.record.applied_by().to_string()).into());
        }
        let Some(artifacts) = &self.artifacts else { return self.check_fresh(prepared) };
        let workspace = self.job.place.workspace.as_deref();
        let last = self.signals.or(artifacts.last_apply(workspace)).await;
        match last.map_err(RunError::Stopped)?? {
            LastApply::None => Ok(()),
            LastApply::Applied(run) => Err(AbsentState::Applied(run).into()),
            LastApply::Unknown(reason) => Err(AbsentState::Unread(reason).into()),
        }
    }

    /// Without a datastore, only a directory that stays shows whether it had a local state.
    fn check_fresh(&self, prepared: &Prepared) -> Result<(), RunError> {
        let workspace = &prepared.workspace;
        let stays = workspace.own.is_none() || workspace.kept;
        let is_local = self.report.backend.as_ref().and_then(Backend::state_file).is_some();
        let module = Initialized {
            dir: &workspace.dir,
            data: self.environment.tf_data_dir.as_deref(),
            workspace: self.environment.tf_workspace.as_deref(),
        };
        let Some(file) = module.state_file()?.filter(|_| stays && is_local) else {
            return Err(AbsentState::Unknown.into());
        };
        let file = workspace.dir.join(file);
        let mut backup = file.clone().into_os_string();
        backup.push(".backup");
        for (left, error) in [
            (PathBuf::from(backup), AbsentState::Backup as fn(PathBuf) -> AbsentState),
            (workspace.dir.join(ERRORED), AbsentState::Kept),
        ] {
            if fs::exists(&left)? {
                return Err(error(left).into());
            }
        }
        Ok(())
    }

    /// Reads the state after the apply. What fails here is a warning: everything is done.
    pub(in crate::run) async fn record_final_state(&mut self, prepared: &Prepared) {
        match self.report_of_state(prepared, true).await {
            Ok(state) => {
                tracing::info!("{state} now");
                self.report.state = Some(state);
            }
            Err(error) => tracing::warn!(
                "applied, but the state could not be read, so it is not known whether it is empty: {}",
                chain(&error)
            ),
        }
    }

    /// Takes over what the attempt has reported that has applied the same plan before.
    pub(in crate::run) async fn copy_final_state(&mut self, record: &AppliedRecord) {
        let Some(artifacts) = &self.artifacts else { return };
        let workspace = self.job.place.workspace.as_deref();
        let known = async {
            Ok::<_, ClientError>(match artifacts.last_apply(workspace).await? {
                LastApply::Applied(run) if run != record.applied_by().to_string() => Err(run),
                _ => Ok(artifacts.state_after(record).await?),
            })
        };
        match self.signals.or(known).await {
            Ok(Ok(Ok(state))) => self.report.state = state,
            Ok(Ok(Err(run))) => tracing::warn!(
                "this plan was applied before, and {run} has applied something since: whether the state is empty is not known; \
                 `runner destroy` without --approve reads it"
            ),
            Ok(Err(error)) => {
                tracing::warn!("whether the state is empty is not known: {}", chain(&error));
            }
            Err(_) => {}
        }
    }

    /// Keeps the final state in the datastore, beside its backend. A datastore need not take states, and a token need not
    /// have the right to them.
    ///
    /// The tool prints a state in plain text, also one that it encrypts: such a state is not kept.
    async fn store_final_state(&self, prepared: &Prepared, file: &Path) {
        let Some(artifacts) = &self.artifacts else { return };
        if prepared.uses_datastore_state() || self.encrypts_state(prepared) {
            return;
        }
        let stored = async {
            let workspace = self.job.place.workspace.as_deref().unwrap_or(DEFAULT_WORKSPACE);
            let Ok(workspace) = workspace.parse() else { return Ok(()) };
            let (namespace, layer) = (self.job.run.namespace.clone(), self.job.run.layer.clone());
            let key = StateKey { namespace, layer, workspace };
            let origin = StateOrigin {
                run: Some(format!("{}/{}", self.job.run.run, artifacts.attempt())),
                tool: Some(prepared.layer_tool()),
                ..StateOrigin::default()
            };
            artifacts.client().put_snapshot(&key, &origin, &Upload::file(file).await?).await
        };
        match self.signals.within(self.upload_grace(), stored).await {
            Ok(Ok(())) => {}
            Ok(Err(error))
                if matches!(
                    error.status(),
                    Some(StatusCode::FORBIDDEN | StatusCode::NOT_FOUND)
                ) =>
            {
                tracing::debug!(
                    "the datastore keeps no copy of the final state: {}",
                    chain(&error)
                );
            }
            Ok(Err(error)) => {
                tracing::warn!("the datastore has no copy of the final state: {}", chain(&error));
            }
            Err(_) => tracing::warn!("the datastore has no copy of the final state: stopped"),
        }
    }

    fn encrypts_state(&self, prepared: &Prepared) -> bool {
        let is_declared = || declares_encryption(&prepared.workspace.dir).unwrap_or(true);
        prepared.installed.tool == ToolName::Tofu && (self.environment.encrypts || is_declared())
    }

    /// The file that the plan is written to, if there is no datastore.
    pub(in crate::run) fn exported_plan(&self) -> Option<PathBuf> {
        let is_private = self.job.action.goes_on() && self.job.datastore.is_none();
        self.job.plan_file.clone().or_else(|| is_private.then(|| self.scratch.join(APPROVED)))
    }
}
