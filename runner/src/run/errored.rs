//! States that a backend did not accept. The tool leaves such a state as `errored.tfstate` where it worked, and
//! nothing else records what the apply has created: so the file is kept when the run's directories are removed.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use datastore_api::chain;
use datastore_api::client::{Condition, Upload};
use fs_err as fs;

use crate::run::action::{Run, RunError};
use crate::run::artifacts::{Artifacts, other};
use crate::run::unsent::{Unsent, quoted};
use crate::source::checkout::Workspace;
use crate::source::states::{self, ERRORED};

/// A state that was not written to its backend.
#[derive(Debug)]
pub(crate) struct Errored {
    /// Where it is now.
    pub(crate) files: Vec<PathBuf>,
    /// The program that pushes it.
    pub(crate) program: String,
    /// Where its module is, if that stays.
    pub(crate) dir: Option<PathBuf>,
    /// Whether the datastore has it, too; `None` outside of a pod.
    pub(crate) stored: Option<bool>,
}

/// Files, each with the time when it was written.
pub(crate) type Left = BTreeSet<(PathBuf, Option<SystemTime>)>;

/// The states that are left in a workspace: also one that was checked out, or is of an earlier apply.
pub(crate) fn left_in(workspace: &Workspace) -> Left {
    let files = match &workspace.own {
        Some(root) => states::errored(root),
        None => states::errored_in_place(&workspace.dir),
    };
    let time = |file: &Path| fs::metadata(file).and_then(|file| file.modified()).ok();
    files.into_iter().map(|file| (file.clone(), time(&file))).collect()
}

impl Errored {
    /// What to do about it.
    pub(crate) fn next(&self) -> String {
        let Self { program, dir, stored, .. } = self;
        let place = dir.as_ref().map_or_else(
            || "in a checkout of the same commit".to_owned(),
            |dir| format!("in {}", dir.display()),
        );
        let files = self.files.iter().map(|file| quoted(&file.to_string_lossy()));
        let push = files.map(|file| format!("`{program} state push {file}`"));
        let push = push.collect::<Vec<_>>().join(", ");
        let copy = match stored {
            Some(true) => {
                "; the file goes with this pod: the datastore has it as errored.tfstate of the attempt"
            }
            Some(false) => {
                "; the file goes with this pod, and is not stored: copy it before the pod ends"
            }
            None => "",
        };
        format!(
            "resources may exist that only this file records: before anything else plans or applies, run \
             `{program} init` and then {push} {place}, and remove the file{copy}"
        )
    }
}

impl Run<'_> {
    /// Keeps the states that the tool has left in this workspace, beside those `before`, and adds them to how
    /// the apply ended.
    pub(crate) async fn keep_errored(
        &self,
        ended: Result<(), RunError>,
        workspace: &Workspace,
        program: String,
        before: &Left,
    ) -> Result<(), RunError> {
        let left = left_in(workspace);
        let found = left.difference(before);
        let found = found.map(|(file, _)| file.clone()).collect::<Vec<_>>();
        if found.is_empty() {
            return ended;
        }
        let mut files = Vec::new();
        for file in found {
            files.push(if workspace.kept { file } else { self.rescue(&file) });
        }
        let stored = if self.job.pod { Some(self.store_errored(&files).await) } else { None };
        let dir = workspace.kept.then(|| workspace.dir.clone());
        let errored = Errored { files, program, dir, stored };
        if let Err(cause) = ended {
            return Err(RunError::Errored { cause: Box::new(cause), errored });
        }
        tracing::warn!("the tool has left a state: {}", errored.next());
        Ok(())
    }

    /// Moves a state to where it is kept after the run.
    fn rescue(&self, file: &Path) -> PathBuf {
        match self.try_rescue(file) {
            Ok(to) => to,
            Err(error) => {
                tracing::warn!("{} stays where it is: {error}", file.display());
                self.scratch.keep_all();
                file.to_owned()
            }
        }
    }

    fn try_rescue(&self, file: &Path) -> io::Result<PathBuf> {
        let state_home = self.environment.state_home.as_deref();
        let attempt = self.artifacts.as_ref().map(Artifacts::attempt).unwrap_or_default();
        let kept = Unsent::of_state(state_home, self.scratch, &self.job.run, attempt)?;
        let to = kept.keep_state(file)?;
        kept.stay(self.scratch);
        Ok(to)
    }

    /// Stores them as artifacts of the attempt: the disk of a pod goes with it.
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
            let reason = match self.signals.within(self.last_words(), stored).await {
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
