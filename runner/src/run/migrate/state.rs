//! The state during a migration: where it is, how it is read, and how a version with a later serial is written.
//!
//! Both tools work in a private copy of the code. A state in a file beside the code is reached from there by its absolute
//! path, which an override file configures.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use datastore_api::state::DEFAULT_WORKSPACE;
use fs_err as fs;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::basis::local_state::Initialized;
use crate::process::private_file;
use crate::report::StateReport;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::migrate::error::MigrationError;
use crate::run::prepare::{Prepared, copy_state};
use crate::source::regular::unless_missing;

/// The file that configures the backend of a local state, in the private copy.
const OVERRIDE: &str = "plancha_migrate_override.tf";
/// Backends whose plans run on another machine.
const REMOTE: [&str; 2] = ["remote", "cloud"];

/// Where the state is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StatePlace {
    /// In the datastore, for a module without a backend.
    Datastore,
    /// Where its backend keeps it: the tool reads and writes it.
    Backend,
    /// In this file.
    File(PathBuf),
}

impl Run<'_> {
    /// Finds the state after an init, and makes the tool use it from the private copy of the code.
    pub(super) async fn place_state(
        &mut self,
        prepared: &mut Prepared,
    ) -> Result<StatePlace, RunError> {
        if prepared.uses_datastore_state() {
            return Ok(StatePlace::Datastore);
        }
        let (dir, workspace) = (prepared.workspace.dir.clone(), self.job.place.workspace.clone());
        let data = Some(self.environment.data_dir());
        let module = Initialized { dir: &dir, data, workspace: workspace.as_deref() };
        let Some(file) = module.state_file()? else {
            let kind = self.report.backend.as_ref().map(|backend| backend.kind.clone());
            return match kind.filter(|kind| REMOTE.contains(&&**kind)) {
                Some(kind) => Err(MigrationError::RemoteRuns(kind).into()),
                None => Ok(StatePlace::Backend),
            };
        };
        let Some(original) = &prepared.workspace.in_place_of else {
            return Err(MigrationError::Checkout(file).into());
        };
        let original = fs::canonicalize(original)?;
        let file = original.join(file);
        let is_default = workspace.as_deref().is_none_or(|name| name == DEFAULT_WORKSPACE);
        // The directory of a workspace has its name.
        let workspaces = file.parent().and_then(Path::parent).filter(|_| !is_default);
        let default = if is_default { file.clone() } else { original.join("terraform.tfstate") };
        let workspaces =
            workspaces.map_or_else(|| original.join("terraform.tfstate.d"), PathBuf::from);
        configure(&dir, &default, &workspaces)?;
        // A record of the first init, or a copy of the state, would make the second one ask whether to move the state.
        unless_missing(fs::remove_file(
            dir.join(self.environment.data_dir()).join("terraform.tfstate"),
        ))?;
        for copy in ["terraform.tfstate", "terraform.tfstate.d"].map(|name| dir.join(name)) {
            unless_missing(if copy.is_dir() {
                fs::remove_dir_all(copy)
            } else {
                fs::remove_file(copy)
            })?;
        }
        self.initialize_again(prepared).await?;
        Ok(StatePlace::File(file))
    }

    /// Reads the state into a private file: as it is stored where that is possible, else as the tool prints it.
    pub(super) async fn read_migrated_state(
        &mut self,
        prepared: &Prepared,
        place: &StatePlace,
        to: &Path,
    ) -> Result<StateReport, RunError> {
        unless_missing(fs::remove_file(to))?;
        match (place, &self.job.datastore) {
            (StatePlace::File(file), _) => copy_state(file, to)?,
            (StatePlace::Datastore, Some(datastore)) => {
                let key = self.own_state_key();
                let saved = datastore.save_state(&key, None, to);
                if self.signals.or(saved).await.map_err(RunError::Stopped)??.is_none() {
                    drop(private_file(to)?);
                }
            }
            _ => {
                let program = prepared.tool().state_pull();
                self.step_into_with_retries("state pull", &program, to).await?;
            }
        }
        fs::File::open(to).and_then(StateReport::read).map_err(RunError::UnreadableState)
    }

    /// Removes what the other tool's init has recorded of the backend in the directory of the user: the init of this one would
    /// take it for a change of the backend.
    pub(super) fn forget_backend(&self, prepared: &Prepared) {
        let Some(module) = &prepared.workspace.in_place_of else { return };
        let record = module.join(self.environment.data_dir()).join("terraform.tfstate");
        match fs::remove_file(&record) {
            Ok(()) => tracing::info!(
                "removed {}, the other tool's record of the backend: init writes it again",
                record.display()
            ),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(
                "remove {}: the other tool's init has written it ({error})",
                record.display()
            ),
        }
    }

    /// Has the tool write the state in `file` with this serial.
    pub(super) async fn push_with_serial(
        &mut self,
        prepared: &mut Prepared,
        file: &Path,
        serial: u64,
    ) -> Result<(), RunError> {
        let changed = with_serial(&fs::read(file)?, serial).map_err(MigrationError::Document)?;
        let to = self.scratch.join("state-to-push");
        unless_missing(fs::remove_file(&to))?;
        private_file(&to)?.write_all(&changed)?;
        let pushed = self
            .step_with_retries(prepared, "state push", || Ok(()), |tool| tool.state_push(&to))
            .await;
        unless_missing(fs::remove_file(&to))?;
        pushed
    }
}

/// What two versions of a state must have in common if only the tool has changed: outputs, and the attributes of every object.
#[derive(PartialEq, Deserialize)]
struct Contents {
    lineage: String,
    #[serde(default)]
    outputs: Value,
    resources: Vec<Resource>,
}

