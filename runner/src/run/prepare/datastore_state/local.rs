//! States that a module has had before its state was in the datastore.

use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use datastore_api::client::{StateOrigin, Upload};
use datastore_api::{Client, Sha256};
use fs_err as fs;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::basis::local_state::Initialized;
use crate::order::job::DatastoreState;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::lease::HeldLease;
use crate::run::prepare::datastore_state::error::{Local, StateError};
use crate::source::checkout::{Source, Workspace};
use crate::source::regular::unless_missing;
use crate::source::states::file::version_of;

/// The names of a module's local states: that of the default workspace, and the directory of the others.
const NAMES: [&str; 2] = ["terraform.tfstate", "terraform.tfstate.d"];

impl Run<'_> {
    /// The state of this workspace in the module of the user, or in the directory where the tool works.
    pub(super) fn local_state(
        &self,
        state: &DatastoreState,
        workspace: &Workspace,
    ) -> Result<Option<Local>, RunError> {
        let data_dir = self.environment.data_dir();
        let name = state.key.workspace.as_ref();
        let of_user = module_of_user(&self.job.source, &self.job.path, workspace);
        if let Some(dir) = of_user {
            // A record of this backend there is the user's, unless copies use the same directory.
            let local = find(&dir, data_dir, name, data_dir.is_absolute())?;
            if local.is_some() {
                return Ok(local);
            }
        }
        Ok(find(&workspace.dir, data_dir, name, workspace.own.is_some())?)
    }

    /// Moves a local state into the datastore, which has none.
    pub(super) async fn migrate(
        &self,
        datastore: &Client,
        state: &DatastoreState,
        file: &Path,
        workspace: &Workspace,
    ) -> Result<(), RunError> {
        check_unlocked(file)?;
        version_of(file).map_err(|error| {
            let (file, reason) = (file.to_owned(), error.to_string());
            StateError::Torn { file, reason }
        })?;
        let upload = Upload::file(file).await?;
        let sha256 = upload.sha256();
        let fence = self.lease.held().map(HeldLease::number);
        let origin = StateOrigin { run: Some(self.run_name()), fence, ..state.origin() };
        let pushed = async {
            datastore.push_state(&state.key, &origin, &upload, false).await?;
            datastore.states(&state.key, None, 1, None).await
        };
        let head = self.signals.or(pushed).await.map_err(RunError::Stopped)??.head;
        if head.version.is_none_or(|version| version.sha256 != sha256)
            || Sha256::of_reader(fs::File::open(file)?)? != sha256
        {
            return Err(StateError::Changing(file.to_owned()).into());
        }
        let is_removed = workspace.own.as_ref().is_some_and(|own| file.starts_with(own));
        let moved = if is_removed && !workspace.kept { None } else { set_aside(file) };
        let line = match moved {
            Some(moved) => format!(
                "the datastore has the state of {} now; {} is renamed to {}",
                state.key,
                file.display(),
                moved.display()
            ),
            None => format!(
                "the datastore has the state of {} now; {} is not used any more",
                state.key,
                file.display()
            ),
        };
        tracing::info!("{line}");
        Ok(self.log.line(&line)?)
    }
}

/// The module in the directory of the user, if the tool works in a copy of it.
fn module_of_user(source: &Source, path: &Path, workspace: &Workspace) -> Option<PathBuf> {
    let read_only = match (source, &workspace.copied_from) {
        (Source::Directory(dir), Some(_)) => Some(dir.join(path)),
        _ => None,
    };
    workspace.in_place_of.clone().or(read_only)
}

/// The state of the module in `dir`. Its data directory may record the backend of an earlier init; `is_shared`: also that of
/// a run with its state in the datastore.
fn find(
    dir: &Path,
    data_dir: &Path,
    workspace: &str,
    is_shared: bool,
) -> io::Result<Option<Local>> {
    let data = dir.join(data_dir);
    let record = record(&data)?;
    let is_own = is_shared && is_own(&record);
    if !record["state_store"].is_null() {
        let kind = record["state_store"]["type"].as_str().unwrap_or("state_store").to_owned();
        return Ok(Some(Local::Backend { kind, data_dir: data }));
    }
    if let Some(kind) = record["backend"]["type"].as_str()
        && kind != "local"
        && !is_own
    {
        return Ok(Some(Local::Backend { kind: kind.to_owned(), data_dir: data }));
    }
    // A record of ours says nothing about local states.
    let no_record = Path::new(".terraform/none");
    let data = if is_own { no_record } else { data_dir };
    let module = Initialized { dir, data: Some(data), workspace: Some(workspace) };
    let file = module.state_file()?.map(|file| dir.join(file));
    Ok(file.filter(|file| holds_state(file)).map(Local::File))
}

/// What init has recorded in a data directory.
fn record(data_dir: &Path) -> io::Result<Value> {
    match unless_missing(fs::read(data_dir.join("terraform.tfstate")))? {
        Some(text) => serde_json::from_slice(&text).map_err(io::Error::from),
        None => Ok(Value::Null),
    }
}

/// Whether init has configured the backend of a state in the datastore: all of its settings are in variables.
pub(super) fn has_own_backend(data_dir: &Path) -> io::Result<bool> {
    Ok(is_own(&record(data_dir)?))
}

