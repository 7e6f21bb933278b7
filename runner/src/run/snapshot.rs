//! The snapshot of a plan's working directory: whether it is made, of which code, and that it is stored. An apply
//! unpacks it.

mod absolute_paths;

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use datastore_api::client::Upload;
use fs_err as fs;
use reqwest::StatusCode;
use tokio::task::JoinHandle;

use crate::basis::binding;
use crate::cli::SnapshotMode;
use crate::process::private_file;
use crate::report::AbsolutePaths;
use crate::run::Run;
use crate::run::artifacts::{Artifacts, Entry, other};
use crate::run::error::RunError;
use crate::run::stored_plan::{Choice, StoredPlanError};
use crate::source::archive::{self, Stoppable};
use crate::source::checkout::{Source, Workspace};
use crate::source::git;
use crate::source::modules::has_configuration;
use crate::source::snapshot::{self, Before, SnapshotError, SourceFiles, before, select};
use crate::tool::state_file;

/// What a snapshot is made of, as known before init.
#[derive(Debug)]
pub(super) struct SnapshotSource {
    root: PathBuf,
    /// The working directory below the root.
    path: PathBuf,
    files: SourceFiles,
}

/// A snapshot in a private file.
#[derive(Debug)]
pub(super) struct Packed {
    file: PathBuf,
    root: PathBuf,
    path: PathBuf,
}