#[derive(PartialEq, Deserialize)]
struct Resource {
    module: Option<String>,
    mode: String,
    r#type: String,
    name: String,
    provider: String,
    instances: Vec<Instance>,
}

#[derive(PartialEq, Deserialize)]
struct Instance {
    index_key: Option<Value>,
    status: Option<String>,
    deposed: Option<String>,
    attributes: Option<Value>,
}

/// Whether two files have the same state, whatever their serials and tools are. What cannot be read is another one.
pub(super) fn has_same_contents(one: &Path, other: &Path) -> bool {
    let read = |file: &Path| {
        // Tofu names the providers of its own registry instead.
        let text = fs::read_to_string(file)
            .ok()?
            .replace("registry.terraform.io/", "registry.opentofu.org/");
        serde_json::from_str::<Contents>(&text).ok()
    };
    matches!((read(one), read(other)), (Some(one), Some(other)) if one == other)
}

/// Writes the override file for a state in this file, or in the directory of its workspace.
fn configure(dir: &Path, default: &Path, workspaces: &Path) -> Result<(), RunError> {
    let [path, workspaces] = [literal(default)?, literal(workspaces)?];
    let settings = format!("    path = {path}\n    workspace_dir = {workspaces}\n");
    let text = format!("terraform {{\n  backend \"local\" {{\n{settings}  }}\n}}\n");
    Ok(fs::write(dir.join(OVERRIDE), text)?)
}

/// A path as a string of HCL. In JSON the tools differ in whether it is a template.
fn literal(path: &Path) -> std::io::Result<String> {
    let text = path.to_str().filter(|text| !text.contains(char::is_control)).ok_or_else(|| {
        let shown = path.to_string_lossy().escape_debug().to_string();
        std::io::Error::other(format!("the path {shown} is not UTF-8, or has control characters"))
    })?;
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(format!("\"{}\"", text.replace("${", "$${").replace("%{", "%%{")))
}

/// The fields of a state, in order, unparsed: numbers keep all their digits.
struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfState;
        impl<'de> Visitor<'de> for OfState {
            type Value = Fields;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a state")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(OfState)
    }
}

/// The state with another serial, otherwise unchanged.
fn with_serial(state: &[u8], serial: u64) -> Result<Vec<u8>, String> {
    let Fields(fields) = serde_json::from_slice(state).map_err(|error| error.to_string())?;
    if !fields.iter().any(|(name, _)| name == "serial") {
        return Err("it has no serial".to_owned());
    }
    let mut text = Vec::with_capacity(state.len() + 20);
    for (index, (name, value)) in fields.iter().enumerate() {
        text.extend_from_slice(if index == 0 { b"{\n  " } else { b",\n  " });
        serde_json::to_writer(&mut text, name).map_err(|error| error.to_string())?;
        text.extend_from_slice(b": ");
        match name.as_str() {
            "serial" => text.extend_from_slice(serial.to_string().as_bytes()),
            _ => text.extend_from_slice(value.get().as_bytes()),
        }
    }
    text.extend_from_slice(b"\n}\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_serial_changes() {
        let state = "{\n  \"version\": 4,\n  \"serial\": 7,\n  \"lineage\": \"l\",\n  \"outputs\": {\"n\": {\"value\": 123456789012345678901234567890.10, \
            \"serial\": 7}},\n  \"resources\": []\n}\n";
        let changed = String::from_utf8(with_serial(state.as_bytes(), 8).unwrap()).unwrap();
        assert_eq!(changed, state.replacen("\"serial\": 7", "\"serial\": 8", 1));
    }

    #[test]
    fn contents_are_compared_without_serial_and_registry() {
        let dir = tempfile::tempdir().unwrap();
        let state = |name: &str, host: &str, serial: u64, id: &str| {
            let file = dir.path().join(name);
            let instances =
                format!(r#"[{{"attributes": {{"id": "{id}"}}, "private": "x{serial}"}}]"#);
            let provider = format!(r#"provider[\"{host}/hashicorp/null\"]"#);
            let text = format!(
                r#"{{"serial": {serial}, "lineage": "l", "outputs": {{}}, "resources": [{{"mode": "managed", "type": "t", "name": "n",
                "provider": "{provider}", "instances": {instances}}}]}}"#
            );
            fs::write(&file, text).unwrap();
            file
        };
        let old = state("old", "registry.terraform.io", 3, "a");
        assert!(has_same_contents(&old, &state("new", "registry.opentofu.org", 5, "a")));
        assert!(!has_same_contents(&old, &state("other", "registry.terraform.io", 4, "b")));
        fs::write(dir.path().join("torn"), "{").unwrap();
        assert!(!has_same_contents(&dir.path().join("torn"), &dir.path().join("torn")));
    }

    #[test]
    fn what_is_no_state_is_refused() {
        for text in ["", "[]", "{\"version\": 4", "{}"] {
            with_serial(text.as_bytes(), 1).unwrap_err();
        }
    }

    #[test]
    fn a_path_with_template_characters_is_written_literally() {
        let dir = tempfile::tempdir().unwrap();
        configure(dir.path(), Path::new("/a${b}/\"c"), Path::new("/d%{e}")).unwrap();
        let text = fs::read_to_string(dir.path().join(OVERRIDE)).unwrap();
        assert!(text.contains(r#" path = "/a$${b}/\"c""#), "{text}");
        assert!(text.contains(r#" workspace_dir = "/d%%{e}""#), "{text}");
    }
}
