//! Finds the file of a local state, by init's record in the data directory or by a known backend. The contents of the
//! file and the settings of other backends are not read.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::Value;

use crate::basis::backend::Backend;
use crate::basis::place::DEFAULT_WORKSPACE;
use crate::source::path::{normal, resolve};

/// A module directory after init.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Initialized<'a> {
    pub(crate) dir: &'a Path,
    /// The data directory (`TF_DATA_DIR`), by default `.terraform`.
    pub(crate) data: Option<&'a Path>,
    /// The workspace, if the environment selects it (`TF_WORKSPACE`).
    pub(crate) workspace: Option<&'a str>,
}

impl Initialized<'_> {
    /// The state file, if the backend is `local` or there is none, and the file is inside `removed`, or a relative path leads
    /// out of it.
    pub(crate) fn lost_with(&self, removed: &Path) -> io::Result<Option<PathBuf>> {
        let Some(file) = self.state_file()? else { return Ok(None) };
        self.inside(&file, removed)
    }

    /// The same for a backend that is already known, as with terragrunt, whose data directory is elsewhere.
    pub(crate) fn lost_of(&self, backend: &Backend, removed: &Path) -> io::Result<Option<PathBuf>> {
        let Some(file) = backend.state_file() else { return Ok(None) };
        match self.workspace {
            None | Some("" | DEFAULT_WORKSPACE) => self.inside(file, removed),
            Some(name) => self.inside(&workspace_file(Path::new(WORKSPACE_DIR), name), removed),
        }
    }

    /// The state file, if its path is absolute and inside `removed`. A plan contains such a path, so an apply in another
    /// directory would write there as well.
    pub(crate) fn absolute_in(&self, removed: &Path) -> io::Result<Option<PathBuf>> {
        match self.state_file()?.filter(|file| file.is_absolute()) {
            Some(file) => self.inside(&file, removed),
            None => Ok(None),
        }
    }

    /// The state file as an absolute path, whether or not it exists; `None` if the backend is another one.
    pub(crate) fn file(&self) -> io::Result<Option<PathBuf>> {
        let Some(file) = self.state_file()? else { return Ok(None) };
        Ok(Some(fs::canonicalize(self.dir)?.join(file)))
    }

    fn inside(&self, file: &Path, removed: &Path) -> io::Result<Option<PathBuf>> {
        let (dir, removed) = (fs::canonicalize(self.dir)?, fs::canonicalize(removed)?);
        // Where such a path leads depends on where the run's directory happens to be, unless a link is on the way.
        let leaves = file.is_relative() && !normal(&dir.join(file)).starts_with(&removed);
        let file = resolve(&dir.join(file))?;
        Ok((leaves || file.starts_with(removed)).then_some(file))
    }

    /// The state file of a `local` backend, relative to the working directory or absolute.
    pub(crate) fn state_file(&self) -> io::Result<Option<PathBuf>> {
        let data = self.dir.join(self.data.unwrap_or(Path::new(".terraform")));
        let recorded = match fs::read(data.join("terraform.tfstate")) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::from)?,
            Err(error) if error.kind() == ErrorKind::NotFound => Value::Null,
            Err(error) => return Err(error),
        };
        let backend = &recorded["backend"];
        if backend["type"].as_str().is_some_and(|kind| kind != "local") {
            return Ok(None);
        }
        let setting = |name: &str, default: &str| {
            let text = backend["config"][name].as_str().filter(|text| !text.is_empty());
            PathBuf::from(text.unwrap_or(default))
        };
        let selected = match self.workspace {
            Some(name) => name.to_owned(),
            None => read_or_empty(&data.join("environment"))?,
        };
        Ok(Some(match selected.trim() {
            "" | DEFAULT_WORKSPACE => setting("path", "terraform.tfstate"),
            name => workspace_file(&setting("workspace_dir", WORKSPACE_DIR), name),
        }))
    }
}

/// The directory of the states of workspaces other than `default`.
const WORKSPACE_DIR: &str = "terraform.tfstate.d";

fn workspace_file(dir: &Path, name: &str) -> PathBuf {
    dir.join(name).join("terraform.tfstate")
}

