//! A program on `PATH`: the last resort, where no connection can be had.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::error::ReleaseError;
use super::install::digest;
use super::memory::Recollection;
use super::store::is_program;
use super::{Choice, Installed, Releases, Source};
use crate::process::{self, Program};
use crate::version::{Reason, ToolName, Version, Wanted};

/// What `version -json` says; `OpenTofu` uses the same name.
#[derive(serde::Deserialize)]
struct Answer {
    terraform_version: Version,
}

impl Releases {
    /// A program on `PATH` that will do, else the error that made us look for one.
    pub(super) async fn path_or(
        &self,
        wanted: &Wanted,
        error: ReleaseError,
    ) -> Result<Choice, ReleaseError> {
        let Some(path) = find(&self.path, wanted.tool) else { return Err(error) };
        let version = if let Recollection::Same(known) = self.memory.recall(&path)? {
            known.version
        } else {
            let Some(version) = probe(&path).await else {
                tracing::warn!("{} does not tell its version", path.display());
                return Err(error);
            };
            self.memory.remember(&path, &version, digest(path.clone()).await?);
            version
        };
        if !wanted.request.allows(&version) {
            let (path, request) = (path.display(), &wanted.request);
            tracing::info!("{path} is {version}, which does not match `{request}`");
            return Err(error);
        }
        let reason = match &error {
            ReleaseError::Offline { .. } => "the network is not to be touched".to_owned(),
            error => error.to_string(),
        };
        let found = Reason::new(path.display(), format!("is {version}"));
        Ok(Choice::new(wanted, version, Source::Path(path, reason), Some(found)))
    }

    /// The program that was chosen, with its digest as of now.
    pub(super) async fn program(
        &self,
        choice: &Choice,
        path: PathBuf,
    ) -> Result<Installed, ReleaseError> {
        let sha256 = match self.memory.recall(&path)? {
            Recollection::Same(known) => known.sha256,
            _ => digest(path.clone()).await?,
        };
        Ok(Installed::new(choice, path, sha256, choice.source.to_string()))
    }
}

/// The first program of that name in the absolute directories of `PATH`.
fn find(path: &OsStr, tool: ToolName) -> Option<PathBuf> {
    let directories = std::env::split_paths(path).filter(|directory| directory.is_absolute());
    directories.map(|directory| directory.join(tool.program())).find(|path| is_program(path))
}

/// The version that a program says it is.
async fn probe(path: &Path) -> Option<Version> {
    let program = Program {
        path: path.to_owned(),
        args: ["version", "-json"].map(Into::into).to_vec(),
        dir: PathBuf::from("/"),
        env: vec![("CHECKPOINT_DISABLE".to_owned(), "1".into())],
        without: &[],
    };
    let output = process::output(&program).await.ok().filter(|output| output.status.success())?;
    if let Ok(answer) = serde_json::from_slice::<Answer>(&output.stdout) {
        return Some(answer.terraform_version);
    }
    // Terraform before 0.13 has no JSON: `Terraform v0.12.31`.
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next()?.split_whitespace().nth(1)?.parse().ok()
}
