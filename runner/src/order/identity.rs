//! The place of the code (repository, path, workspace), where it comes from, and the default name of the layer.

use std::path::{Path, PathBuf};

use datastore_api::Name;

use crate::basis::place::{self, PlanPlace};
use crate::cli::Environment;
use crate::order::job::JobError;
use crate::source::checkout::source_id::SourceId;
use crate::source::checkout::{Packed, Source};
use crate::source::git::{GitSource, WorkTree, work_tree};

/// The place of a job's code.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) place: PlanPlace,
    /// Where it comes from, if that is known.
    pub(super) source_id: Option<SourceId>,
    /// The parts of a default name: the last segment of the repository, and the path inside it.
    repository: String,
    path: String,
}

/// Finds the place of the code with git, the environment and the data directory, before anything runs.
pub(super) async fn identify(
    source: &Source,
    path: &Path,
    work_dir: Option<&Path>,
    environment: &Environment,
) -> Identity {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    match source {
        Source::Directory(source) => {
            let dir = source.join(path);
            let dir = std::fs::canonicalize(&dir).unwrap_or(dir);
            let workspace = Some(workspace(environment, Some(&dir)));
            let name = |dir: &Path| {
                dir.file_name().map_or_else(|| "root".to_owned(), |n| text(n.as_ref()))
            };
            let tree = if dir.is_dir() { work_tree(&dir).await } else { None };
            let Some(WorkTree { top, origin }) = tree else {
                let path_in_source = Some(text(path));
                let place = PlanPlace { path_in_source, workspace, ..PlanPlace::default() };
                let source_id = Some(SourceId::of_path(source));
                return Identity { place, source_id, repository: name(&dir), path: String::new() };
            };
            let repository = origin.as_deref().and_then(place::repository);
            let path = text(dir.strip_prefix(&top).unwrap_or(Path::new("")));
            let last = repository.as_deref().map_or_else(|| name(&top), last_segment);
            let source_id =
                Some(id_of_directory(source, &top, repository.as_deref(), origin.as_deref()));
            let place = PlanPlace {
                repository,
                path: Some(path.clone()),
                workspace,
                ..PlanPlace::default()
            };
            Identity { place, source_id, repository: last, path }
        }
        Source::Git(git) => {
            let dir = work_dir.map(|dir| dir.join(path));
            let place = PlanPlace {
                repository: place::repository(git.url()),
                path: Some(text(path)),
                workspace: Some(workspace(environment, dir.as_deref())),
                ..PlanPlace::default()
            };
            let source_id = Some(id_of_git(git, place.repository.as_deref()));
            Identity { place, source_id, repository: git.name().to_owned(), path: text(path) }
        }
        Source::Packed(Packed { path: file, .. }) => {
            // Its name without endings: `infra` of `infra.tar.gz`.
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            let name = file.file_name().map(|name| text(name.as_ref())).unwrap_or_default();
            let stem = [".gz", ".zst", ".tar", ".tgz", ".tzst"]
                .iter()
                .fold(&*name, |name, ending| name.strip_suffix(ending).unwrap_or(name));
            let dir = work_dir.map(|dir| dir.join(path));
            let workspace = Some(workspace(environment, dir.as_deref()));
            let place = PlanPlace { path: Some(text(path)), workspace, ..PlanPlace::default() };
            let source_id = Some(SourceId::of_path(&file));
            Identity { place, source_id, repository: stem.to_owned(), path: text(path) }
        }
        Source::Bundle(bundle) => {
            let workspace = Some(workspace(environment, None));
            let place = PlanPlace { path: Some(text(path)), workspace, ..PlanPlace::default() };
            let repository = bundle.name.to_string();
            Identity { place, source_id: None, repository, path: text(path) }
        }
    }
}

impl Identity {
    /// `<repository>.<path>[.<workspace>]`.
    pub(super) fn default_name(&self) -> Result<Name, JobError> {
        let workspace = self.place.workspace.as_deref();
        let name = place::default_name(&self.repository, &self.path, workspace);
        name.parse().map_err(|error| {
            JobError::Usage(format!(
                "the directory's name is not valid as the layer's name: {error}; set one with --name"
            ))
        })
    }
}

/// The repository of a directory in a work tree: the known one, one in another directory of this machine, or the work tree
/// itself.
fn id_of_directory(
    source: &Path,
    top: &Path,
    repository: Option<&str>,
    origin: Option<&str>,
) -> SourceId {
    let local = || origin.and_then(SourceId::of_local_url);
    let id = repository.map(SourceId::of_repository).or_else(local);
    let source = std::fs::canonicalize(source).unwrap_or_else(|_| source.to_owned());
    // The top is that of a submodule where the source contains one.
    let below = source.strip_prefix(top).unwrap_or(&source);
    id.unwrap_or_else(|| SourceId::of_path(top)).directory(below)
}

fn id_of_git(git: &GitSource, repository: Option<&str>) -> SourceId {
    let known = repository.map(SourceId::of_repository);
    let local = || SourceId::of_local_url(git.url());
    known.or_else(local).unwrap_or_else(|| SourceId::of_repository(git.url()))
}

fn last_segment(repository: &str) -> String {
    repository.rsplit('/').next().unwrap_or(repository).to_owned()
}

/// The workspace of the module in `dir`. Without a directory only the environment can select one.
pub(super) fn workspace(environment: &Environment, dir: Option<&Path>) -> String {
    let data_dir = environment.tf_data_dir.clone().unwrap_or_else(|| PathBuf::from(".terraform"));
    let data_dir = match dir {
        Some(dir) => Some(dir.join(data_dir)),
        None => data_dir.is_absolute().then_some(data_dir),
    };
    place::workspace(environment.tf_workspace.as_deref(), data_dir.as_deref())
}
