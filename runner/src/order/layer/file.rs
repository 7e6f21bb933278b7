//! A layer in a file: a `TerraformLayer` manifest, YAML or JSON, as `kubectl apply` takes it.
//!
//! Annotations are written into it atomically. Comments, order and unknown fields are preserved. The new text is parsed
//! and compared before it replaces the file.

use std::fs::TryLockError;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::{Duration, Instant};

use fs_err as fs;
use serde_json::Value;
use yaml_edit::{Document, MappingBuilder, YamlFile};

use crate::order::layer::{Annotations, Layer};
use crate::source::regular;

/// A larger manifest is refused.
const MAX_SIZE: u64 = 16 << 20;
const KIND: &str = "TerraformLayer";
/// The lock of a manifest: the interval between attempts, between warnings, and the timeout.
const LOCK_POLL: Duration = Duration::from_millis(20);
const LOCK_NOTICE: Duration = Duration::from_secs(5);
const LOCK_TIMEOUT: Duration = Duration::from_mins(1);

/// A manifest on disk, and the layer in it.
#[derive(Clone, Debug)]
pub(crate) struct LayerFile {
    path: PathBuf,
    layer: Layer,
    /// Whether annotations are written.
    is_annotated: bool,
}

/// The manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LayerError {
    #[error("the layer's manifest cannot be read or written")]
    Io(#[from] io::Error),
    #[error("{} is not a manifest: {reason}", .path.display())]
    Malformed { path: PathBuf, reason: String },
    #[error("{} contains no TerraformLayer", .path.display())]
    Missing { path: PathBuf },
    #[error("{} contains no TerraformLayer of the name `{name}` (--name), but {others}", .path.display())]
    OtherName { path: PathBuf, name: String, others: String },
    #[error("{} contains {count} TerraformLayers: select one with --name", .path.display())]
    Ambiguous { path: PathBuf, count: usize },
    #[error(transparent)]
    Cluster(#[from] crate::order::layer::ClusterError),
    #[error("annotations cannot be written into {}: {reason}", .path.display())]
    Edit { path: PathBuf, reason: String },
    #[error("{} cannot be locked, so annotations of another run could be lost", .path.display())]
    NoLocks {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("{} is locked by another process for {} s", .path.display(), LOCK_TIMEOUT.as_secs())]
    Locked { path: PathBuf },
}

impl LayerFile {
    /// Reads the layer of this name in the file, or the only one. A layer without a name takes any.
    pub(crate) fn load(path: &Path, name: Option<&str>) -> Result<Self, LayerError> {
        let text = read(path)?;
        let mut layers = layers(path, &text)?;
        let path = path.to_owned();
        let of = |layer: &Layer| layer.metadata.name.clone();
        if let Some(name) = name
            && layers.iter().any(|layer| of(layer).is_some())
        {
            let names = layers.iter().filter_map(of).map(|name| format!("`{name}`"));
            let others = names.collect::<Vec<_>>().join(", ");
            layers.retain(|layer| of(layer).as_deref() == Some(name));
            if layers.is_empty() {
                return Err(LayerError::OtherName { path, name: name.to_owned(), others });
            }
        }
        match layers.len() {
            0 => Err(LayerError::Missing { path }),
            1 => Ok(Self { path, layer: layers.remove(0), is_annotated: true }),
            count => Err(LayerError::Ambiguous { path, count }),
        }
    }

    /// All layers of the file.
    pub(crate) fn load_all(path: &Path) -> Result<Vec<Layer>, LayerError> {
        let found = layers(path, &read(path)?)?;
        if found.is_empty() {
            return Err(LayerError::Missing { path: path.to_owned() });
        }
        Ok(found)
    }

    /// The layer as it was read.
    pub(crate) fn layer(&self) -> &Layer {
        &self.layer
    }

    /// The same file, as it stays: annotations are not written.
    pub(crate) fn without_annotations(self) -> Self {
        Self { is_annotated: false, ..self }
    }

    /// Whether it cannot be written: it is on a read-only file system, as in a mounted ConfigMap, or belongs to another user.
    pub(crate) fn is_read_only(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        matches!(self.check_writable(), Err(LayerError::Io(error)) if matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem))
    }

    /// Whether annotations can be written, also into its text, which is better known before an apply than after.
    pub(crate) fn check_writable(&self) -> Result<(), LayerError> {
        let path = fs::canonicalize(&self.path)?;
        fs::OpenOptions::new().write(true).open(&path)?;
        drop(beside(&path)?);
        let any = vec![(format!("{}plan-run", super::PREFIX), Some("run/0".to_owned()))];
        self.edited(&read(&path)?, &any)?;
        // Whether it is locked now does not matter; whether it can be does.
        try_lock(&path).map(drop)
    }

    /// Sets the annotations. The file is read again, because another runner may have changed it.
    pub(crate) async fn annotate(&self, annotations: &Annotations) -> Result<(), LayerError> {
        if !self.is_annotated {
            return Ok(());
        }
        // A symbolic link is kept; its target is replaced.
        let path = fs::canonicalize(&self.path)?;
        let held = lock(&path).await?;
        let (file, annotations) = (self.clone(), annotations.clone());
        // The file system may hang, and the runner must still receive signals.
        let edited = tokio::task::spawn_blocking(move || file.edit(&path, &held, &annotations));
        edited.await.map_err(io::Error::other)?
    }

    /// Edits the file while `held` is locked.
    fn edit(
        &self,
        path: &Path,
        held: &std::fs::File,
        annotations: &Annotations,
    ) -> Result<(), LayerError> {
        let edited = self.edited(&read(path)?, annotations)?;
        Ok(replace(path, &held.metadata()?, &edited)?)
    }

    /// The text with these annotations.
    fn edited(&self, text: &str, annotations: &Annotations) -> Result<String, LayerError> {
        let name = self.layer.metadata.name.as_deref();
        let edited = match serde_json::from_str::<Value>(text) {
            Ok(document) => edit_json(document, annotations),
            Err(_) => edit_yaml(text, name, annotations),
        };
        let refused = |reason| LayerError::Edit { path: self.path.clone(), reason };
        let edited = edited.map_err(refused)?;
        check(text, &edited, name, annotations).map_err(refused)?;
        Ok(edited)
    }
}