fn read_or_empty(file: &Path) -> io::Result<String> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Module(tempfile::TempDir);

    impl Module {
        fn new(recorded: Option<&str>) -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("removed/module/.terraform")).unwrap();
            fs::create_dir(dir.path().join("kept")).unwrap();
            let module = Self(dir);
            if let Some(recorded) = recorded {
                let root = module.0.path().display().to_string();
                module.write(".terraform/terraform.tfstate", &recorded.replace("ROOT", &root));
            }
            module
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.path().join("removed/module").join(name), text).unwrap();
        }

        fn lost(&self, workspace: Option<&str>) -> Option<String> {
            let removed = self.0.path().join("removed");
            let dir = removed.join("module");
            let lost =
                Initialized { dir: &dir, data: None, workspace }.lost_with(&removed).unwrap();
            let removed = fs::canonicalize(removed).unwrap();
            lost.map(|file| match file.strip_prefix(&removed) {
                Ok(below) => below.display().to_string(),
                Err(_) => format!(
                    "../{}",
                    file.strip_prefix(removed.parent().unwrap()).unwrap().display()
                ),
            })
        }
    }

    #[test]
    fn a_local_state_inside_the_removed_directory_is_lost() {
        let default = Some("module/terraform.tfstate");
        for (recorded, lost) in [
            (None, default),
            (Some("{}"), default),
            (Some(r#"{"backend": {"type": "local", "config": {"path": null}}}"#), default),
            (
                Some(r#"{"backend": {"type": "local", "config": {"path": "a/b"}}}"#),
                Some("module/a/b"),
            ),
            (Some(r#"{"backend": {"type": "local", "config": {"path": "../x"}}}"#), Some("x")),
            (
                Some(r#"{"backend": {"type": "local", "config": {"path": "ROOT/removed/x"}}}"#),
                Some("x"),
            ),
            (Some(r#"{"backend": {"type": "local", "config": {"path": "ROOT/kept/x"}}}"#), None),
            (
                Some(r#"{"backend": {"type": "local", "config": {"path": "../../kept/x"}}}"#),
                Some("../kept/x"),
            ),
            (Some(r#"{"backend": {"type": "s3"}}"#), None),
            (Some(r#"{"backend": {"type": "cloud"}}"#), None),
        ] {
            assert_eq!(Module::new(recorded).lost(None).as_deref(), lost, "{recorded:?}");
        }
    }

    #[test]
    fn a_workspace_has_its_own_state_file() {
        let outside = r#"{"backend": {"type": "local", "config": {"path": "ROOT/kept/x"}}}"#;
        let inside = r#"{"backend": {"type": "local", "config": {"workspace_dir": "ROOT/kept"}}}"#;
        let dev = Some("module/terraform.tfstate.d/dev/terraform.tfstate");
        assert_eq!(Module::new(Some(outside)).lost(Some("dev")).as_deref(), dev);
        assert_eq!(Module::new(Some(outside)).lost(Some("default")), None);
        assert_eq!(Module::new(Some(inside)).lost(Some("dev")), None);
        let module = Module::new(Some(outside));
        module.write(".terraform/environment", "dev\n");
        assert_eq!(module.lost(None).as_deref(), dev);
    }

    #[test]
    fn the_state_of_a_known_backend_is_where_its_path_says() {
        let module = Module::new(None);
        let removed = fs::canonicalize(module.0.path().join("removed")).unwrap();
        let dir = removed.join("module");
        let outside = module.0.path().join("kept/x").display().to_string();
        for (kind, path, workspace, lost) in [
            ("local", "terraform.tfstate", None, Some("module/terraform.tfstate")),
            ("local", "../x", Some("default"), Some("x")),
            ("local", &outside, None, None),
            (
                "local",
                &outside,
                Some("dev"),
                Some("module/terraform.tfstate.d/dev/terraform.tfstate"),
            ),
            ("s3", "", None, None),
        ] {
            let config = serde_json::json!({"path": path});
            let backend = Backend::new(
                kind.to_owned(),
                &config,
                &dir,
                "",
                &std::collections::BTreeMap::new(),
            );
            let found = Initialized { dir: &dir, data: None, workspace };
            let found = found.lost_of(&backend, &removed).unwrap();
            assert_eq!(found, lost.map(|lost| removed.join(lost)), "{kind} {path} {workspace:?}");
        }
    }

    #[test]
    fn a_link_out_of_the_removed_directory_is_followed() {
        let module = Module::new(None);
        let (kept, dir) = (module.0.path().join("kept"), module.0.path().join("removed/module"));
        // Before the first apply there is nothing at its end.
        fs::os::unix::fs::symlink(kept.join("state"), dir.join("terraform.tfstate")).unwrap();
        assert_eq!(module.lost(None), None);
    }
}
