//! The layer whose runs a command shows. It is found as `plan` finds it, but nothing of the code has to be there.

use std::path::Path;

use datastore_api::{Client, Name};

use crate::cli::{Environment, LayerArgs, RemoteArgs, ShowCommon};
use crate::order::command_line::{layer_name, working_path};
use crate::order::datastore::{FLAG, datastore};
use crate::order::identity::identify;
use crate::order::job::{JobError, source};
use crate::order::layer::LayerFile;
use crate::source::checkout::Source;

/// Namespace and name of the layer that flags, a manifest or the code name. `dir` is the positional argument.
pub(crate) async fn find_layer(
    args: &ShowCommon,
    dir: Option<&str>,
    environment: &Environment,
) -> Result<(Name, Name), JobError> {
    let LayerArgs { layer: file, namespace, name } = &args.identity;
    let file = match file {
        Some(path) => Some(LayerFile::load(path, name.as_ref().map(Name::as_ref))?),
        None => None,
    };
    let layer = file.as_ref().map(LayerFile::layer);
    let (namespace, name) = (namespace.as_ref(), name.as_ref());
    let is_named = name.is_some() || layer.is_some_and(|layer| layer.metadata.name.is_some());
    if is_named {
        // A name is known, so the code is not needed. A directory that is missing may be a mistake all the same.
        if let Some(dir) = dir {
            check_exists(dir)?;
        }
        let unnamed = || Err(JobError::Usage("name the layer with --name".to_owned()));
        return layer_name(namespace, name, layer, unnamed);
    }
    let source = source(dir.or(args.source.as_deref()).unwrap_or("."), None, None)?;
    let path = working_path(args.path.as_deref(), layer)?;
    if let Source::Directory(dir) = &source
        && !dir.join(&path).is_dir()
    {
        return Err(missing(&dir.join(&path)));
    }
    let identity = identify(&source, &path, args.work_dir.as_deref(), environment).await;
    layer_name(namespace, name, layer, || identity.default_name())
}

/// Checks that DIR exists, unless it is a URL.
fn check_exists(dir: &str) -> Result<(), JobError> {
    match source(dir, None, None)? {
        Source::Directory(dir) if !dir.exists() => Err(missing(&dir)),
        _ => Ok(()),
    }
}

fn missing(dir: &Path) -> JobError {
    let dir = dir.display();
    JobError::Config(format!(
        "there is no directory {dir}: name the code's directory as DIR, or leave it out and name the layer with --name"
    ))
}

/// The datastore that the flags name. It is required.
pub(crate) fn find_datastore(
    remote: &RemoteArgs,
    environment: &Environment,
) -> Result<Client, JobError> {
    let client = datastore(&remote.datastore, remote.ca_file.as_deref(), environment)?;
    client.ok_or_else(|| {
        JobError::Usage(format!(
            "no datastore is named: name the one that has the runs with {FLAG}"
        ))
    })
}
