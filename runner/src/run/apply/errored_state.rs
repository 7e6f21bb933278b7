//! State that the tool could not write to its backend. The tool writes it to `errored.tfstate` in its working
//! directory. Nothing else records what the apply created, so the file is kept when the run's directories are
//! removed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use datastore_api::chain;
use datastore_api::client::{Condition, Upload};
use fs_err as fs;

use crate::run::Run;
use crate::run::artifacts::{Artifacts, other};
use crate::run::error::RunError;
use crate::run::push::{ErroredState, Push, absolute};
use crate::source::checkout::Workspace;
use crate::source::states::{self, ERRORED, PushRecord};

/// Files, each with its modification time.
pub(super) type Files = BTreeSet<(PathBuf, Option<SystemTime>)>;

/// All `errored.tfstate` files in a workspace, and in terragrunt's download directories elsewhere. Some may come from the
/// repository or an earlier apply.
pub(super) fn errored_states(workspace: &Workspace, downloads: &[PathBuf]) -> Files {
    let mut files = match &workspace.own {
        Some(root) => states::errored(root),
        None => states::errored_in_place(&workspace.dir),
    };
    for dir in downloads {
        // In its absolute form, to recognise what was found already.
        let found = fs::canonicalize(workspace.dir.join(dir)).map(|dir| states::errored(&dir));
        let is_new = |file: &PathBuf| !files.iter().any(|known| is_same(known, file));
        let found = found.unwrap_or_default().into_iter().filter(is_new).collect::<Vec<_>>();
        files.extend(found);
    }
    let time = |file: &Path| fs::metadata(file).and_then(|file| file.modified()).ok();
    files.into_iter().map(|file| (file.clone(), time(&file))).collect()
}

fn is_same(file: &Path, canonical: &Path) -> bool {
    fs::canonicalize(file).is_ok_and(|file| file == canonical)
}

impl Run<'_> {
    /// Keeps the `errored.tfstate` files that this apply has written, and adds them to its result. `before` are the
    /// files that existed earlier.
    pub(super) async fn keep_errored_states(
        &self,
        result: Result<(), RunError>,
        workspace: &Workspace,
        program: String,
        before: &Files,
    ) -> Result<(), RunError> {
        let now = errored_states(workspace, &self.environment.terragrunt_downloads);
        let found = now.difference(before);
        let found = found.map(|(file, _)| file.clone()).collect::<Vec<_>>();
        if found.is_empty() {
            return result;
        }
        let record = self.push_record(program, workspace);
        let (mut files, mut copies) = (Vec::new(), Vec::new());
        for file in found {
            if workspace.kept {
                copies.extend(self.copy(&file, &record));
            }
            files.push(if workspace.kept { absolute(file) } else { self.rescue(&file, &record) });
        }
        let stored = if self.job.pod { Some(self.store_errored(&files).await) } else { None };
        let dir = workspace.kept.then(|| absolute(workspace.dir.clone()));
        let push = Box::new(Push { dir, ..Push::recorded(record) });
        let attempt = self.artifacts.as_ref().map(Artifacts::attempt);
        let log =
            attempt.map(|attempt| format!("run.log of attempt {attempt} of {}", self.job.run));
        let errored = ErroredState { files, copies, push, log, stored };
        if let Err(cause) = result {
            return Err(RunError::Errored { cause: Box::new(cause), errored });
        }
        tracing::warn!("the tool has written errored.tfstate: {}", errored.hint());
        Ok(())
    }

    /// Keeps a copy of a state that stays where it is: the file may be moved or removed, and an apply of the same code
    /// elsewhere is refused as well. Returns the path of the copy.
    fn copy(&self, file: &Path, record: &PushRecord) -> Option<PathBuf> {
        let keeper = self.keeper();
        let error = match keeper.copy_of_original(file, record) {
            Ok(copy) => return Some(copy),
            Err(error) => error,
        };
        tracing::warn!("{} is not copied, so keep the file where it is: {error}", file.display());
        if let Err(error) = keeper.link_state(file, record) {
            tracing::warn!(
                "no link leads to {}, so the directory of the run is kept: {error}",
                file.display()
            );
            // It has the record.
            self.scratch.keep_all();
        }
        None
    }

    /// Copies a state file out of the directory that is removed with the run. Returns where it is.
    fn rescue(&self, file: &Path, record: &PushRecord) -> PathBuf {
        match self.keeper().keep_state(file, record) {
            Ok(to) => to,
            Err(error) => {
                tracing::warn!(
                    "{} cannot be moved, so its directory is kept: {error}",
                    file.display()
                );
                self.scratch.keep_all();
                file.to_owned()
            }
        }
    }

    /// Stores the files as artifacts of the attempt, because the disk of a pod is removed with the pod.
    async fn store_errored(&self, files: &[PathBuf]) -> bool {
        let Some(artifacts) = &self.artifacts else { return false };
        let mut all = true;
        for (index, file) in files.iter().enumerate() {
            let name = states::errored_name(index);
            let stored = async {
                let upload = Upload::file(file).await?;
                let (run, attempt) = (&self.job.run, artifacts.attempt());
                let client = artifacts.client();
                client.put_file(run, attempt, &other(&name), &upload, Condition::Create).await
            };
            let reason = match self.signals.within(self.upload_grace(), stored).await {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => chain(&error),
                Err(_) => "the datastore takes too long".to_owned(),
            };
            tracing::warn!("{ERRORED} is not stored: {reason}");
            all = false;
        }
        all
    }
}