fn is_own(record: &Value) -> bool {
    const SETTINGS: [&str; 6] =
        ["address", "lock_address", "unlock_address", "update_method", "username", "password"];
    let config = &record["backend"]["config"];
    record["backend"]["type"] == "http" && SETTINGS.iter().all(|name| config[*name].is_null())
}

/// Whether a file has a state with something in it. What is no state of terraform's may be one that tofu has encrypted.
fn holds_state(file: &Path) -> bool {
    #[derive(Deserialize)]
    struct Contents {
        resources: Vec<IgnoredAny>,
        #[serde(default)]
        outputs: serde_json::Map<String, serde_json::Value>,
    }
    if !fs::metadata(file).is_ok_and(|of| of.is_file() && of.len() > 0) {
        return false;
    }
    let contents = fs::File::open(file).map_err(serde_json::Error::io);
    let contents = contents.and_then(|file| serde_json::from_reader(BufReader::new(file)));
    !matches!(contents, Ok(Contents { resources, outputs }) if resources.is_empty() && outputs.is_empty())
}

/// Refuses a state that a process works with, by the file that terraform writes beside it while it does.
fn check_unlocked(state: &Path) -> Result<(), StateError> {
    let name = state.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let lock = state.with_file_name(format!(".{name}.lock.info"));
    if lock.exists() {
        Err(StateError::LocalLock { state: state.to_owned(), lock })
    } else {
        Ok(())
    }
}

/// Renames a state that was moved, so that no tool uses it any more. `None`: it cannot be renamed.
fn set_aside(state: &Path) -> Option<PathBuf> {
    let name = state.file_name()?.to_str()?;
    let mut names = (1..100).map(|number| match number {
        1 => state.with_file_name(format!("{name}.moved.backup")),
        number => state.with_file_name(format!("{name}.moved-{number}.backup")),
    });
    let free = names.find(|path| path.symlink_metadata().is_err())?;
    match fs::rename(state, &free) {
        Ok(()) => Some(free),
        Err(error) => {
            tracing::warn!("{} stays where it is: {error}", state.display());
            None
        }
    }
}

/// Removes local states from the directory where the tool works: init would want to move them. Only a private directory is
/// changed.
pub(super) fn remove_states(workspace: &Workspace) -> Result<(), RunError> {
    for path in NAMES.map(|name| workspace.dir.join(name)) {
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        if workspace.own.is_none() || workspace.kept {
            if found.is_dir() || holds_state(&path) {
                return Err(StateError::InTheWay(path).into());
            }
        } else if found.is_dir() {
            fs::remove_dir_all(path)?;
        } else {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)], workspace: &str, is_shared: bool) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = find(dir.path(), Path::new(".terraform"), workspace, is_shared).unwrap();
        let shown = found?.to_string();
        Some(shown.replace(&format!("{}/", dir.path().display()), ""))
    }

    const FULL: &str = r#"{"version": 4, "outputs": {}, "resources": [{}]}"#;
    const RECORD: &str = ".terraform/terraform.tfstate";

    #[test]
    fn a_state_of_this_workspace_is_found_where_the_tool_would_use_it() {
        let file = "terraform.tfstate";
        let blue = "terraform.tfstate.d/blue/terraform.tfstate";
        for (name, text, workspace, expected) in [
            (file, FULL, "default", Some("the state terraform.tfstate")),
            (file, r#"{"encrypted_data": "x"}"#, "default", Some("the state terraform.tfstate")),
            (
                file,
                r#"{"outputs": {"a": {}}, "resources": []}"#,
                "default",
                Some("the state terraform.tfstate"),
            ),
            (file, r#"{"outputs": {}, "resources": []}"#, "default", None),
            (file, "", "default", None),
            (file, FULL, "blue", None),
            (blue, FULL, "default", None),
            (blue, FULL, "blue", Some("the state terraform.tfstate.d/blue/terraform.tfstate")),
        ] {
            assert_eq!(
                found(&[(name, text)], workspace, false).as_deref(),
                expected,
                "{name} {text}"
            );
        }
        let local = r#"{"backend": {"type": "local", "config": {"path": "x/y"}}}"#;
        let files = [(RECORD, local), ("x/y", FULL)];
        assert_eq!(found(&files, "default", false).as_deref(), Some("the state x/y"));
    }

    #[test]
    fn a_recorded_backend_has_a_state_unless_it_is_the_runners() {
        let s3 = r#"{"backend": {"type": "s3", "config": {}}}"#;
        let expected = Some("the state in the backend s3, which .terraform records,");
        assert_eq!(found(&[(RECORD, s3)], "default", true).as_deref(), expected);
        let http = r#"{"backend": {"type": "http", "config": {"address": null}}}"#;
        assert_eq!(found(&[(RECORD, http)], "default", true), None);
        assert!(found(&[(RECORD, http)], "default", false).is_some());
        let files = [(RECORD, http), ("terraform.tfstate", FULL)];
        assert_eq!(found(&files, "default", true).as_deref(), Some("the state terraform.tfstate"));
    }

    #[test]
    fn a_state_that_was_moved_gets_a_free_name() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("terraform.tfstate");
        let names = [1, 2].map(|number| {
            fs::write(&state, number.to_string()).unwrap();
            set_aside(&state).unwrap().file_name().unwrap().to_owned()
        });
        assert_eq!(names, ["terraform.tfstate.moved.backup", "terraform.tfstate.moved-2.backup"]);
        assert!(!state.exists());
    }
}