impl Run<'_> {
    /// Lists the code before init, if a snapshot is to be made.
    pub(super) async fn snapshot_source(
        &self,
        workspace: &Workspace,
    ) -> Result<Option<SnapshotSource>, RunError> {
        let job = self.job;
        let is_wanted = match job.snapshot {
            SnapshotMode::Always => true,
            SnapshotMode::Never => false,
            // A pod's code is in a bundle that the datastore has already.
            // Terragrunt's functions call git, and a snapshot has no repository.
            SnapshotMode::Auto => {
                let is_in_place = workspace.own.is_none() || workspace.in_place_of.is_some();
                !is_in_place && !job.pod && job.terragrunt.is_none()
            }
        };
        if !is_wanted || job.datastore.is_none() {
            return Ok(None);
        }
        match self.list_source(workspace).await {
            Ok(source) => Ok(Some(source)),
            Err(error) => self.without_snapshot(error),
        }
    }

    async fn list_source(&self, workspace: &Workspace) -> Result<SnapshotSource, SnapshotError> {
        let dir = canonical(&workspace.dir)?;
        let root = self.root(workspace, &dir).await?;
        let path = below(&dir, &root).unwrap_or_default();
        if self.environment.tf_data_dir.is_some() {
            return Err(SnapshotError::DataDir);
        }
        if dir.to_str().is_none() {
            return Err(SnapshotError::NotUtf8(dir));
        }
        let listed = match (&self.job.source, &workspace.own) {
            // A copy has no `.git`, but its source may have one.
            (Source::Directory(source), Some(_)) => {
                git::files(workspace.copied_from.as_ref().unwrap_or(source)).await
            }
            // An archive has none. A work tree around it does not count.
            (Source::Packed(_), _) => Ok(None),
            _ => git::files(&root).await,
        };
        let listed = listed.map_err(SnapshotError::Git)?;
        // In a new checkout everything that git does not track was made by the tool.
        let is_new =
            !matches!(self.job.source, Source::Directory(_)) && self.job.work_dir.is_none();
        let top = root.clone();
        let before = if is_new && listed.is_some() {
            Before::new()
        } else {
            let listed = tokio::task::spawn_blocking(move || before(&top)).await;
            listed.map_err(std::io::Error::other)??
        };
        // TMPDIR may be in the source.
        let scratch = canonical(&self.scratch.join(""))?;
        let state_file = dir.join(state_file::NAME);
        let state_file = self.job.state.as_ref().map(|_| &state_file);
        let own = self.job.ignored_paths.iter().chain([&scratch]).chain(state_file);
        let of_runner = own.filter_map(|path| below(path, &root));
        let files = SourceFiles {
            before,
            of_runner: of_runner.collect(),
            ..listed.map_or_else(SourceFiles::default, |files| SourceFiles {
                tracked: Some(files.tracked),
                not_ignored: files.not_ignored,
                ..SourceFiles::default()
            })
        };
        Ok(SnapshotSource { root, path, files })
    }

    /// Packs the files after the plan, beside other steps.
    pub(super) fn pack(&self, source: SnapshotSource) -> JoinHandle<Result<Packed, SnapshotError>> {
        let called = self.report.called_modules.clone();
        let (file, signals) = (self.scratch.join(snapshot::FILE), self.signals.clone());
        let mode = self.job.snapshot;
        tokio::task::spawn_blocking(move || {
            let SnapshotSource { root, path, files } = source;
            let mut selected = select(&root, &files)?;
            snapshot::check(&root, &path, &called, &mut selected)?;
            if !selected.left_out.is_empty() {
                let left_out = SnapshotError::LeftOut(selected.left_out.clone());
                // Without them an apply could do something else than the plan.
                if mode == SnapshotMode::Auto {
                    return Err(left_out);
                }
                tracing::warn!("the snapshot is not complete: {left_out}");
            }
            if !selected.may_be_read.is_empty() {
                tracing::warn!(
                    "the snapshot lacks files that .terraformignore excludes, and the configuration may name them by paths that \
                     it computes: {}; if it reads them, include them in .terraformignore with `!PATH`",
                    snapshot::listed(&selected.may_be_read)
                );
            }
            if !selected.outside.is_empty() {
                tracing::warn!(
                    "the snapshot lacks files outside of the source that the configuration names ({}): an apply reads them \
                     where it runs, and is refused if they differ",
                    snapshot::listed(&selected.outside)
                );
            }
            let mut archive = BufWriter::new(Stoppable::new(private_file(&file)?, signals));
            snapshot::pack(&root, &selected, &mut archive)?;
            archive.flush()?;
            Ok(Packed { file, root, path })
        })
    }

    /// Stores the snapshot. `None`: there is none, or the datastore does not take it. `json` is the plan as JSON.
    pub(super) async fn store_snapshot(
        &self,
        artifacts: &Artifacts,
        packed: Result<Packed, SnapshotError>,
    ) -> Result<Option<binding::Workspace>, RunError> {
        let Packed { file, root, path } = match packed {
            Ok(packed) => packed,
            Err(error) => return self.without_snapshot(error),
        };
        if !artifacts.takes_other_files() {
            tracing::warn!("the datastore is Burrito's and takes no snapshots: the plan has none");
            return Ok(None);
        }
        let entry: Entry = (other(snapshot::FILE), Upload::file(file).await?);
        let sha256 = entry.1.sha256();
        match artifacts.create(&entry).await {
            Ok(()) => {}
            Err(error) if error.status() == Some(StatusCode::FORBIDDEN) => {
                tracing::warn!("the plan has no snapshot: {}", datastore_api::chain(&error));
                return Ok(None);
            }
            Err(error)
                if error.status() == Some(StatusCode::PAYLOAD_TOO_LARGE)
                    && self.job.snapshot == SnapshotMode::Auto =>
            {
                tracing::warn!("the plan has no snapshot: {}", datastore_api::chain(&error));
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
        let absolute_paths = self.report.absolute_paths.clone();
        let absolute_paths = absolute_paths.map(|paths| paths.values).unwrap_or_default();
        Ok(Some(binding::Workspace { sha256, path, directory: root, absolute_paths }))
    }

    /// Records which values of the plan contain its directory: an apply refuses another one. `json` is the plan as JSON.
    pub(super) async fn record_absolute_paths(
        &mut self,
        workspace: &Workspace,
        plan: &Path,
        json: &Path,
    ) -> Result<(), SnapshotError> {
        let directory = canonical(&workspace.dir)?;
        let root = self.root(workspace, &directory).await?;
        let values = absolute_paths(&root, plan, json).await?;
        if values.is_empty() {
            return Ok(());
        }
        if directory.to_str().is_none() {
            return Err(SnapshotError::NotUtf8(directory));
        }
        let (shown, named) = (directory.display(), values.join(", "));
        if self.scratch.is_once_only(&directory) {
            tracing::warn!(
                "the plan contains the directory {shown}, and no apply can work there ({named}): it has this name because \
                 another run works here; plan again when no other run does, or plan and apply with --work-dir DIR"
            );
        } else {
            tracing::warn!(
                "the plan contains the directory {shown}, and can only be applied there: {named}"
            );
        }
        self.report.absolute_paths = Some(AbsolutePaths { directory, values });
        Ok(())
    }

    /// Downloads the snapshot of the plan to apply, verifies and unpacks it.
    pub(super) async fn unpack(
        &self,
        choice: &Choice,
        snapshot: &binding::Workspace,
    ) -> Result<Workspace, RunError> {
        let (plan, file, to) =
            (choice.name(), self.scratch.join(snapshot::FILE), self.scratch.join("work"));
        let (Some(stored), Some(artifacts), Some(binding)) =
            (&choice.stored, &self.artifacts, &choice.binding)
        else {
            return Err(StoredPlanError::NoSnapshot(plan).into());
        };
        let directory = canonical(&self.scratch.join(""))?.join("work");
        choice.basis.check_directory(&directory.join(&snapshot.path), self.scratch)?;
        tracing::info!("working in the snapshot of the plan {plan}");
        let fetched = self.signals.or(artifacts.fetch_snapshot(stored, &file)).await;
        let fetched = fetched.map_err(RunError::Stopped)?.map_err(StoredPlanError::Datastore)?;
        let Some(sha256) = fetched else {
            return Err(StoredPlanError::SnapshotDeleted(plan).into());
        };
        binding.check_snapshot(&plan, sha256)?;
        let archive = Stoppable::new(fs::File::open(&file)?, self.signals.clone());
        let (target, signals) = (to.clone(), self.signals.clone());
        let unpacked = tokio::task::spawn_blocking(move || {
            archive::unpack_until(Some(&signals), archive, &target, archive::Limits::default())
        });
        let unpacked = self.signals.shortly(unpacked).await.map_err(RunError::Stopped)?;
        let unpacked = unpacked.map_err(std::io::Error::other)?;
        if let Some(stop) = self.signals.stopped() {
            return Err(RunError::Stopped(stop));
        }
        unpacked.map_err(|cause| StoredPlanError::Snapshot { plan, cause })?;
        fs::remove_file(file)?;
        let workspace = Workspace::unpacked(to, &snapshot.path, binding.revision.clone())?;
        if !has_configuration(&workspace.dir) {
            return Err(StoredPlanError::NoConfiguration(choice.name()).into());
        }
        Ok(workspace)
    }

    /// The directory with all code of the run: a module may use others beside it. Without git it is the source, and the
    /// module is below it.
    async fn root(&self, workspace: &Workspace, dir: &Path) -> Result<PathBuf, SnapshotError> {
        Ok(match (&workspace.own, &workspace.top) {
            (Some(own), _) => canonical(own)?,
            (None, Some(top)) if git::is_top_of(top, dir) => top.clone(),
            (None, _) => match git::top(dir).await {
                Some(top) => top,
                None => self.job.source.directory().unwrap_or_else(|| dir.to_owned()),
            },
        })
    }

    /// A plan without a snapshot, unless one is required.
    fn without_snapshot<T>(&self, error: SnapshotError) -> Result<Option<T>, RunError> {
        if self.job.snapshot == SnapshotMode::Always {
            return Err(error.into());
        }
        tracing::warn!("the plan has no snapshot: {}", datastore_api::chain(&error));
        Ok(None)
    }
}

/// The names of the planned values that contain the directory.
async fn absolute_paths(
    directory: &Path,
    plan: &Path,
    json: &Path,
) -> Result<Vec<String>, SnapshotError> {
    let json = fs::File::open(json).map_err(|error| SnapshotError::File(json.to_owned(), error))?;
    let (directory, plan) = (directory.to_string_lossy().into_owned(), plan.to_owned());
    let found = tokio::task::spawn_blocking(move || absolute_paths::find(json, &plan, &directory));
    let found = found.await.map_err(std::io::Error::other)?;
    found.map_err(|error| SnapshotError::Unsearchable(datastore_api::chain(&error)))
}

fn canonical(path: &Path) -> Result<PathBuf, SnapshotError> {
    fs::canonicalize(path).map_err(|error| SnapshotError::File(path.to_owned(), error))
}

/// The path below a root, if it is.
fn below(path: &Path, root: &Path) -> Option<PathBuf> {
    path.strip_prefix(root).ok().map(Path::to_owned)
}
