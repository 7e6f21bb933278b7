//! What the tests share: machines with a clone of one repository, and what the datastore has of a state.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use support::{Ended, Sandbox, TestDatastore};
use url::Url;

use crate::RUNNER;
use crate::source::checkout::{commit_all, git};

/// A lease that outlasts a test.
pub(super) const LONG: Duration = Duration::from_mins(5);

/// The module of most tests. It is in `live/vpc`.
pub(super) const MAIN: &str = r#"
module "names" {
  source = "../../modules/names"
}
resource "terraform_data" "x" {
  input = module.names.x
}
"#;

/// A repository with that module and the one that it calls.
pub(super) struct Origin {
    sandbox: Sandbox,
}

impl Origin {
    pub(super) fn new() -> Self {
        let sandbox = Sandbox::new(RUNNER);
        sandbox.write("live/vpc/main.tf", MAIN);
        sandbox.write("modules/names/main.tf", "output \"x\" {\n  value = \"named\"\n}\n");
        sandbox.write(".gitignore", ".terraform/\n*.tfstate*\n");
        git(&sandbox.work(), &["init", "--quiet"]);
        commit_all(&sandbox.work());
        Self { sandbox }
    }

    /// Its directory.
    pub(super) fn dir(&self) -> PathBuf {
        self.sandbox.work()
    }

    /// Another machine with a clone of it.
    pub(super) fn machine(&self) -> Sandbox {
        let sandbox = Sandbox::new(RUNNER);
        let origin = self.dir().display().to_string();
        git(&sandbox.work(), &["clone", "--quiet", &origin, "clone"]);
        sandbox
    }
}

/// The module in a machine's clone.
pub(super) fn module(machine: &Sandbox) -> PathBuf {
    machine.work().join("clone/live/vpc")
}

/// Runs the runner in the clone's module, with the state of the layer `default/vpc` in the datastore.
pub(super) fn run(machine: &Sandbox, datastore: &Url, args: &[&str]) -> Ended {
    run_as(machine, datastore, "", args)
}

/// The same with this token.
pub(super) fn run_as(machine: &Sandbox, datastore: &Url, token: &str, args: &[&str]) -> Ended {
    run_in(&module(machine), machine, datastore, &[("PLANCHA_TOKEN", token)], args)
}

/// The same in another directory, with these variables.
pub(super) fn run_in(
    dir: &Path,
    machine: &Sandbox,
    datastore: &Url,
    variables: &[(&str, &str)],
    args: &[&str],
) -> Ended {
    let mut command = machine.command(&[args, &["--name", "vpc", "--state", "datastore"]].concat());
    command.current_dir(dir).env("PLANCHA_DATASTORE_URL", datastore.as_str());
    command.envs(variables.iter().filter(|(_, value)| !value.is_empty()).copied());
    command.output().unwrap().into()
}

/// What the datastore has of a state of the layer `default/vpc`: `GET /api/states`.
pub(super) async fn states(datastore: &TestDatastore, token: &str, workspace: &str) -> Value {
    let rest = format!("api/states?namespace=default&layer=vpc&workspace={workspace}");
    let request = reqwest::Client::new().get(datastore.url.join(&rest).unwrap());
    let answer = request.bearer_auth(token).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
}

/// Every file below a directory that contains a text, without those of git.
pub(super) fn files_with(dir: &Path, text: &str) -> Vec<PathBuf> {
    let (mut found, mut to_do) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = to_do.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                to_do.push(path);
            } else if std::fs::read(&path)
                .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
            {
                found.push(path);
            }
        }
    }
    found
}
