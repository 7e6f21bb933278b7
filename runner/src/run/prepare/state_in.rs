//! The state in a file of `--state-in`: read before anything else, and given to the tool as a copy.

use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use fs_err as fs;

use crate::basis::backend::Backend;
use crate::basis::local_state::Initialized;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::prepare::datastore_state::error::MissingIn;
use crate::source::states::file::{StateFileError, StateFiles, copy_or_remove};

impl Run<'_> {
    /// Reads the state of `--state-in`, if there is one.
    pub(in crate::run) fn read_state_in(&mut self) -> Result<(), RunError> {
        let Some(files) = &self.job.state_files else { return Ok(()) };
        let state = files.read(&self.scratch.join(""))?;
        let file = files.input.display();
        let line = match &state.version {
            Some(version) => format!("the state is that of {file}, serial {}", version.serial),
            None => format!("there is no state yet: {file} does not exist or is empty"),
        };
        tracing::info!("{line}");
        self.log.line(&line)?;
        self.state_in = Some(state);
        Ok(())
    }

    /// Reads the state of `--state-in` again after this run has waited for another one, which may have changed it.
    pub(in crate::run) fn read_state_in_again(&mut self) -> Result<(), RunError> {
        let (Some(files), Some(before)) = (&self.job.state_files, &self.state_in) else {
            return Ok(());
        };
        let state = files.read(&self.scratch.join(""))?;
        if state.version != before.version
            && let Some(version) = &state.version
        {
            let file = files.input.display();
            let line = format!(
                "the state in {file} has changed meanwhile: it has serial {} now",
                version.serial
            );
            tracing::info!("{line}");
            self.log.line(&line)?;
        }
        self.state_in = Some(state);
        Ok(())
    }

    /// Refuses state files for a module with another backend than `local`, and for one that has a state of its own.
    pub(super) fn check_state_files(&self, prepared: &Prepared) -> Result<(), RunError> {
        let Some(files) = &self.job.state_files else { return Ok(()) };
        let kind = self.report.backend.as_ref().map(|backend| backend.kind.as_str());
        if kind != Some("local") {
            return Err(StateFileError::Backend(kind.unwrap_or("unknown").to_owned()).into());
        }
        let Some(own) = self.local_state_file(prepared)? else { return Ok(()) };
        let real = |file: &Path| fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let is_named = |file: &PathBuf| real(file) == real(&own);
        let is_ours = is_named(&files.input) || files.output.as_ref().is_some_and(is_named);
        if !is_ours && fs::metadata(&own).is_ok_and(|file| file.len() > 0) {
            return Err(StateFileError::Two { own, named: files.input.clone() }.into());
        }
        Ok(())
    }

    /// Refuses to plan without a state although the layer was applied.
    pub(super) async fn check_state_in(&self) -> Result<(), RunError> {
        let is_absent = self.state_in.as_ref().is_some_and(|state| state.version.is_none());
        match &self.job.state_files {
            Some(files) if is_absent => {
                let missing = format!("there is no state in {}", files.input.display());
                self.check_earlier_applies(&missing, MissingIn::File).await
            }
            _ => Ok(()),
        }
    }

    /// The file of a local state, as an absolute path, after init. It need not exist. `None`: the state is not local.
    pub(in crate::run) fn local_state_file(
        &self,
        prepared: &Prepared,
    ) -> Result<Option<PathBuf>, RunError> {
        Ok(self.local_state_file_in(&prepared.workspace.dir)?)
    }

    /// The same in the directory of a module.
    pub(in crate::run) fn local_state_file_in(
        &self,
        dir: &Path,
    ) -> std::io::Result<Option<PathBuf>> {
        let environment = self.environment;
        let (data, workspace) =
            (environment.tf_data_dir.as_deref(), environment.tf_workspace.as_deref());
        Initialized { dir, data, workspace }.file()
    }

    /// The backend of a run with state files, where it is `local`.
    pub(in crate::run) fn backend_of_state_files(&self, found: Option<Backend>) -> Option<Backend> {
        let Some(StateFiles { input, .. }) = &self.job.state_files else { return found };
        found.map(|backend| if backend.kind == "local" { Backend::of_file(input) } else { backend })
    }

    /// Identifies the state on this machine by the file that an apply replaces.
    pub(in crate::run) fn state_file_key(&self) -> Option<Sha256> {
        let output = self.job.state_files.as_ref()?.output.as_ref()?;
        let real = fs::canonicalize(output.parent()?).ok()?.join(output.file_name()?);
        Some(Sha256::of(real.as_os_str().as_encoded_bytes()))
    }

    /// Reads the state into a file, as `state pull` does. Without a state the file is empty.
    pub(in crate::run) async fn read_state(
        &mut self,
        prepared: &Prepared,
        to: &Path,
    ) -> Result<(), RunError> {
        if let Some(copy) = &prepared.state_copy {
            return Ok(copy_state(copy, to)?);
        }
        self.step_into("state pull", &prepared.tool().state_pull(), to).await
    }
}

/// Copies a state. Without one the copy is empty.
pub(in crate::run) fn copy_state(from: &Path, to: &Path) -> std::io::Result<()> {
    drop(crate::process::private_file(to)?);
    if from.exists() { copy_or_remove(from, to) } else { Ok(()) }
}