fn read(path: &Path) -> Result<String, LayerError> {
    let mut text = String::new();
    regular::check_named(path)?;
    fs::File::open(path)?.take(MAX_SIZE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_SIZE {
        let reason = "it has more than 16 MiB".to_owned();
        return Err(LayerError::Malformed { path: path.to_owned(), reason });
    }
    Ok(text)
}

fn documents(text: &str) -> Result<Vec<Value>, String> {
    // Its further lines show the place in the text.
    let first_line = |text: String| {
        let line = text.lines().next().unwrap_or_default();
        line.strip_prefix("error: ").unwrap_or(line).to_owned()
    };
    serde_saphyr::from_multiple(text).map_err(|error| first_line(error.to_string()))
}

fn layers(path: &Path, text: &str) -> Result<Vec<Layer>, LayerError> {
    let malformed = |reason| LayerError::Malformed { path: path.to_owned(), reason };
    documents(text)
        .map_err(malformed)?
        .into_iter()
        .filter(|document| document["kind"] == KIND)
        .map(|document| {
            let layer: Layer =
                crate::order::layer::parse(&document.to_string()).map_err(malformed)?;
            check_annotations(&layer).map_err(malformed)?;
            for unknown in unknown_fields(&document) {
                tracing::warn!("{}: {unknown}", path.display());
            }
            Ok(layer)
        })
        .collect()
}

const TOOL: &[&str] = &["enabled", "version"];
/// The fields that Burrito's definition of a layer (v0.13.0) has, where the runner reads some of them.
const FIELDS: [(&str, &[&str]); 5] = [
    (
        "spec",
        &[
            "additionalTargetRefs",
            "branch",
            "opentofu",
            "overrideRunnerSpec",
            "path",
            "remediationStrategy",
            "repository",
            "runHistoryPolicy",
            "terraform",
            "terragrunt",
        ],
    ),
    ("spec.terraform", TOOL),
    ("spec.opentofu", TOOL),
    ("spec.terragrunt", TOOL),
    ("spec.remediationStrategy", &["applyWithoutPlanArtifact", "autoApply", "onError"]),
];

/// Names the fields that no layer has: a misspelled `version` would select another one without a word.
fn unknown_fields(document: &Value) -> impl Iterator<Item = String> {
    FIELDS.into_iter().flat_map(move |(at, known)| {
        let part = at.split('.').fold(document, |part, name| &part[name]);
        let names = part.as_object().into_iter().flat_map(serde_json::Map::keys);
        names.filter(|name| !known.contains(&name.as_str())).map(move |name| {
            format!(
                "the field `{at}.{name}` is unknown, and ignored; there are {}",
                known.join(", ")
            )
        })
    })
}

/// The annotations of ours that a manifest may have.
const ANNOTATIONS: [&str; 5] = [
    "plancha/needs",
    "plancha/var-from",
    "plancha/file-from",
    "plancha/required-outputs",
    "plancha/metrics",
];

/// Refuses an unknown annotation of ours: a misspelled one would lose the order of layers without a word.
fn check_annotations(layer: &Layer) -> Result<(), String> {
    let names = layer.metadata.annotations.iter().flat_map(|annotations| annotations.keys());
    let unknown = names
        .filter(|name| name.starts_with("plancha/"))
        .find(|name| !ANNOTATIONS.contains(&name.as_str()));
    unknown.map_or(Ok(()), |name| {
        Err(format!("the annotation `{name}` is unknown; there are {}", ANNOTATIONS.join(", ")))
    })
}

/// Locks the file against other runners, and waits for those that have locked it.
async fn lock(path: &Path) -> Result<std::fs::File, LayerError> {
    let (started, mut notices) = (Instant::now(), 1);
    loop {
        if let Some(file) = try_lock(path)? {
            return Ok(file);
        }
        if started.elapsed() >= LOCK_TIMEOUT {
            return Err(LayerError::Locked { path: path.to_owned() });
        }
        if started.elapsed() >= LOCK_NOTICE * notices {
            notices += 1;
            tracing::warn!(
                "waiting for the lock of {}, which another process holds",
                path.display()
            );
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
}

/// The locked file; `None` where another process holds the lock, or has replaced the file in this moment.
fn try_lock(path: &Path) -> Result<Option<std::fs::File>, LayerError> {
    let file = fs::File::open(path)?;
    match file.file().try_lock() {
        Ok(()) => {
            let current = file.metadata()?.ino() == fs::metadata(path)?.ino();
            Ok(current.then(|| file.into()))
        }
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(cause)) => {
            Err(LayerError::NoLocks { path: path.to_owned(), cause })
        }
    }
}

fn set(target: &mut Value, annotations: &Annotations) {
    for (key, value) in annotations {
        match (value, target.as_object_mut()) {
            (Some(value), _) => target[key] = Value::String(value.clone()),
            (None, Some(target)) => drop(target.shift_remove(key)),
            (None, None) => {}
        }
    }
}

fn edit_json(mut document: Value, annotations: &Annotations) -> Result<String, String> {
    let metadata = &mut document["metadata"];
    if !metadata["annotations"].is_object() {
        metadata["annotations"] = Value::Object(serde_json::Map::new());
    }
    set(&mut metadata["annotations"], annotations);
    let mut text = serde_json::to_string_pretty(&document).map_err(|error| error.to_string())?;
    text.push('\n');
    Ok(text)
}

fn edit_yaml(text: &str, name: Option<&str>, annotations: &Annotations) -> Result<String, String> {
    let file = YamlFile::from_str(text).map_err(|error| error.to_string())?;
    let document = file.documents().find(|document| is_layer(document, name));
    let layer = document.as_ref().and_then(Document::as_mapping);
    if layer.as_ref().is_some_and(|layer| layer.get("metadata").is_none()) {
        return Err("it has no metadata: add `metadata: {name: NAME}`".to_owned());
    }
    let metadata = layer.and_then(|layer| layer.get_mapping("metadata"));
    let metadata = metadata.ok_or("its metadata is an alias, or not a mapping")?;
    if metadata.get_mapping("annotations").is_none()
        && let Some((key, Some(value))) = annotations.first()
    {
        let first = MappingBuilder::new().pair(key.as_str(), value.as_str()).build_document();
        metadata.set("annotations", first.as_mapping().ok_or("a mapping cannot be created")?);
    }
    let target = metadata.get_mapping("annotations").ok_or("its annotations are not a mapping")?;
    for (key, value) in annotations {
        match value {
            Some(value) => target.set(key.as_str(), value.as_str()),
            None => drop(target.remove(key.as_str())),
        }
    }
    Ok(file.to_string())
}

fn is_layer(document: &Document, name: Option<&str>) -> bool {
    let Some(mapping) = document.as_mapping() else { return false };
    let text = |mapping: &yaml_edit::Mapping, key: &str| {
        mapping.get(key).and_then(|node| Some(node.as_scalar()?.as_string()))
    };
    let own = mapping.get_mapping("metadata").and_then(|metadata| text(&metadata, "name"));
    text(&mapping, "kind").as_deref() == Some(KIND) && own.as_deref() == name
}

/// Checks that an edit changed nothing but these annotations.
fn check(
    before: &str,
    after: &str,
    name: Option<&str>,
    annotations: &Annotations,
) -> Result<(), String> {
    let mut expected = documents(before)?;
    for document in &mut expected {
        if document["kind"] == KIND && document["metadata"]["name"].as_str() == name {
            let target = &mut document["metadata"]["annotations"];
            if target.is_null() {
                *target = Value::Object(serde_json::Map::new());
            }
            set(target, annotations);
        }
    }
    if documents(after)? == expected {
        Ok(())
    } else {
        Err("its YAML cannot be edited without other changes".to_owned())
    }
}

fn replace(path: &Path, before: &std::fs::Metadata, text: &str) -> io::Result<()> {
    let mut file = beside(path)?;
    file.write_all(text.as_bytes())?;
    let mode = PermissionsExt::from_mode(before.permissions().mode());
    file.as_file().set_permissions(mode)?;
    match fchown(file.as_file(), Some(before.uid()), Some(before.gid())) {
        // Only root may change the owner: the new file then belongs to this user.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        other => other?,
    }
    file.as_file().sync_all()?;
    file.persist(path)?;
    fs::File::open(parent(path))?.sync_all()
}

fn beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new().prefix(".plancha-").tempfile_in(parent(path))
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a runner does it.
    fn annotate(file: &LayerFile, annotations: &Annotations) -> Result<(), LayerError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(file.annotate(annotations))
    }

    fn annotated(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layer");
        fs::write(&path, text).unwrap();
        let file = LayerFile::load(&path, None).unwrap();
        let annotations = vec![
            ("runner.terraform.padok.cloud/plan-run".to_owned(), Some("r/0".to_owned())),
            ("runner.terraform.padok.cloud/plan-sum".to_owned(), Some("47DE+/=".to_owned())),
            ("runner.terraform.padok.cloud/plan-commit".to_owned(), None),
        ];
        annotate(&file, &annotations).unwrap();
        let again = LayerFile::load(&path, None).unwrap();
        assert_eq!(again.layer().annotation("plan-run"), Some("r/0"));
        assert_eq!(again.layer().annotation("plan-sum"), Some("47DE+/="));
        assert_eq!(again.layer().annotation("plan-commit"), None, "it was of another plan");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a temporary file is left");
        fs::read_to_string(&path).unwrap()
    }

    #[test]
    fn a_misspelled_annotation_is_an_error_and_one_of_others_is_not() {
        let read = |annotation: &str| {
            layers(
                Path::new("x"),
                &format!("kind: TerraformLayer\nmetadata: {{annotations: {{{annotation}: n2}}}}\n"),
            )
        };
        assert_eq!(read("plancha/needs").unwrap().len(), 1);
        assert_eq!(read("example.com/need").unwrap().len(), 1);
        let error = read("plancha/need").unwrap_err().to_string();
        assert!(error.contains("`plancha/need` is unknown"), "{error}");
    }

    #[test]
    fn misspelled_fields_are_named_and_those_of_burrito_are_not() {
        let unknown = |spec: &str| {
            let document = &documents(&format!("kind: TerraformLayer\nspec: {spec}\n")).unwrap()[0];
            unknown_fields(document).collect::<Vec<_>>()
        };
        let all =
            "{path: a, overrideRunnerSpec: {x: 1}, terraform: {enabled: true, version: 1.9.8}}";
        assert_eq!(unknown(all), Vec::<String>::new());
        assert_eq!(unknown("null"), Vec::<String>::new());
        let two = unknown("{terrafrom: {version: 1.9.8}, opentofu: {versions: 1.9.8}}");
        assert!(two[0].starts_with("the field `spec.terrafrom` is unknown"), "{two:?}");
        let expected = "the field `spec.opentofu.versions` is unknown, and ignored; there are enabled, version";
        assert_eq!(two[1..], [expected]);
    }

    #[test]
    fn a_manifest_whose_text_cannot_have_annotations_is_found_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layer.yaml");
        for (text, expected) in [
            ("kind: TerraformLayer\n", "it has no metadata"),
            ("kind: TerraformLayer\na: &m {name: x}\nmetadata: *m\n", "an alias"),
            ("kind: TerraformLayer\nmetadata: {name: x}\n", ""),
        ] {
            fs::write(&path, text).unwrap();
            let checked = LayerFile::load(&path, None).unwrap().check_writable();
            let message = checked.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(
                message.contains(expected) && message.is_empty() == expected.is_empty(),
                "{message}"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn comments_order_and_unknown_fields_stay() {
        insta::assert_snapshot!(annotated("\
# ours
kind: TerraformLayer
spec: {path: live, unknown: [1, 2]}   # as in the wiki
metadata:
  name: vpc
  annotations:
    team: net # keep
    runner.terraform.padok.cloud/plan-sum: \"old\"
    runner.terraform.padok.cloud/plan-commit: old
  labels: {a: b}
"), @r#"
        # ours
        kind: TerraformLayer
        spec: {path: live, unknown: [1, 2]}   # as in the wiki
        metadata:
          name: vpc
          annotations:
            team: net # keep
            runner.terraform.padok.cloud/plan-sum: 47DE+/=
            runner.terraform.padok.cloud/plan-run: r/0
          labels: {a: b}
        "#);
    }

    #[test]
    fn annotations_are_made_where_there_are_none() {
        for text in [
            "kind: TerraformLayer\nmetadata:\n  name: a\nspec:\n  path: .\n",
            "kind: TerraformLayer\nmetadata:\n  name: a\n  annotations:\nspec:\n  path: .",
            "kind: TerraformLayer\nmetadata:\n  name: a\n  annotations: {}\n",
            "kind: TerraformLayer\nmetadata: {name: a}\n",
            "kind: TerraformLayer\r\nmetadata:\r\n  name: a\r\nspec:\r\n  path: .\r\n",
            "{\"kind\": \"TerraformLayer\", \"metadata\": {\"name\": \"a\"}}",
        ] {
            annotated(text);
        }
    }

    #[test]
    fn the_other_documents_of_a_file_stay_as_they_are() {
        let text =
            annotated("kind: A\nx: 1 # y\n---\nkind: TerraformLayer\nmetadata:\n  name: b\n");
        assert!(text.starts_with("kind: A\nx: 1 # y\n---\n"), "{text}");
    }

    #[test]
    fn json_stays_json_in_its_order() {
        let text = annotated(r#"{"spec": {"z": 1, "a": 2}, "kind": "TerraformLayer"}"#);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value["metadata"]["annotations"]["runner.terraform.padok.cloud/plan-run"],
            "r/0"
        );
        assert!(text.find("spec").unwrap() < text.find("kind").unwrap());
    }

    #[test]
    fn of_several_layers_the_named_one_is_meant() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layers.yaml");
        let one = |name: &str| format!("kind: TerraformLayer\nmetadata: {{name: {name}}}\n---\n");
        fs::write(&path, one("a") + &one("b")).unwrap();
        let error = LayerFile::load(&path, None).unwrap_err().to_string();
        assert!(error.ends_with("contains 2 TerraformLayers: select one with --name"));
        let error = LayerFile::load(&path, Some("c")).unwrap_err().to_string();
        assert!(error.ends_with("of the name `c` (--name), but `a`, `b`"), "{error}");
        let file = LayerFile::load(&path, Some("b")).unwrap();
        annotate(&file, &vec![("k".to_owned(), Some("v".to_owned()))]).unwrap();
        let values = documents(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(values[0]["metadata"], serde_json::json!({"name": "a"}));
        assert_eq!(values[1]["metadata"]["annotations"]["k"], "v");
    }

    #[test]
    fn the_only_layer_must_have_the_name_that_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("o.yaml");
        fs::write(&path, "kind: TerraformLayer\nmetadata: {name: other}\n").unwrap();
        let error = LayerFile::load(&path, Some("nope")).unwrap_err().to_string();
        assert!(error.contains("`nope`") && error.contains("`other`"), "{error}");
        LayerFile::load(&path, Some("other")).unwrap();
        fs::write(&path, "kind: TerraformLayer\nspec: {path: a}\n").unwrap();
        LayerFile::load(&path, Some("any")).unwrap();
    }

    #[test]
    fn what_is_no_manifest_is_refused_by_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.yaml");
        for text in ["", "a: b", "kind: TerraformRepository", "[1]", "kind: [", "\0"] {
            fs::write(&path, text).unwrap();
            let error = LayerFile::load(&path, None).unwrap_err();
            assert!(error.to_string().contains("m.yaml"), "{text}: {error}");
        }
    }

    #[test]
    fn the_mode_of_the_file_and_a_link_to_it_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&path, "kind: TerraformLayer\nmetadata: {name: a}\n").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        fs::os::unix::fs::symlink(&path, &link).unwrap();
        let file = LayerFile::load(&link, None).unwrap();
        annotate(&file, &vec![("k".to_owned(), Some("v".to_owned()))]).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn writers_at_the_same_time_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.yaml");
        fs::write(&path, "kind: TerraformLayer\nmetadata: {name: a}\n").unwrap();
        let file = LayerFile::load(&path, None).unwrap();
        std::thread::scope(|scope| {
            for i in 0..8 {
                let file = &file;
                scope.spawn(move || {
                    annotate(file, &vec![(format!("k{i}"), Some(i.to_string()))]).unwrap();
                });
            }
        });
        let values = documents(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(values[0]["metadata"]["annotations"].as_object().unwrap().len(), 8);
    }
}
