//! What the report records of the code, the backend and terragrunt's mock outputs. An apply compares it with the
//! record of its plan.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;
use memchr::memmem;
use secrecy::ExposeSecret as _;

use crate::basis::backend::{self, Backend};
use crate::basis::configuration;
use crate::basis::modules::{Downloaded, Modules};
use crate::basis::named_files::{LeftOut, Listed};
use crate::basis::outside_files::Outside;
use crate::basis::plan_file::Contents;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::source::checkout::Workspace;
use crate::source::git::{changed_code, converted, tracked_files};
use crate::source::references;
use crate::source::references::installed::Called;
use crate::source::snapshot::SnapshotError;
use crate::tool::terragrunt;

/// Files that the configuration names, as they are before init.
#[derive(Debug)]
pub(in crate::run) struct Before {
    /// Those of a directory that stays, if no commit records what they are.
    named: Option<Listed>,
    outside: Option<Outside>,
}

impl Run<'_> {
    /// Records a digest of the files that the module reads, before init. An apply of another kind of source compares it. In a
    /// pod there is no other kind.
    pub(in crate::run) fn record_code(&mut self, workspace: &Workspace) {
        if !self.job.pod {
            let digest = references::digest(&workspace.dir, &self.report.called_modules);
            self.report.code_sha256 = digest.map_err(|error| warn_of_unread_files(&error)).ok();
        }
    }

    /// Lists the files that the configuration names, before init.
    pub(in crate::run) async fn list_before(&self, workspace: &Workspace) -> Before {
        let (dir, home) = (workspace.dir.clone(), self.environment.home.clone());
        let own = self.job.ignored_paths.clone();
        let outside = Outside::list(dir, Called::new(), home, own);
        let outside = outside.map_err(|error| warn_of_unread_files(&error)).ok();
        Before { named: self.list_named_files(workspace).await, outside }
    }

    /// Adds the files of the modules of which only init knows, after init.
    pub(in crate::run) async fn list_called(&mut self, before: &mut Before, workspace: &Workspace) {
        let called = &self.report.called_modules;
        if called.is_empty() {
            return;
        }
        if let Some(named) = &mut before.named {
            let added = match self.list_named_files(workspace).await {
                Some(listed) => named.add_called(&workspace.dir, listed),
                None => Ok(()),
            };
            added.unwrap_or_else(|error| warn_of_unread_files(&error));
        }
        if let Some(outside) = &mut before.outside {
            outside.add_called(called).unwrap_or_else(|error| warn_of_unread_files(&error));
        }
        self.record_code(workspace);
    }

    /// Lists the files that the configuration of a directory that stays names, if no commit records what they are.
    async fn list_named_files(&self, workspace: &Workspace) -> Option<Listed> {
        if !has_other_files(workspace) {
            return None;
        }
        let has_commit = workspace.revision.as_ref().is_some_and(|of| !of.ends_with("-dirty"));
        let is_of_commit = has_commit && !self.generates_configuration();
        let called = &self.report.called_modules;
        let left_out = self.left_out(workspace, called, is_of_commit).await.transpose()?;
        let list = |left_out| Ok(Listed::list(&workspace.dir, called, left_out)?.hashed());
        let listed = left_out.and_then(list);
        listed.map_err(|error| warn_of_unread_files(&error)).ok()
    }

    /// Which of the files that the module names are not compared. `is_of_commit`: those that git tracks, unless git
    /// converts them, which may hide a change. `None`: this is asked for, and there is no git.
    pub(in crate::run) async fn left_out(
        &self,
        workspace: &Workspace,
        called: &Called,
        is_of_commit: bool,
    ) -> io::Result<Option<LeftOut>> {
        let copied = match (&workspace.own, &workspace.copied_from) {
            (Some(copy), Some(source)) => Some((fs::canonicalize(copy)?, source.clone())),
            _ => None,
        };
        let left_out =
            |tracked, copied| LeftOut { own: self.job.ignored_paths.clone(), tracked, copied };
        if !is_of_commit {
            return Ok(Some(left_out(None, copied)));
        }
        // Git is asked only if there is something to leave out.
        let all = Listed::list(&workspace.dir, called, left_out(None, copied.clone()))?.of_source();
        if all.is_empty() {
            return Ok(Some(left_out(Some(BTreeSet::new()), copied)));
        }
        // A copy has no `.git`.
        let dir = copied.as_ref().map_or(&workspace.dir, |(_, source)| source);
        let (tracked, converted) = tokio::join!(tracked_files(dir), converted(all.iter()));
        let Some(mut tracked) = tracked.map_err(io::Error::other)? else { return Ok(None) };
        for file in converted.map_err(io::Error::other)? {
            tracked.remove(&file);
        }
        Ok(Some(left_out(Some(tracked), copied)))
    }

    /// The files whose code differs from the commit in the source directory `dir`. Untracked ones count only if the module
    /// reads them, but with terragrunt, whose configuration may read any.
    pub(in crate::run) async fn changed_code(
        &self,
        dir: &Path,
        is_terragrunt: bool,
        called: &Called,
    ) -> Result<BTreeSet<PathBuf>, String> {
        let module = fs::canonicalize(dir.join(&self.job.path));
        let named = module.and_then(|module| references::named(&module, called));
        let named = named.ok().filter(|_| !is_terragrunt);
        let read = named.map(|files| {
            let files = files.into_iter();
            files.filter_map(|(_, file)| fs::canonicalize(file).ok()).collect::<BTreeSet<_>>()
        });
        changed_code(dir, &self.job.ignored_paths, read.as_ref()).await
    }

    /// Whether the tool writes configuration during the plan, which then differs from the commit.
    fn generates_configuration(&self) -> bool {
        const OPTION: &str = "-generate-config-out";
        let variables = ["TF_CLI_ARGS", "TF_CLI_ARGS_plan"];
        let mut values =
            variables.iter().filter_map(|name| self.environment.inputs.get(OsStr::new(name)));
        self.job.options.args.iter().any(|arg| arg.contains(OPTION))
            || values.any(|value| memmem::find(value.expose_secret(), OPTION.as_bytes()).is_some())
    }

    /// Records what is known after the plan: the backend, a state that was removed, files that the configuration names, and
    /// whether the plan has generated configuration.
    pub(in crate::run) async fn describe_plan(
        &mut self,
        prepared: &Prepared,
        plan: &Path,
        before: Before,
    ) -> Result<(), RunError> {
        self.find_backend(prepared, plan);
        self.record_removed_state(prepared)?;
        let dir = &prepared.workspace.dir;
        let digests =
            before.named.map(|listed| listed.digests(dir, &self.report.called_modules)).transpose();
        self.report.named_files = digests.unwrap_or_else(|error| unread(&error));
        if let Some(outside) = before.outside {
            let plan = plan.to_owned();
            let digests = tokio::task::spawn_blocking(move || outside.digests(&plan));
            let digests = self.signals.or(digests).await.map_err(RunError::Stopped)?;
            self.report.outside_files =
                digests.map_err(io::Error::other)?.unwrap_or_else(|error| unread(&error));
        }
        if let Some(commit) = self.report.revision.as_ref().filter(|of| !of.ends_with("-dirty"))
            && prepared.workspace.own.is_none()
            && self.generates_configuration()
            && changed_code(dir, &self.job.ignored_paths, None)
                .await
                .is_ok_and(|files| !files.is_empty())
        {
            self.report.revision = Some(format!("{commit}-dirty"));
        }
        Ok(())
    }

    /// Reads the backend from the plan file if the data directory does not show it, as with terragrunt.
    fn find_backend(&mut self, prepared: &Prepared, plan: &Path) {
        if self.report.backend.is_none() {
            let (dir, variables) = (&prepared.workspace.dir, &self.environment.backend);
            let contents = Contents::read(plan, dir, variables);
            self.report.backend = contents.and_then(|contents| contents.backend);
        }
    }

    /// Records the dependencies for which terragrunt used mock outputs. It reads terragrunt's warnings in the log
    /// from the offset `before`.
    pub(in crate::run) fn find_mocks(
        &mut self,
        prepared: &Prepared,
        before: u64,
    ) -> Result<(), RunError> {
        if prepared.terragrunt.is_none() {
            return Ok(());
        }
        self.report.mocks = terragrunt::mocks(self.log.reader(before)?)?;
        if self.report.mocks.is_empty() {
            return Ok(());
        }
        let dependencies = self.report.mocks.join(", ");
        let line = if self.job.action.is_apply() {
            format!("this apply has used mock outputs, not the real ones of {dependencies}")
        } else {
            format!(
                "this plan uses mock outputs, not the real ones of {dependencies}: plan again when that is \
                 applied (an apply refuses this plan)"
            )
        };
        tracing::warn!("{line}");
        Ok(self.log.line(&line)?)
    }

    /// Lists the modules that init has downloaded. `None` with terragrunt, which runs init during the plan and the apply,
    /// and if they cannot be read.
    pub(in crate::run) async fn downloaded_modules(
        &self,
        prepared: &Prepared,
    ) -> Result<Option<Downloaded>, RunError> {
        if prepared.terragrunt.is_some() {
            return Ok(None);
        }
        let dir = prepared.workspace.dir.clone();
        let data_dir = self.environment.data_dir().to_owned();
        let listed = tokio::task::spawn_blocking(move || Downloaded::list(&dir, &data_dir));
        let listed = listed.await.map_err(std::io::Error::other)?;
        Ok(listed.map_err(|error| warn_of_unread_modules(&error)).ok())
    }

    /// Records the modules that the code calls by a path which is not literal. Only init knows them, and terragrunt runs that
    /// during the plan.
    pub(in crate::run) async fn record_called_modules(
        &mut self,
        workspace: &Workspace,
    ) -> Result<(), RunError> {
        let (dir, data_dir) = (workspace.dir.clone(), self.environment.data_dir().to_owned());
        let called = tokio::task::spawn_blocking(move || references::called(&dir, &data_dir));
        let called = called.await.map_err(io::Error::other)?;
        self.report.called_modules = called.unwrap_or_else(|error| {
            tracing::warn!("modules whose source is not literal are not compared: {error}");
            Called::new()
        });
        Ok(())
    }

    /// Records the digests of the modules.
    pub(in crate::run) fn record_modules(
        &mut self,
        digests: Option<Result<Modules, SnapshotError>>,
    ) {
        match digests {
            Some(Ok(modules)) => self.report.modules = modules,
            Some(Err(error)) => warn_of_unread_modules(&error),
            None => {}
        }
    }

    /// Records backend and configuration.
    pub(in crate::run) fn describe(&mut self, prepared: &Prepared) -> Result<(), RunError> {
        let (dir, environment) = (&prepared.workspace.dir, self.environment);
        let data_dir = environment.tf_data_dir.as_deref();
        let data_dirs = backend::data_dirs(dir, data_dir, prepared.terragrunt.is_some());
        let workspace = self.job.place.workspace.as_deref().unwrap_or_default();
        let variables = &environment.backend;
        self.report.backend = if let Some(state) = &self.job.state {
            Some(Backend::in_datastore(&state.key))
        } else {
            let found = Backend::of_module(dir, &data_dirs, workspace, variables);
            self.backend_of_state_files(found)
        };
        self.report.configuration_sha256 = Some(configuration::digest(dir)?);
        Ok(())
    }
}

/// Whether the code may have files that neither a commit nor one digest of all files records: in a directory in place, in a
/// copy of a clean one, or in a kept work directory.
pub(in crate::run) fn has_other_files(workspace: &Workspace) -> bool {
    let is_copy_of_commit = workspace.copied_from.is_some() && workspace.sha256.is_none();
    workspace.own.is_none() || workspace.kept || is_copy_of_commit
}

fn warn_of_unread_files(error: &io::Error) {
    tracing::warn!("an apply does not compare the files that the configuration names: {error}");
}

fn unread<T>(error: &io::Error) -> Option<T> {
    warn_of_unread_files(error);
    None
}

fn warn_of_unread_modules(error: &SnapshotError) {
    tracing::warn!("an apply does not compare the modules that init has downloaded: {error}");
}
