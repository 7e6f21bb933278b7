//! Which layers a command names: manifests, or a directory of manifests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use datastore_api::Name;
use fs_err as fs;

use crate::order::inputs::{self, LayerRef};
use crate::order::job::JobError;
use crate::order::layer::{Layer, LayerError, LayerFile};
use crate::tool::file_names::is_module;

/// A layer of a manifest.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) file: PathBuf,
    pub(crate) namespace: Name,
    pub(crate) name: Name,
    /// The layers that its manifest says it needs.
    pub(crate) needs: BTreeSet<LayerRef>,
}

impl Target {
    /// `NAMESPACE/NAME`.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Both.
    pub(crate) fn layer(&self) -> (Name, Name) {
        (self.namespace.clone(), self.name.clone())
    }
}

/// The layers that the arguments name, in this namespace if one is given. `None`: they name code, as a command for one root module
/// takes it. `has_source`: `--source` names code.
pub(super) fn find(
    targets: &[String],
    namespace: Option<&Name>,
    has_source: bool,
) -> Result<Option<Vec<Target>>, JobError> {
    let files = match targets {
        [] => return Ok(None),
        [only] => match files_of(Path::new(only), has_source)? {
            Some(files) => files,
            None => return Ok(None),
        },
        several => several.iter().map(PathBuf::from).collect(),
    };
    let mut found = Vec::<Target>::new();
    for file in &files {
        if !is_manifest(file) {
            return Err(JobError::Usage(format!(
                "`{}` is not a manifest (.yaml, .yml, .json): several arguments name layers, and code is named by --source",
                file.display()
            )));
        }
        for layer in LayerFile::load_all(file)? {
            let target = target(file, &layer, namespace)?;
            if let Some(same) = found.iter().find(|other| other.id() == target.id()) {
                return Err(JobError::Config(format!(
                    "the layer {} is in {} and in {}: name one of the files, or give one of the layers another name",
                    target.id(),
                    same.file.display(),
                    target.file.display()
                )));
            }
            found.push(target);
        }
    }
    Ok(Some(found))
}

/// The manifests at a path. `None`: it is code. A directory may have both: then it is code, unless that is elsewhere.
fn files_of(path: &Path, has_source: bool) -> Result<Option<Vec<PathBuf>>, JobError> {
    if is_manifest(path) && path.is_file() {
        return Ok(Some(vec![path.to_owned()]));
    }
    if !path.is_dir() {
        return Ok(None);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(LayerError::Io)? {
        let entry = entry.map_err(LayerError::Io)?;
        if !has_source && is_module(entry.file_name().as_encoded_bytes()) {
            return Ok(None);
        }
        let file = entry.path();
        if !is_manifest(&file) || !file.is_file() {
            continue;
        }
        match LayerFile::load_all(&file) {
            Ok(_) => files.push(file),
            // There are other objects beside the layers.
            Err(LayerError::Missing { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    files.sort();
    Ok(Some(files).filter(|files| !files.is_empty()))
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

fn target(file: &Path, layer: &Layer, namespace: Option<&Name>) -> Result<Target, JobError> {
    let wrong = |what: &str| JobError::Config(format!("{}: {what}", file.display()));
    let name =
        layer.metadata.name.as_deref().ok_or_else(|| wrong("a layer has no metadata.name"))?;
    let parse = |text: &str| text.parse::<Name>().map_err(|error| wrong(&error.to_string()));
    let namespace = match namespace {
        Some(namespace) => namespace.clone(),
        None => parse(layer.metadata.namespace.as_deref().unwrap_or("default"))?,
    };
    let needs = inputs::needs(layer, &namespace).map_err(|reason| wrong(&reason))?;
    Ok(Target { file: file.to_owned(), namespace, name: parse(name)?, needs })
}
