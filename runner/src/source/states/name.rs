//! How commands for people name the state of a run.

use serde::{Deserialize, Serialize};

use crate::process::quoted;

/// Which state a command is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StateName {
    /// That of the selected workspace: the command need not name it.
    #[default]
    Selected,
    /// That of this workspace.
    Workspace(String),
    Datastore(Box<DatastoreName>),
}

/// A state in the datastore, which the commands of the tool do not reach outside of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DatastoreName {
    /// Namespace, layer and workspace.
    pub(crate) key: String,
    /// The URL of the datastore, without secrets.
    pub(crate) url: String,
}

impl DatastoreName {
    /// A command of `datastore state` about it. `more` are further arguments.
    pub(crate) fn command(&self, command: &str, more: &str) -> String {
        let (key, url) = (quoted(&self.key), quoted(&self.url));
        let more = if more.is_empty() { String::new() } else { format!(" {more}") };
        format!("datastore state {command} {key}{more} --url {url}")
    }
}

impl StateName {
    /// The command that removes the lock with this ID.
    pub(crate) fn unlock(&self, tool: &str, id: &str) -> String {
        let (tool, id) = (quoted(tool), quoted(id));
        match self {
            Self::Selected => format!("{tool} force-unlock {id}"),
            Self::Workspace(name) => {
                format!("TF_WORKSPACE={} {tool} force-unlock {id}", quoted(name))
            }
            Self::Datastore(name) => name.command("unlock", &format!("--id {id}")),
        }
    }
}
